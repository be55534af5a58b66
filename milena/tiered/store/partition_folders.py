"""The folders of partitions in a folder tier: created with the first segment, removed with the last one.

Brokers do so concurrently and without coordination: a folder may disappear as soon as it is empty.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from uuid import UUID

from milena.runtime.disk import Disk
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store import tier_names
from milena.tiered.store.remote_storage import LOG_SUFFIX

ATTEMPTS: Final = 5
"""The number of attempts to create a folder that disappears at once."""


def publish(disk: Disk, tier: str, copied: str, metadata: RemoteLogSegmentMetadata, suffixes: list[str]) -> None:
    """Rename the objects in the folder ``copied`` to their names. The others are on disk before the log appears, which
    makes the segment exist. Blocks. Raises OSError."""
    home = f"{tier}/{tier_names.partition_folder(metadata.partition)}"
    # If a repeated copy fails, the first one must stay intact.
    is_there = disk.exists(f"{tier}/{tier_names.object_path(metadata, LOG_SUFFIX)}")
    published: list[str] = []
    try:
        for suffix in suffixes:
            path = f"{tier}/{tier_names.object_path(metadata, suffix)}"
            if suffix == LOG_SUFFIX:
                disk.sync_folder(home)
            published.append(path)
            if len(published) == 1:
                _enter(disk, tier, home, f"{copied}/{suffix[1:]}", path)
            else:
                disk.rename(f"{copied}/{suffix[1:]}", path, sync=False)
        disk.sync_folder(home)
    except OSError:
        for path in reversed(published if not is_there else ()):
            disk.remove(path)
        raise
    disk.remove_tree(copied)


def _enter(disk: Disk, tier: str, home: str, source: str, path: str) -> None:
    """Rename the first object into its folder, which other brokers may remove as empty until then."""
    for attempt in range(ATTEMPTS):
        if not disk.exists(home):
            disk.list(f"{tier}/{tier_names.ROOT}")  # fails if it is not mounted: else the mount point would be filled
            disk.make_folders(home)
            disk.sync_folder(home.rpartition("/")[0])
        try:
            disk.rename(source, path, sync=False)
            return
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1 or disk.exists(home):
                raise


def describe(disk: Disk, tier: str, written: str, metadata: RemoteLogSegmentMetadata) -> None:
    """Rename the file ``written`` to the segment's description, on disk when this returns. Blocks. Raises OSError."""
    path = f"{tier}/{tier_names.description_path(metadata.partition, metadata.start_offset, metadata.id)}"
    if not disk.exists(f"{tier}/{tier_names.DESCRIPTIONS}"):
        disk.list(f"{tier}/{tier_names.ROOT}")  # fails if it is not mounted
        disk.make_folders(f"{tier}/{tier_names.DESCRIPTIONS}")
        disk.sync_folder(tier)
    home = path.rpartition("/")[0]
    _enter(disk, tier, home, written, path)
    disk.sync_folder(home)


def forget(disk: Disk, tier: str, partition: TopicIdPartition, start_offset: int, segment: UUID) -> None:
    """Remove a segment's description, if it has one, and the folder if it is empty. Blocks. Raises OSError."""
    home = f"{tier}/{tier_names.description_folder(partition)}"
    if disk.exists(home):
        disk.remove(f"{tier}/{tier_names.description_path(partition, start_offset, segment)}")
        with suppress(OSError):  # others are there
            disk.remove_folder(home)


def descriptions_of(disk: Disk, tier: str, partition: TopicIdPartition) -> list[tuple[int, UUID]]:
    """Return the start offsets and ids of the segments with a description, in order. Blocks. Raises OSError."""
    try:
        names = disk.list(f"{tier}/{tier_names.description_folder(partition)}")
    except FileNotFoundError:
        return []
    found = (tier_names.parse_description(name) for name in names)
    return sorted((one for one in found if one is not None), key=lambda one: (one[0], one[1].bytes))


def delete(disk: Disk, tier: str, partition: TopicIdPartition, start_offset: int, segment: UUID) -> None:
    """Remove the objects of a segment, and the folder if it is empty. Blocks. Raises OSError."""
    root = f"{tier}/{tier_names.ROOT}"
    disk.list(root)
    home = f"{tier}/{tier_names.partition_folder(partition)}"
    if not disk.exists(home):
        return
    for suffix in reversed(tier_names.SUFFIXES):
        disk.remove(f"{home}/{tier_names.object_name(start_offset, segment, suffix)}")
    try:
        disk.sync_folder(home)
    except FileNotFoundError:
        disk.list(root)  # another broker has removed it, or the whole tier is missing
        return
    with suppress(OSError):  # it has other segments; an empty folder that remains costs nothing
        disk.remove_folder(home)


def names_of(disk: Disk, tier: str, partition: TopicIdPartition) -> dict[tuple[int, UUID], list[str]]:
    """Return the suffixes of the objects of each segment, by start offset and id, in order. Blocks. Raises OSError."""
    home = f"{tier}/{tier_names.partition_folder(partition)}"
    try:
        names = disk.list(home)
    except FileNotFoundError:
        names = []
    found: dict[tuple[int, UUID], list[str]] = {}
    for name in names:
        parsed = tier_names.parse_object(name)
        if parsed is not None:
            found.setdefault((parsed.start_offset, parsed.id), []).append(parsed.suffix)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1].bytes)))
