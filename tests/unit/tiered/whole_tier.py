"""A tier of real batches in a simulated folder, with its metadata topic, for tests that damage it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from struct import pack
from typing import Any
from uuid import UUID

from milena.lab.world.world import World, simulate
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Disk
from milena.storage.files.checkpoints import encode_epochs
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.tiered.metadata.descriptions import description_of
from milena.tiered.metadata.serialization import MetadataEvent, serialize
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.offline.cluster_restore import NO_PRODUCERS
from milena.tiered.offline.epoch_history import lineage_of_tier
from milena.tiered.offline.metadata_history import MetadataHistory, read_history
from milena.tiered.offline.verification import Verification, verify
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.store import tier_names
from milena.tiered.store.local_tier import LocalTier
from tests.unit.tiered.segments import PARTITION, epochs, offsets, segment

FOLDER = "/shared/tier"
DATA = "/data"
FIRST_TIME = 1_000_000
VALUE = b"v" * 100


@dataclass(frozen=True)
class Cleaned:
    """What a cleaning has done: ``kept`` are the offsets that it left, ``replaces`` numbers of segments."""

    entries: Mapping[int, int | None]
    replaces: Collection[int] = ()
    kept: Collection[int] | None = None
    described: bool = True
    """Whether that is kept beside the segment."""


NOT_CLEANED = Cleaned({}, described=False)


def log_bytes(
    start: int, end: int, starts: Mapping[int, int], kept: Collection[int] | None = None
) -> tuple[bytes, list[int]]:
    """A batch for each offset from ``start`` to ``end`` (or for those that were ``kept``), and where it lies."""
    known = LeaderEpochCache(epochs(starts))
    data, positions = bytearray(), []
    for offset in range(start, end + 1) if kept is None else sorted(kept):
        builder = BatchBuilder()
        builder.append(timestamp=FIRST_TIME + offset, value=VALUE)
        positions.append(len(data))
        epoch = known.epoch_for_offset(Offset(offset))
        data += builder.build(base_offset=Offset(offset), leader_epoch=LeaderEpoch(0 if epoch is None else epoch))
    return bytes(data), positions


def write_segment(
    disk: Disk,
    folder: str,
    number: int,
    start: int,
    end: int,
    starts: Mapping[int, int],
    *,
    checkpoint: Mapping[int, int] | None = None,
    partition: TopicIdPartition = PARTITION,
    cleaned: Cleaned = NOT_CLEANED,
) -> RemoteLogSegmentMetadata:
    """Segment ``uuid-<number>`` in the tier in ``folder``. ``checkpoint``: the whole log's epochs until its end."""
    data, positions = log_bytes(start, end, starts, cleaned.kept)
    kept = range(start, end + 1) if cleaned.kept is None else sorted(cleaned.kept)
    newest = FIRST_TIME + kept[-1] if kept else -1
    metadata = replace(
        segment(number, start, end, starts, partition=partition, max_timestamp_ms=newest),
        size=len(data),
        cleaned=offsets(cleaned.entries),
        replaces=tuple(UUID(int=one) for one in cleaned.replaces),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    objects = {
        ".log": data,
        ".index": b"".join(
            [pack(">ii", at - start, position) for at, position in zip(kept, positions, strict=True)][1:]
        ),
        ".timeindex": pack(">qi", newest, kept[-1] - start) if kept else b"",
        ".snapshot": NO_PRODUCERS,
        ".leader_epoch_checkpoint": encode_epochs(epochs(starts if checkpoint is None else checkpoint)),
    }
    disk.make_folders(f"{folder}/{tier_names.partition_folder(partition)}")
    for suffix, content in objects.items():
        disk.write_atomic(f"{folder}/{tier_names.object_path(metadata, suffix)}", content)
    if cleaned.described:
        announced = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
        disk.make_folders(f"{folder}/{tier_names.description_folder(partition)}")
        path = tier_names.description_path(partition, metadata.start_offset, metadata.id)
        disk.write_atomic(f"{folder}/{path}", description_of(announced))
    return metadata


class WholeTier:
    """``put`` stores and lists segments; files that are written directly are not listed."""

    def __init__(self, world: World) -> None:
        self.runtime = world.machine("broker").start()
        self.disk = self.runtime.tier_disk
        self.storage = LocalTier(self.runtime, FOLDER, "test")
        self.values: list[bytes] = []
        """Of the metadata topic's only partition."""

    def put(
        self,
        number: int,
        start: int,
        end: int,
        starts: Mapping[int, int],
        *,
        checkpoint: Mapping[int, int] | None = None,
        partition: TopicIdPartition = PARTITION,
        cleaned: Cleaned = NOT_CLEANED,
        listed: bool = True,
    ) -> RemoteLogSegmentMetadata:
        """As ``write_segment``; ``listed``: also in the metadata topic."""
        metadata = write_segment(
            self.disk,
            FOLDER,
            number,
            start,
            end,
            starts,
            checkpoint=checkpoint,
            partition=partition,
            cleaned=cleaned,
        )
        if listed:
            self.tell(*events_of(metadata))
        return metadata

    def path(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        return f"{FOLDER}/{tier_names.object_path(metadata, suffix)}"

    def description(self, metadata: RemoteLogSegmentMetadata) -> str:
        """The path of what is kept of it."""
        return f"{FOLDER}/{tier_names.description_path(metadata.partition, metadata.start_offset, metadata.id)}"

    def write(self, metadata: RemoteLogSegmentMetadata, suffix: str, data: bytes) -> None:
        path = self.path(metadata, suffix)
        self.disk.make_folders(path.rpartition("/")[0])
        self.disk.write_atomic(path, data)

    def read(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> bytes:
        return self.disk.read(self.path(metadata, suffix))

    def remove(self, metadata: RemoteLogSegmentMetadata, *suffixes: str) -> None:
        for suffix in suffixes or tier_names.SUFFIXES:
            self.disk.remove(self.path(metadata, suffix))

    def tell(self, *events: MetadataEvent) -> None:
        self.values += map(serialize, events)

    def history(self) -> MetadataHistory:
        """As read from the log that the values are written to."""
        builder = BatchBuilder()
        for value in self.values:
            builder.append(timestamp=FIRST_TIME, value=value)
        folder = f"{DATA}/__remote_log_metadata-0"
        self.runtime.disk.make_folders(folder)
        self.runtime.disk.write_atomic(f"{folder}/{0:020d}.log", builder.build() if self.values else b"")
        return read_history(self.runtime.disk, [DATA])

    async def verified(self, lineage: Lineage | None = None, *, with_metadata: bool = True) -> Verification:
        """What a verification finds, with the epochs of ``lineage`` or those of the tier itself."""

        async def lineage_of(_: TopicIdPartition, segments: Sequence[RemoteLogSegmentMetadata]) -> Lineage | None:
            return lineage or await lineage_of_tier(self.storage, segments)

        return await verify(self.storage, self.history() if with_metadata else None, lineage_of)


def lineage(starts: Mapping[int, int], log_end: int, log_start: int | None = None) -> Lineage:
    return Lineage(epochs(starts), Offset(log_end), "a test", None if log_start is None else Offset(log_start))


def on_a_tier(body: Callable[[WholeTier], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that gets an empty tier."""

    async def run(world: World) -> None:
        tier = WholeTier(world)
        await tier.storage.start()
        await body(tier)

    def test() -> None:
        simulate(run, seed=1)

    test.__name__ = test.__qualname__ = body.__name__
    test.__module__ = body.__module__
    return test
