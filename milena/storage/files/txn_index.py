"""The transaction index of a segment: the transactions with an abort marker in the segment.

Entries of 34 bytes: version int16 (0), producer id, first offset, offset of the marker, and the last stable offset
after the marker, all int64. The entries are in the order of their markers. The file exists only if there is one.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from milena.protocol.types import Offset, ProducerId
from milena.runtime.disk import Disk, File
from milena.storage.files.index_file import CorruptIndex

_ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
_VERSION: Final = 0
_LAST: Final = Struct(">q")
_LAST_POSITION: Final = 18
"""The position of the marker's offset in an entry."""
_PIECE: Final = 64
"""The number of entries that a search reads at a time."""


class AbortedTxn(NamedTuple):
    """One aborted transaction; its records are in ``[first_offset, last_offset]``, where the last is the marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


def append_aborted(disk: Disk, path: str, entry: AbortedTxn) -> None:
    """Add an entry to the index at ``path``, which is created if it is missing. Raises OSError."""
    file = disk.open(path, create=True)
    try:
        file.append((_ENTRY.pack(_VERSION, *entry),))
    finally:
        file.close()


def read_aborted(disk: Disk, path: str, *, growing: bool = False) -> list[AbortedTxn]:
    """Return all entries, in the order of their markers; none if the file is missing. ``growing``: another process may
    be writing an entry, so an incomplete one at the end is skipped. Raises CorruptIndex."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return []
    return decode_aborted(data[: len(data) - len(data) % ENTRY_SIZE] if growing else data, path)


def decode_aborted(data: bytes, path: str) -> list[AbortedTxn]:
    """Decode all entries. ``path`` is for the error message. Raises CorruptIndex."""
    if len(data) % ENTRY_SIZE:
        raise CorruptIndex(f"{path} has {len(data)} bytes, which is not a multiple of {ENTRY_SIZE}")
    entries = []
    for version, producer, first, last, stable in _ENTRY.iter_unpack(data):
        if version > _VERSION or last < first:
            raise CorruptIndex(f"{path} has an entry of version {version} from {first} to {last}")
        entries.append(AbortedTxn(ProducerId(producer), Offset(first), Offset(last), Offset(stable)))
    return entries


def truncate_aborted(disk: Disk, path: str, offset: Offset) -> None:
    """Remove the entries whose markers are at ``offset`` or later."""
    entries = read_aborted(disk, path)
    kept = sum(entry.last_offset < offset for entry in entries)
    if kept < len(entries):
        file = disk.open(path)
        try:
            file.truncate(kept * ENTRY_SIZE)
        finally:
            file.close()


def overlapping(entries: list[AbortedTxn], start: Offset, upper: Offset) -> tuple[list[AbortedTxn], bool]:
    """Return the aborted transactions with records in ``[start, upper)``, and whether there can be no more of them in
    later segments."""
    aborted = []
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < upper:
            aborted.append(entry)
        if entry.last_stable_offset >= upper:  # all transactions that begin before ``upper`` have ended
            return aborted, True
    return aborted, False


def read_last_aborted(disk: Disk, path: str) -> int:
    """Return the offset of the last marker in the index at ``path``, -1 without one. Raises OSError."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return -1
    try:
        count = file.size // ENTRY_SIZE
        return _last_offset(file, count - 1) if count else -1
    finally:
        file.close()


def read_overlapping(disk: Disk, path: str, start: Offset, upper: Offset) -> tuple[list[AbortedTxn], bool]:
    """Return the result of ``overlapping`` for the index at ``path``, of which only the entries are read that may be
    in it. Raises CorruptIndex, OSError."""
    file = disk.open(path)
    try:
        return _search(file, start, upper)
    finally:
        file.close()


def _search(file: File, start: Offset, upper: Offset) -> tuple[list[AbortedTxn], bool]:
    count = file.size // ENTRY_SIZE
    first = bisect_left(range(count), int(start), key=lambda index: _last_offset(file, index)) if count > _PIECE else 0
    aborted: list[AbortedTxn] = []
    for piece in range(first, count, _PIECE):
        entries = decode_aborted(file.pread(min(_PIECE, count - piece) * ENTRY_SIZE, piece * ENTRY_SIZE), file.path)
        some, complete = overlapping(entries, start, upper)
        aborted += some
        if complete:
            return aborted, True
    return aborted, False


def _last_offset(file: File, index: int) -> int:
    (last,) = _LAST.unpack(file.pread(_LAST.size, index * ENTRY_SIZE + _LAST_POSITION))
    return int(last)
