"""Reads the metadata topic for the partitions that are assigned to this broker (docs/kafka-semantics.md: The metadata
topic).

Two tasks: one looks up the start and end offset of each metadata partition, loads snapshots, and seeks the consumer;
the other reads. After an error, a partition is retried after growing pauses, while the others continue. (Kafka retries
offset look-ups after 30 s, and its consumer ends with the first error that is not retriable.)
"""

from __future__ import annotations

from typing import Final

from milena.client.cluster import Cluster
from milena.client.consumer import ConsumedRecord, Consumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.remote_log_records import UnreadableRemoteLogRecord
from milena.protocol.types import Offset
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks
from milena.tiered.metadata.assignments import Assignments
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.partition_names import peek_partition
from milena.tiered.metadata.read_positions import MetadataPartition
from milena.tiered.metadata.serialization import deserialize
from milena.tiered.metadata.snapshot import Snapshot
from milena.tiered.metadata.snapshot_files import SnapshotFiles

POLL_SECONDS: Final = 10.0
RECORDS_AT_ONCE: Final = 100
"""Maximum records per poll. A record takes 30 us, so one poll takes a few milliseconds of the loop."""
FETCH_BYTES: Final = 64 << 10
"""Maximum bytes per fetch of one partition: an answer is decoded in one step."""


class Consumption:
    """Reads the metadata of the partitions in ``assignments`` with the client ``cluster``."""

    def __init__(
        self, node_id: int, assignments: Assignments, snapshots: SnapshotFiles, cluster: Cluster, asking: Cluster
    ) -> None:
        """``asking``: a second client for offset look-ups, which would wait for fetches to end on the connections of
        ``cluster``."""
        self._assignments = assignments
        self._by_number = assignments.by_number
        self._changed = assignments.changed
        self._snapshots = snapshots
        self._cluster = cluster
        self._asking = asking
        self._consumer = Consumer(cluster, reset=None, max_wait_ms=500, partition_bytes=FETCH_BYTES)
        self._log = get_logger("remote log metadata", node=node_id)

    def start(self, tasks: Tasks) -> None:
        """Start to read."""
        tasks.keep(self._locate_all, name="locate remote log metadata")
        tasks.keep(self._read, name="read remote log metadata")

    async def save(self) -> None:
        """Write the snapshots that are out of date."""
        for source in list(self._by_number.values()):
            for followed in list(source.followed.values()):
                if followed.next is None or not followed.ready or source.skipped or not followed.outdated:
                    continue
                taken = Snapshot.of(followed.cache, source.topic_id, followed.next)
                followed.saved()
                await self._snapshots.save(followed.partition, taken)

    # -- where to begin

    async def _locate_all(self) -> None:
        attempt = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._asking.forget_topic(REMOTE_LOG_METADATA_TOPIC)
            failed = False
            for source in [partition for partition in self._by_number.values() if partition.unlocated]:
                try:
                    await self._locate(source)
                except (KafkaError, ChannelError) as error:
                    failed = True
                    self._log.debug("remote log metadata not found yet", partition=source.number, error=str(error))
            self._steer()
            if not failed:
                attempt = 0
                continue
            await self._asking.pause(attempt)
            attempt += 1
            self._changed.set()

    async def _locate(self, source: MetadataPartition) -> None:
        """Set the start offsets of partitions that are new to ``source``. Raises KafkaError, ChannelError."""
        begin = (await find_offset(self._asking, REMOTE_LOG_METADATA_TOPIC, source.number, EARLIEST)).offset
        end = (await find_offset(self._asking, REMOTE_LOG_METADATA_TOPIC, source.number, LATEST)).offset
        topic_id = (await self._asking.topic(REMOTE_LOG_METADATA_TOPIC)).id
        if source.topic_id not in (None, topic_id):
            source.forget()
        source.topic_id = topic_id
        for partition in [followed for followed in source.followed.values() if followed.next is None]:
            kept = await self._snapshots.load(partition.partition)
            if partition.gone or partition.next is not None:
                continue
            if kept is not None and kept.topic_id == topic_id and begin <= kept.next_offset <= end:
                partition.begin(kept.cache(), kept.next_offset, Offset(end))
            else:
                partition.begin(RemoteLogMetadataCache(), Offset(begin), Offset(end))

    def _steer(self) -> None:
        """Assign the followed metadata partitions to the consumer, each at the first offset that is needed."""
        offsets: dict[tuple[str, int], int | None] = {}
        for number, source in self._by_number.items():
            if all(followed.next is None for followed in source.followed.values()):
                source.assigned = False
                continue
            at = self._consumer.position(REMOTE_LOG_METADATA_TOPIC, number) if source.assigned else None
            # A partition that was assigned later may need records before the consumer's position.
            back = at is None or source.beginning < at or source.position is None
            offsets[REMOTE_LOG_METADATA_TOPIC, number] = source.beginning if back else None
            source.assigned = True
            if back:
                source.advance(source.beginning)
        self._consumer.assign(offsets)

    # -- reading

    async def _read(self) -> None:
        failures = 0
        try:
            while True:
                try:
                    records = await self._consumer.poll(POLL_SECONDS, RECORDS_AT_ONCE)
                except KafkaError as error:
                    self._log.warning("remote log metadata cannot be read", error=str(error))
                    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._read_again()
                    await self._cluster.pause(failures)
                    failures += 1
                    continue
                failures = 0
                if not (self._is_same() and all(self._take(record) for record in records) and self._advance()):
                    self._read_again()
                await self._cluster.runtime.clock.sleep(0)
        finally:
            await self._consumer.close()

    def _is_same(self) -> bool:
        """Whether the topic still has the id that it had when its offsets were looked up."""
        seen = self._cluster.remembered(REMOTE_LOG_METADATA_TOPIC)
        return seen is None or all(partition.topic_id in (None, seen.id) for partition in self._by_number.values())

    def _take(self, record: ConsumedRecord) -> bool:
        """Apply a record. Returns False if its offset was read before, which means that the log was replaced or
        truncated."""
        offset = Offset(record.offset)
        source = self._by_number.get(record.partition)
        if source is None:
            return True
        if source.position is not None and offset < source.position:
            return False
        name = peek_partition(record.value)
        if name is not None:  # most records are about partitions that are not on this broker
            named = self._assignments.named(name)
            if named is None or named.has_read(offset):
                return True
        try:
            event = deserialize(record.value, offset, self._assignments.shared)
        except UnreadableRemoteLogRecord as error:
            source.skipped = True
            self._log.warning(
                "remote log metadata record skipped", partition=record.partition, offset=offset, error=str(error)
            )
            return True
        followed = None if event is None else self._assignments.find(event.segment_id.partition)
        if event is None or followed is None or followed.take(offset, event):
            return True
        known = followed.cache.get(event.segment_id.id)
        fenced = followed.cache.is_fenced(event)
        self._log.warning(
            "remote log metadata record dropped: "
            + (f"it is fenced by leader epoch {followed.cache.fence_epoch}" if fenced else "invalid state transition"),
            topic=followed.partition.topic,
            partition=followed.partition.partition,
            segment=str(event.segment_id.id),
            offset=offset,
            before=None if known is None else known.state.name,
            state=event.state.name,
        )
        return True

    def _advance(self) -> bool:
        """Pass the consumer's positions on to the followed partitions. Returns False if a position has fallen, which
        means that the log was replaced or truncated."""
        for number, source in self._by_number.items():
            if source.assigned:
                position = self._consumer.position(REMOTE_LOG_METADATA_TOPIC, number)
                if position is None or source.position is None:
                    continue
                if position < source.position:
                    return False
                source.advance(Offset(position))
        return True

    def _read_again(self) -> None:
        """Read the topic again from its start, because records were lost or the topic was created again."""
        self._log.warning("the remote log metadata topic has changed and is read again from its start")
        self._consumer.assign({})
        for source in self._by_number.values():
            source.assigned = False
            source.forget()
        self._changed.set()
