"""Downloads the log of a segment in the tier to this broker's disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import RemoteStorageError

PIECE: Final = 4 << 20
"""Bytes that are fetched at once."""


async def _at_once(_amount: int) -> None:
    pass


async def download_log(
    tier: Tier,
    segment: RemoteLogSegmentMetadata,
    path: str,
    *,
    start: int = 0,
    end: int | None = None,
    throttle: Callable[[int], Awaitable[None]] = _at_once,
) -> int:
    """Write the bytes from ``start`` to ``end`` (exclusive; None: all) to a new file; return how many there are.
    ``throttle`` is awaited with the number of bytes after each fetch. Raises RemoteStorageError, OSError."""
    disk, position, end = tier.runtime.disk, start, segment.size if end is None else end
    file = await disk.offload(disk.open, path, create=True)
    try:
        while position < end:
            data = await (await tier.storage.fetch(segment, position, min(position + PIECE, end) - 1)).read()
            if not data:
                raise RemoteStorageError(f"the log of segment {segment.id} ends at {position}, before {end}")
            await disk.offload(file.append, [data])
            position += len(data)
            await throttle(len(data))
        return file.size
    finally:
        file.close()
