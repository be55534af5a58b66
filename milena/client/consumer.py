"""A consumer of assigned partitions.

Each leader, or the preferred read replica that it names (KIP-392), is asked for all its partitions at once, in a task
of its own, while the caller processes earlier records. A partition is not fetched again while records of it are
buffered, so at most one answer per partition is held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from milena.client.cluster import Cluster
from milena.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, find_offset
from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.protocol.records.batch import BatchView, CorruptBatch, TimestampType, iter_batches
from milena.protocol.records.record_cursor import Header
from milena.protocol.records.records import iter_records, offset_of, timestamp_of
from milena.protocol.requests.fetch import (
    AbortedTransaction,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from milena.protocol.types import TopicPartition

MAX_BYTES: Final = 50 << 20
PARTITION_BYTES: Final = 1 << 20
PREFERRED_FOR: Final = 300.0
"""Seconds that a preferred read replica is used before the leader is asked again (Kafka's ``metadata.max.age.ms``)."""
RESETS: Final[Mapping[str, int]] = {"earliest": EARLIEST, "latest": LATEST}


class ConsumedRecord(NamedTuple):
    """One consumed record. ``timestamp`` is ms, ``leader_epoch`` that of its batch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int
    appended: bool = False
    """Whether ``timestamp`` is the time of the append to the log, not the producer's."""


@dataclass(slots=True, eq=False)
class _Assigned:
    """A partition and its position. ``offset`` is the next to fetch, None until it has been looked up."""

    topic: str
    partition: int
    offset: int | None
    epoch: int = -1
    """The leader epoch of the record before ``offset``, -1 if unknown: it lets the leader detect that the log has
    diverged (KIP-320, KIP-595)."""
    preferred: int = -1
    """The preferred read replica that the leader named (KIP-392), -1 for the leader itself."""
    preferred_until: float = 0.0
    fetching: bool = False
    records: deque[ConsumedRecord] = field(default_factory=deque)


class Consumer:
    """Reads assigned partitions. ``reset`` says where to start without an offset: earliest, latest, or None for an
    error."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        reset: str | None = "earliest",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        partition_bytes: int = PARTITION_BYTES,
        rack: str = "",
        committed: bool = False,
    ) -> None:
        """``rack``: the consumer's rack; a leader with a replica selector directs it to a replica in the same rack.
        ``committed``: read without the records of aborted transactions, up to the last stable offset (KIP-98:
        read_committed)."""
        if reset is not None and reset not in RESETS:
            raise ValueError(f"reset must be one of {', '.join(RESETS)} or None, not {reset!r}")
        self._cluster = cluster
        self._reset = reset
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._partition_bytes = partition_bytes
        self._rack = rack
        self._isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        self._tasks = cluster.runtime.new_tasks("consumer")
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._arrived = asyncio.Event()
        self._failure: Exception | None = None
        self._searching = False
        self._failures = 0

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._assigned)

    def assign(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions and no others, from these offsets; None starts where ``reset`` says. A partition that
        was assigned before and is passed without an offset keeps its position."""
        kept = self._assigned
        self._assigned = {}
        for (topic, partition), offset in offsets.items():
            known = kept.get((topic, partition))
            if known is None or offset is not None:
                known = _Assigned(topic, partition, offset)
            self._assigned[topic, partition] = known
        self._arrived.set()

    def seek(self, topic: str, partition: int, offset: int | None) -> None:
        """Continue at an offset (None: where ``reset`` says), and drop the records that were fetched. The partition
        must be assigned."""
        assert (topic, partition) in self._assigned, f"{topic}-{partition} is not assigned"
        self._assigned[topic, partition] = _Assigned(topic, partition, offset)

    def position(self, topic: str, partition: int) -> int | None:
        """The offset of the next record that ``poll`` returns; None before it is known."""
        assigned = self._assigned[topic, partition]
        return assigned.records[0].offset if assigned.records else assigned.offset

    async def poll(self, timeout: float, max_records: int = 500) -> list[ConsumedRecord]:
        """Up to ``max_records`` records, or none after ``timeout`` seconds.

        Raises KafkaError for errors that are not retriable (for example, no offset without ``reset``).
        """
        clock = self._cluster.runtime.clock
        deadline = clock.monotonic() + timeout
        while True:
            self._arrived.clear()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            taken = list(self._take(max_records))
            if not self._searching and any(a for a in self._assigned.values() if not a.fetching and not a.records):
                self._searching = True
                self._tasks.attempt(self._start_fetches(), name="find leaders")
            left = deadline - clock.monotonic()
            if taken or left <= 0:
                return taken
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        await self._tasks.stop()

    def _take(self, most: int) -> Iterator[ConsumedRecord]:
        for assigned in self._assigned.values():
            while assigned.records and most > 0:
                most -= 1
                yield assigned.records.popleft()

    async def _start_fetches(self) -> None:
        """Find the leaders of all idle partitions and start one fetch for each leader."""
        try:
            by_leader: dict[Channel, list[tuple[_Assigned, FetchPartition]]] = {}
            for assigned in list(self._assigned.values()):
                if assigned.fetching or assigned.records:
                    continue
                found = await self._prepare(assigned)
                if found is not None:
                    channel, wanted = found
                    assigned.fetching = True
                    by_leader.setdefault(channel, []).append((assigned, wanted))
            for channel, wanted_here in by_leader.items():
                self._tasks.attempt(self._fetch(channel, wanted_here), name=f"fetch {channel!r}")
            if not by_leader and self._failure is None:
                await self._cluster.pause(self._failures)
                self._failures += 1
        finally:
            self._searching = False
            self._arrived.set()

    async def _prepare(self, assigned: _Assigned) -> tuple[Channel, FetchPartition] | None:
        """Return the channel to fetch from, and the partition's entry in the Fetch request. Returns None after an
        error, which was recorded by ``_note``."""
        topic, partition = assigned.topic, assigned.partition
        try:
            if assigned.offset is None:
                if self._reset is None:
                    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition} has no offset to start from")
                found = await find_offset(
                    self._cluster, topic, partition, RESETS[self._reset], isolation=self._isolation
                )
                assigned.offset = found.offset
            channel, view, _ = await self._cluster.leader(topic, partition)
            channel = self._preferred_channel(assigned) or channel
        except (KafkaError, ChannelError) as error:
            self._note(error, topic)
            return None
        return channel, FetchPartition(
            partition,
            assigned.offset,
            self._partition_bytes,
            current_leader_epoch=view.leader_epoch,
            last_fetched_epoch=assigned.epoch,
        )

    def _preferred_channel(self, assigned: _Assigned) -> Channel | None:
        """The channel to the preferred read replica, while it is valid."""
        if assigned.preferred < 0:
            return None
        try:
            if self._cluster.runtime.clock.monotonic() < assigned.preferred_until:
                return self._cluster.to_broker(assigned.preferred)
        except KafkaError:
            pass  # the metadata does not list it any more
        assigned.preferred = -1
        return None

    async def _fetch(self, channel: Channel, wanted: list[tuple[_Assigned, FetchPartition]]) -> None:
        try:
            refused = await self._fetch_once(channel, wanted)
            for topic, error in refused:
                self._note(error, topic)
        except Exception as error:
            if not isinstance(error, (KafkaError, ChannelError)):
                self._cluster.runtime.contained.note("fetch of a consumer", error)
            refused = [(assigned.topic, error) for assigned, _ in wanted]
            for assigned, _ in wanted:
                assigned.preferred = -1
            for topic, _ in refused:
                self._note(error, topic)
        try:
            if refused:
                await self._cluster.pause(self._failures)
                self._failures += 1
            else:
                self._failures = 0
        finally:
            for assigned, _ in wanted:
                assigned.fetching = False
            self._arrived.set()

    async def _fetch_once(
        self, channel: Channel, wanted: list[tuple[_Assigned, FetchPartition]]
    ) -> Sequence[tuple[str, Exception]]:
        """Send one Fetch request. Returns the topics of the partitions that failed, with their errors."""
        ids = {assigned.topic: (await self._cluster.topic(assigned.topic)).id for assigned, _ in wanted}
        await channel.connect()
        version = channel.choose(ApiKey.FETCH, at_most=12 if None in ids.values() else None)
        topics: dict[str, list[FetchPartition]] = {}
        for assigned, partition in wanted:
            topics.setdefault(assigned.topic, []).append(partition)
        request = FetchRequest(
            self._max_wait_ms,
            self._min_bytes,
            MAX_BYTES,
            [(name, ids[name], list(p)) for name, p in topics.items()],
            isolation_level=self._isolation,
            rack_id=self._rack,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        asked = {(assigned.topic, assigned.partition): assigned for assigned, _ in wanted}

        refused: list[tuple[str, Exception]] = []

        def take(body: memoryview) -> None:
            """Decode the response. It runs before the receive buffer is used again, since the records are views of
            it."""
            response = decode_fetch_response(version, body)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            for name, topic_id, partitions in response.topics:
                topic = names.get(topic_id, "") if name is None else name
                for fetched in partitions:
                    found = asked.get((topic, fetched.partition))
                    error = None if found is None else self._keep(found, fetched)
                    if error is not None:
                        refused.append((topic, error))

        await channel.request_raw(
            ApiKey.FETCH,
            version,
            [encode_fetch_request(version, request)],
            take,
            timeout=self._max_wait_ms / 1000 + self._cluster.request_timeout,
        )
        return refused

    def _keep(self, assigned: _Assigned, fetched: FetchedPartition) -> Exception | None:
        """Store the fetched records, or return the error because of which there are none."""
        if self._assigned.get((assigned.topic, assigned.partition)) is not assigned:
            return None
        if fetched.preferred_read_replica >= 0:
            assigned.preferred = fetched.preferred_read_replica
            assigned.preferred_until = self._cluster.runtime.clock.monotonic() + PREFERRED_FOR
            return None
        if fetched.error_code and assigned.preferred >= 0:
            # A follower may lag behind: the leader decides whether the offset is out of range.
            assigned.preferred = -1
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reset is not None:
            assigned.offset, assigned.epoch = None, -1
            return None
        if fetched.error_code:
            message = f"{assigned.topic}-{assigned.partition} cannot be read from offset {assigned.offset} on"
            return KafkaError(ErrorCode(fetched.error_code), message)
        data, start = fetched.records, assigned.offset
        if fetched.diverging_epoch is not None and start is not None:
            # The consumed records are not in the leader's log: continue where the logs diverge.
            assigned.epoch, end = fetched.diverging_epoch
            assigned.offset = min(start, end) if end >= 0 else None
            return None
        if data is None or start is None:
            return None
        assert isinstance(data, bytes | bytearray | memoryview)
        view = memoryview(data)
        try:
            records, assigned.offset = read_records(
                assigned.topic, assigned.partition, view, start, fetched.aborted or ()
            )
        except CorruptBatch as error:
            return error  # the other partitions of the answer are kept
        if assigned.offset > start:
            assigned.epoch = max(batch.leader_epoch for batch in iter_batches(view))
        assigned.records.extend(records)
        return None

    def _note(self, error: Exception, topic: str) -> None:
        """Forget the topic's metadata, so that the next fetch requests them again. An error that is not retriable is
        raised by the next poll."""
        self._cluster.forget_topic(topic)
        if isinstance(error, KafkaError) and not retriable(error.code):
            self._failure = error
        elif isinstance(error, CorruptBatch):
            self._failure = KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))


def read_records(
    topic: str, partition: int, data: memoryview, start: int, aborted: Sequence[AbortedTransaction] = ()
) -> tuple[list[ConsumedRecord], int]:
    """Return the records from offset ``start`` on in a fetched slice, and the offset after the last complete batch.

    Control batches and the records of ``aborted`` transactions are skipped, an incomplete batch at the end is ignored.
    Raises CorruptBatch.
    """
    found: list[ConsumedRecord] = []
    next_offset = start
    filtered = AbortedBatches(aborted)
    for batch in iter_batches(data):
        batch.verify_crc()
        next_offset = max(next_offset, batch.next_offset)
        if filtered.skips(batch) or batch.is_control:
            continue
        appended = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        for record in iter_records(batch):
            offset = offset_of(batch, record)
            if offset >= start:
                found.append(
                    ConsumedRecord(
                        topic,
                        partition,
                        offset,
                        timestamp_of(batch, record),
                        record.key,
                        record.value,
                        record.headers,
                        batch.leader_epoch,
                        appended,
                    )
                )
    return found, next_offset


class AbortedBatches:
    """Finds the batches of aborted transactions among the batches of a fetched slice, in the order of their offsets."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._next = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._producers: set[int] = set()
        """The producers whose transaction at this point of the log is aborted."""

    def skips(self, batch: BatchView) -> bool:
        """Whether the next batch belongs to an aborted transaction. Its abort marker ends the transaction."""
        while self._next and self._next[0].first_offset < batch.next_offset:
            self._producers.add(self._next.popleft().producer_id)
        if batch.producer_id not in self._producers or not batch.is_transactional:
            return False
        if batch.is_control:
            self._producers.discard(batch.producer_id)
        return True
