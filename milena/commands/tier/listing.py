"""`milena tier ls`: lists the segments of a tier."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NotRequired, TypedDict

from milena.command_line.options import Values
from milena.command_line.table import say
from milena.commands.tier.cleaning_view import Cleaning, CleaningsShown, remark
from milena.commands.tier.formatting import counted
from milena.commands.tier.opening import Opened, Selection
from milena.protocol.uuids import to_text
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.lineage import is_within_leader_epochs, servable
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import LOG_SUFFIX, StoredSegment


async def show(values: Values, opened: Opened) -> int:
    """Print each partition's segments."""
    chosen = Selection(values.topic)
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    for one in await opened.storage.segments():
        stored.setdefault(one.segment_id.partition, []).append(one)
    partitions = stored.keys() | (opened.history.caches.keys() if opened.history else set())
    found, shown = chosen(partitions), 0
    if not values.json:
        print(opened.description())
    for partition in found:
        plain = await describe(opened, partition, stored.get(partition, []))
        if plain["segments"]:
            plain |= {"tier": opened.place, "metadata": list(opened.metadata)}
            for line in [json.dumps(plain)] if values.json else lines(plain):
                say(line)
            shown += 1
    if not shown and not values.json:
        print("no segments")
    return 0


class ListedSegment(TypedDict):
    """One segment, for ``--json``."""

    id: str
    start_offset: int
    end_offset: int | None
    epochs: list[list[int]]
    state: str | None
    lineage: str | None
    size: int
    broker: int | None
    objects: dict[str, int]
    cleaning: Cleaning | None


class ListedPartition(TypedDict):
    """One partition with its segments, for ``--json``."""

    topic: str
    topic_id: str
    partition: int
    leader_epochs: list[list[int]] | None
    leader_epochs_from: str | None
    fence_epoch: int | None
    """The leader epoch of the partition's highest leader epoch fence; null if it has none."""
    first_dirty_offset: int | None
    """The offset at which the next cleaning starts; null if none was finished."""
    segments: list[ListedSegment]
    tier: NotRequired[str]
    metadata: NotRequired[list[str]]


async def describe(opened: Opened, partition: TopicIdPartition, stored: list[StoredSegment]) -> ListedPartition:
    """Return a partition for ``--json``, with its segments by start offset."""
    listed = opened.history.segments(partition) if opened.history else []
    lineage = await opened.lineage(partition, listed)
    objects = {one.segment_id.id: one for one in stored}
    cache = (opened.history.caches.get(partition) if opened.history else None) or RemoteLogMetadataCache()
    cleanings = CleaningsShown(cache.cleanings, listed)
    segments = [_listed(one, objects.pop(one.id, None), lineage, cleanings.of(one)) for one in listed]
    segments += [_unlisted(one) for one in objects.values()]
    return {
        "topic": partition.topic,
        "topic_id": to_text(partition.topic_id),
        "partition": partition.partition,
        "leader_epochs": _pairs(lineage.epochs) if lineage else None,
        "leader_epochs_from": lineage.source if lineage else None,
        "fence_epoch": None if cache.fence_epoch == UNFENCED else cache.fence_epoch,
        "first_dirty_offset": None if cache.cleaned_to is None else cache.cleaned_to.offset,
        "segments": sorted(segments, key=lambda one: (one["start_offset"], one["id"])),
    }


def _listed(
    segment: RemoteLogSegmentMetadata, stored: StoredSegment | None, lineage: Lineage | None, cleaning: Cleaning
) -> ListedSegment:
    return {
        "id": to_text(segment.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "epochs": _pairs(segment.epochs),
        "state": segment.state.name,
        "lineage": verdict(segment, lineage),
        "size": segment.size,
        "broker": segment.broker_id,
        "objects": dict(sorted(stored.objects.items())) if stored else {},
        "cleaning": cleaning,
    }


def _unlisted(stored: StoredSegment) -> ListedSegment:
    """Return the entry of a segment that has files but no metadata."""
    return {
        "id": to_text(stored.segment_id.id),
        "start_offset": stored.start_offset,
        "end_offset": None,
        "epochs": [],
        "state": None,
        "lineage": None,
        "size": stored.objects.get(LOG_SUFFIX, 0),
        "broker": None,
        "objects": dict(sorted(stored.objects.items())),
        "cleaning": None,
    }


def verdict(segment: RemoteLogSegmentMetadata, lineage: Lineage | None) -> str | None:
    """Return whether a segment is on the log's epoch chain: ``yes``, ``part`` or ``no``; None if the log's epochs are
    not known."""
    if lineage is None:
        return None
    if is_within_leader_epochs(segment, log_end=lineage.log_end, leader_epochs=lineage.epochs):
        return "yes"
    return "part" if servable(segment, log_end=lineage.log_end, leader_epochs=lineage.epochs) else "no"


def _pairs(epochs: Iterable[EpochEntry]) -> list[list[int]]:
    return [[entry.epoch, entry.start] for entry in epochs]


def lines(plain: ListedPartition) -> list[str]:
    """Yield the partition as lines of a table."""
    segments = plain["segments"]
    sizes = [sum(one["objects"].values()) for one in segments]
    name, number = f"{plain['topic']}-{plain['partition']}", counted(len(segments), "segment")
    head = f"{name}  id {plain['topic_id']}  {number}  {sum(sizes)} bytes"
    rows = [head]
    if plain["leader_epochs"] is not None:
        rows.append(f"  leader epochs {_pairs_text(plain['leader_epochs'])}  ({plain['leader_epochs_from']})")
    if plain["fence_epoch"] is not None:
        dirty = plain["first_dirty_offset"]
        clean = "" if dirty is None else f", clean before {dirty}"
        rows.append(f"  fenced in leader epoch {plain['fence_epoch']}{clean}")
    rows.append(f"  {'offsets':<23} {'state':<23} {'lineage':<8}{'bytes':>12}  {'segment':<22}  epochs")
    for one, size in zip(segments, sizes, strict=True):
        end = "?" if one["end_offset"] is None else one["end_offset"]
        state, lineage = one["state"] or "no metadata", one["lineage"] or "?"
        log = one["objects"].get(LOG_SUFFIX, 0)
        files = "" if log == one["size"] else f"  log has {log} of {one['size']} bytes" if log else "  no log"
        files = files if one["objects"] else "  no files"
        remark_text = remark(one["cleaning"]) if one["cleaning"] else ""
        rows.append(
            f"  {one['start_offset']!s:>10} - {end!s:<10} {state:<23} {lineage:<8}{size:>12}  {one['id']}  "
            f"{_pairs_text(one['epochs'])}{files}{f'  {remark_text}' if remark_text else ''}"
        )
    return rows


def _pairs_text(epochs: list[list[int]]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "?"
