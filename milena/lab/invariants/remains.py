"""Determines which committed records a replica still has on its disk after a fault, so that their promises hold."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from milena.lab.invariants.ledger import CommittedBatch, Ledger
from milena.lab.invariants.log_cursor import batches_in
from milena.lab.world.disk import Storage
from milena.protocol.records.crc import crc32c
from milena.storage.files.names import LOG

_SMALLEST: Final = 61
"""Bytes of a batch without records."""
_CRC_COVERS_FROM: Final = 21
"""The position in a batch from which the CRC covers the bytes."""


def remains(storage: Storage, name: str, ledger: Ledger) -> int:
    """Return the offset below which the log ``name`` has all committed batches, complete and unchanged. Records below
    its first segment were deleted, or are in the tier."""
    folders = [path for path in storage.folders if posixpath.basename(path) == name]
    segments = _segments(storage, folders[0]) if len(folders) == 1 else []
    if not segments:
        return 0
    found = {batch.base: batch for _, data in segments for batch in _whole(data)}
    for batch in ledger.batches():
        if batch.last >= segments[0][0] and found.get(batch.base) != batch:
            return batch.base
    return ledger.end


def whole_until(storage: Storage, name: str) -> int:
    """Like ``remains``, for a compacted log, in which records are missing: return the offset of the first torn batch,
    or the log end."""
    folders = [path for path in storage.folders if posixpath.basename(path) == name]
    end = 0
    for base, data in _segments(storage, folders[0]) if len(folders) == 1 else []:
        end, size = max(end, base), 0
        for batch in _whole(data):
            end, size = batch.last + 1, size + batch.size
        if size < len(data):
            break
    return end


def _segments(storage: Storage, folder: str) -> list[tuple[int, bytearray]]:
    """Return base offset and bytes of each segment, in order."""
    named = (posixpath.splitext(path) for path in storage.files if posixpath.dirname(path) == folder)
    bases = [posixpath.basename(stem) for stem, suffix in named if suffix == LOG]
    return [(int(base), storage.files[f"{folder}/{base}{LOG}"].data) for base in sorted(bases) if base.isdigit()]


def _whole(data: bytearray) -> Iterator[CommittedBatch]:
    """Yield the batches of a segment before the first torn one."""
    position = 0
    for batch in batches_in(data):
        content = bytes(data[position + _CRC_COVERS_FROM : position + batch.size])
        position += batch.size
        if batch.size < _SMALLEST or position > len(data) or crc32c(content) != batch.crc:
            return
        yield batch
