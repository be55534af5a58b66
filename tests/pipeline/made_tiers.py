"""Tiers in real folders, made from batches without a broker, optionally with the brokers' segment metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import pack
from uuid import UUID

from milena.protocol.records.batch import Codec
from milena.protocol.records.record_cursor import Header
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId
from milena.storage.files.checkpoints import encode_epochs, encode_offsets, encode_partition_metadata
from milena.storage.files.producer_snapshot import encode_snapshot
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.storage.state.producer_state import ProducerEntry, ProducerState
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.serialization import MetadataEvent, serialize
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)
from milena.tiered.store.tier_names import object_path

TIME = 1_700_000_000_000
"""Timestamp of the record with offset 0. Each following record is one second later."""
NO_HEADERS: tuple[Header, ...] = ()


@dataclass
class Batch:
    """A batch of records from offset ``first`` on, with values ``v<offset>`` and keys ``k<offset modulo 10>``."""

    first: int
    count: int
    epoch: int = 0
    codec: Codec = Codec.NONE
    producer: tuple[int, int, int] | None = None
    """Producer id, producer epoch and base sequence."""
    transactional: bool = False
    control: bool = False
    headers: tuple[Header, ...] = NO_HEADERS
    size: int = 0
    """Values are padded to so many bytes."""

    def bytes(self) -> bytes:
        builder = BatchBuilder()
        for offset in range(self.first, self.first + self.count):
            value = b"v%d" % offset
            builder.append(
                timestamp=TIME + 1000 * offset,
                key=b"\0\0\0\1" if self.control else b"k%d" % (offset % 10),
                value=pack(">hi", 0, 0) if self.control else value + b"." * (self.size - len(value)),
                headers=self.headers,
            )
        more: dict[str, object] = {}
        if self.producer is not None:
            known, epoch, sequence = self.producer
            more = {"producer_id": ProducerId(known), "producer_epoch": ProducerEpoch(epoch), "base_sequence": sequence}
        return builder.build(
            codec=self.codec,
            base_offset=Offset(self.first),
            leader_epoch=LeaderEpoch(self.epoch),
            transactional=self.transactional,
            control=self.control,
            **more,  # type: ignore[arg-type]
        )


@dataclass
class MadeTier:
    """A tier's folder, and the segment metadata events that brokers would have published."""

    folder: Path
    events: list[MetadataEvent] = field(default_factory=list)
    made: int = 0

    def partition(self, topic: str = "orders", number: int = 0) -> TopicIdPartition:
        return TopicIdPartition(UUID(int=sum(topic.encode()) << 70 | 7), topic, number)

    def add(
        self,
        batches: Sequence[Batch],
        *,
        topic: str = "orders",
        number: int = 0,
        epochs: Mapping[int, int] | None = None,
        aborted: Sequence[tuple[int, int, int]] = (),
        open_at: int | None = None,
        end: int | None = None,
    ) -> RemoteLogSegmentMetadata:
        """Add a segment of these batches, with an index entry for each. ``epochs``: start offsets of the leader epochs
        up to this segment; ``aborted``: producer id, first and last offset of aborted transactions; ``open_at``: first
        offset of a transaction that does not end in this segment."""
        self.made += 1
        start = batches[0].first
        data, offsets, times = bytearray(), bytearray(), bytearray()
        for batch in batches:
            last = batch.first + batch.count - 1
            if data:
                offsets += pack(">ii", last - start, len(data))
            times += pack(">qi", TIME + 1000 * last, last - start)
            data += batch.bytes()
        final = batches[-1].first + batches[-1].count - 1 if end is None else end
        known = LeaderEpochCache(
            [EpochEntry(LeaderEpoch(epoch), Offset(at)) for epoch, at in (epochs or {0: 0}).items()]
        )
        within = known.entries_in_range(Offset(start), Offset(final + 1))
        segment = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(self.partition(topic, number), UUID(int=self.made)),
            Offset(start),
            Offset(final),
            NodeId(1),
            TIME + 1000 * (batches[-1].first + batches[-1].count - 1),
            TIME,
            tuple(EpochEntry(epoch, max(at, Offset(start))) for epoch, at in within),
            len(data),
            None,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            not aborted,
        )
        producers = ProducerState()
        if open_at is not None:
            producers.load([(ProducerId(5), ProducerEntry(ProducerEpoch(0), 0, TIME, Offset(open_at), []))])
        objects = {
            ".log": bytes(data),
            ".index": bytes(offsets),
            ".timeindex": bytes(times),
            ".snapshot": encode_snapshot(producers),
            ".leader_epoch_checkpoint": encode_epochs(known.entries),
        }
        if aborted:
            objects[".txnindex"] = b"".join(pack(">hqqqq", 0, *one, one[2] + 1) for one in aborted)
        for suffix, content in objects.items():
            path = self.folder / object_path(segment, suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.events += events_of(segment)
        return segment

    def log(self, segment: RemoteLogSegmentMetadata) -> Path:
        return self.folder / object_path(segment, ".log")

    def remove(self, segment: RemoteLogSegmentMetadata) -> None:
        for path in self.log(segment).parent.glob(self.log(segment).stem + ".*"):
            path.unlink()

    def finished(self, segment: RemoteLogSegmentMetadata) -> None:
        """Add the event that the copy of a segment has finished."""
        self.events += events_of(replace(segment))

    def deleted(self, segment: RemoteLogSegmentMetadata) -> None:
        """Remove a segment as retention does, with its events."""
        self.remove(segment)
        for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
            self.events.append(RemoteLogSegmentUpdate(segment.segment_id, NodeId(1), TIME, None, state))

    def replica(self, folder: Path, batches: Sequence[Batch], *, topic: str = "orders", log_start: int = 0) -> None:
        """Write a replica of partition 0 whose local log has these batches."""
        place = folder / f"{topic}-0"
        place.mkdir(parents=True)
        (place / "partition.metadata").write_bytes(encode_partition_metadata(self.partition(topic).topic_id))
        local_start = Offset(batches[0].first if batches else log_start)
        (place / "leader-epoch-checkpoint").write_bytes(encode_epochs([EpochEntry(LeaderEpoch(0), local_start)]))
        (place / f"{local_start:020d}.log").write_bytes(b"".join(batch.bytes() for batch in batches))
        starts = {(topic, 0): Offset(log_start)}
        (folder / "log-start-offset-checkpoint").write_bytes(encode_offsets(starts))

    def metadata(self, folder: Path, *, values: Sequence[bytes] = ()) -> Path:
        """Write a log directory with the metadata topic: all events, then records with ``values``. Return its path."""
        log = folder / f"{REMOTE_LOG_METADATA_TOPIC}-0" / f"{0:020d}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        (folder / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
        data = bytearray()
        for offset, value in enumerate([*map(serialize, self.events), *values]):
            builder = BatchBuilder()
            builder.append(timestamp=TIME, value=value)
            data += builder.build(base_offset=Offset(offset), leader_epoch=LeaderEpoch(0))
        log.write_bytes(data)
        return folder


def run(first: int, end: int, *, by: int = 10, **more: object) -> list[Batch]:
    """Return batches of ``by`` records with the offsets ``first`` to ``end`` (exclusive)."""
    return [Batch(at, min(by, end - at), **more) for at in range(first, end, by)]  # type: ignore[arg-type]
