"""Brokers that clean segments of the tier as a scenario requests: which records are kept, the cleaner offsets, and the
leader epoch of the publication, even long after the leader was replaced (KIP-1272, a draft)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from struct import Struct
from typing import Final
from uuid import UUID

from milena.broker.server import Broker
from milena.config.node_config import NodeConfig
from milena.node.serving.lab_catalog import NOT_UNDONE, PARTITION, TOPIC
from milena.node.serving.lab_commands import LabCommands
from milena.node.serving.lab_descriptions import Argument, LabCommandDescription
from milena.protocol.records.batch import BatchView
from milena.protocol.types import LeaderEpoch, Offset
from milena.protocol.uuids import from_text, to_text
from milena.runtime.context import Runtime
from milena.storage.files.checkpoints import encode_epochs
from milena.tiered.cleaning.window import map_of_pass
from milena.tiered.metadata.descriptions import description_of
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.reading.log_contents import batches_of
from milena.tiered.segments.cleaner_offsets import CleanerOffset
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import IndexType, SegmentFiles
from milena.tiered.work.deletion import update_of
from milena.tiered.work.tier_manager import RemoteLogManager

_COPIED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
TIME_ENTRY: Final = Struct(">qi")
"""Of a time index: a timestamp (ms), and an offset relative to the segment's first."""
READY: Final = 20.0
"""Seconds within which a broker that has just started must have the metadata."""
FOLDER: Final = "cleaned-by-hand"
"""The folder for work files, next to the partition's folder."""


CLEAN: Final = LabCommandDescription(
    "clean",
    "Copy the readable segments of these offsets as one, with the log's own batches of the offsets to keep.",
    (
        TOPIC,
        PARTITION,
        Argument("first", "integer", "the first offset"),
        Argument("last", "integer", "the last offset"),
        Argument("keep", "array", "the base offsets of the batches to keep"),
        Argument(
            "cleaner_offsets", "array", "the map: pairs of leader epoch and offset; with one, it replaces the segments"
        ),
        Argument("leader_epoch", "integer", "the leader epoch of the publication"),
        Argument("to", "integer", "in place of a map: as if this leader had cleaned up to there", None),
    ),
    returns="`id` of the segment, which is not finished",
    undo=NOT_UNDONE,
)
FINISH: Final = LabCommandDescription(
    "finish",
    "Publish that the copy of a segment is finished.",
    (
        TOPIC,
        PARTITION,
        Argument("id", "string", "the segment's id"),
        Argument("leader_epoch", "integer", "the leader epoch of the publication"),
    ),
    returns="`id`",
    undo=NOT_UNDONE,
)


class HandCleaner(Broker):
    """Has the commands ``clean`` and ``finish`` in addition to those of Milena's brokers."""

    def __init__(self, runtime: Runtime, config: NodeConfig) -> None:
        super().__init__(runtime, config)
        self._made: dict[str, RemoteLogSegmentMetadata] = {}
        """Segments by id: a fenced leader does not find them in its metadata."""

    @cached_property
    def lab_commands(self) -> LabCommands:
        lab_commands = super().lab_commands
        lab_commands.add("clean", self._clean, CLEAN)
        lab_commands.add("finish", self._finish, FINISH)
        return lab_commands

    async def _clean(
        self,
        topic: str,
        partition: int,
        first: int,
        last: int,
        keep: Sequence[int],
        cleaner_offsets: Sequence[Sequence[int | None]],
        leader_epoch: int,
        to: int | None = None,
    ) -> dict[str, str]:
        tier, place = await self._tier_of(topic, partition)
        readable = [one for one in tier.metadata.cache(place).segments() if one.state is _COPIED]
        sources = [one for one in readable if first <= one.start_offset and one.end_offset <= last]
        log = self.partitions.get(topic, partition).online_log
        batches: dict[Offset, BatchView] = {}
        for source in sources:
            async for _, batch in batches_of(tier.storage, source):
                is_ours = batch.leader_epoch == log.epochs.epoch_for_offset(batch.base_offset)
                if batch.base_offset in keep and is_ours:
                    batches[batch.base_offset] = batch
        data = b"".join(bytes(batches[offset].memory) for offset in sorted(batches))
        latest = max(batches.values(), key=lambda batch: batch.max_timestamp)
        times = TIME_ENTRY.pack(latest.max_timestamp, latest.last_offset - first)
        if to is None:
            offsets = tuple(
                CleanerOffset(LeaderEpoch(epoch or 0), None if offset is None else Offset(offset))
                for epoch, offset in cleaner_offsets
            )
        else:
            leads_in = self.partitions.get(topic, partition).leader_epoch
            cache = self._judged(tier, place)
            offsets = map_of_pass(cache, leads_in, Offset(to), leader_epochs=log.epochs.entries)
        newest = max(sources, key=lambda one: (one.end_offset, one.id.int))
        metadata = replace(
            newest,
            segment_id=RemoteLogSegmentId(place, tier.runtime.random.uuid()),
            start_offset=Offset(first),
            end_offset=Offset(last),
            max_timestamp_ms=latest.max_timestamp,
            epochs=tuple(log.epochs.entries_in_range(Offset(first), Offset(last + 1))),
            broker_id=tier.node_id,
            event_timestamp_ms=tier.runtime.clock.time_ms(),
            size=len(data),
            custom_metadata=None,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            leader_epoch=LeaderEpoch(leader_epoch),
            cleaned=offsets,
            replaces=tuple(one.id for one in sources) if offsets else (),
            copied=False,
        )
        await tier.metadata.add(metadata)
        epochs = encode_epochs(log.epochs.entries_in_range(Offset(-1), Offset(last + 1)))
        files = await self._files(tier, newest, metadata.id, data, times, epochs)
        await tier.storage.copy(metadata, replace(files, description=description_of(metadata)))
        self._made[to_text(metadata.id)] = metadata
        return {"id": to_text(metadata.id)}

    async def _finish(self, topic: str, partition: int, id: str, leader_epoch: int) -> dict[str, str]:
        tier, place = await self._tier_of(topic, partition)
        metadata = self._made.get(id) or tier.metadata.cache(place).get(from_text(id))
        if metadata is None:
            raise ValueError(f"no segment {id}")
        await tier.metadata.update(update_of(tier, metadata, _COPIED, LeaderEpoch(leader_epoch)))
        return {"id": id}

    def _judged(self, tier: Tier, place: TopicIdPartition) -> RemoteLogMetadataCache:
        """The cache whose maps are judged."""
        return tier.metadata.cache(place)

    async def _tier_of(self, topic: str, partition: int) -> tuple[Tier, TopicIdPartition]:
        """Return the tier when its metadata is known."""
        place = TopicIdPartition(self.partitions.get(topic, partition).topic_id, topic, partition)
        if self.tier is None or not await self.tier.tier.metadata.wait_ready(place, READY):
            raise ValueError("there is no tier, or its metadata is not known")
        return self.tier.tier, place

    async def _files(
        self, tier: Tier, source: RemoteLogSegmentMetadata, segment: UUID, data: bytes, times: bytes, epochs: bytes
    ) -> SegmentFiles:
        """Write the files of a cleaned segment to this broker's disk. The offset index is empty, so that it is read
        from its start; the producers are those of its last source."""
        disk = tier.runtime.disk
        folder = f"{self.logs.dirs[0].path}/{FOLDER}"
        path = f"{folder}/{segment}"
        disk.make_folders(folder)
        snapshot = await tier.storage.fetch_index(source, IndexType.PRODUCER_SNAPSHOT)
        for suffix, content in ((".log", data), (".index", b""), (".timeindex", times), (".snapshot", snapshot)):
            disk.write_atomic(f"{path}{suffix}", content)
        return SegmentFiles(f"{path}.log", f"{path}.index", f"{path}.timeindex", None, f"{path}.snapshot", epochs)


class UnfencedHandCleaner(HandCleaner):
    """Ignores cleaner-offset maps and replacements: of several segments the one cleaned furthest is read, regardless of
    its author."""

    def _judged(self, tier: Tier, place: TopicIdPartition) -> RemoteLogMetadataCache:
        return self._ours(place)

    def _new_tier(self, config: NodeConfig) -> RemoteLogManager | None:
        manager = super()._new_tier(config)
        if manager is not None:
            ours = self._ours = manager.tier.metadata.cache
            manager.tier.metadata.cache = lambda partition: _unfenced(ours(partition))  # type: ignore[method-assign]
        return manager


def _unfenced(cache: RemoteLogMetadataCache) -> RemoteLogMetadataCache:
    found = RemoteLogMetadataCache.restored(cache.segments(), cache.highest_offsets(), cache.fence_epoch)
    found.cleanings, found.changes = Cleanings(), cache.changes
    return found
