"""The indexes of one remote segment, as files of the index cache: names, validation, look-ups (docs/kafka-semantics.md:
The index cache)."""

from __future__ import annotations

from itertools import islice
from operator import le, lt
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from milena.protocol.types import Offset
from milena.protocol.uuids import from_text, to_text
from milena.runtime.disk import Disk
from milena.storage.files.handle_cache import HandleCache
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.names import OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from milena.storage.files.offset_index import OffsetIndex
from milena.storage.files.time_index import TimeIndex
from milena.storage.files.txn_index import AbortedTxn, read_aborted

SUFFIXES: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
_OFFSET_ENTRY: Final = "ii"
_TIME_ENTRY: Final = "qi"
_BLOCK: Final = 1024


class IndexSet(NamedTuple):
    """The names of one segment's files: ``<start offset>_<segment id><suffix>``."""

    start_offset: Offset
    id: UUID

    def file(self, suffix: str) -> str:
        return f"{self.start_offset}_{to_text(self.id)}{suffix}"


class SegmentIndexes:
    """Look-ups in a cached set. Use it on the loop, before the next await after the cache returned it: it may be
    evicted then."""

    __slots__ = ("aborted", "key", "offsets", "size", "times", "used_at")

    def __init__(
        self, disk: Disk, maps: HandleCache, folder: str, key: IndexSet, size: int, aborted: list[AbortedTxn]
    ) -> None:
        self.key = key
        self.size = size
        """Bytes of the three files."""
        self.used_at = 0.0
        """The last use, on the monotonic clock."""
        self.offsets = OffsetIndex(disk, maps, f"{folder}/{key.file(OFFSET_INDEX)}", key.start_offset, exists=True)
        self.times = TimeIndex(disk, maps, f"{folder}/{key.file(TIME_INDEX)}", key.start_offset, exists=True)
        self.aborted = aborted
        """Transactions aborted by markers in the segment."""

    def release(self) -> None:
        """Release the files' memory maps."""
        self.offsets.release()
        self.times.release()


class Checked(NamedTuple):
    """The result of a validation."""

    size: int
    aborted: list[AbortedTxn]


def parse_name(name: str) -> tuple[IndexSet, str] | None:
    """Return the set and the suffix of a file in the cache's folder; None if the name is not that of an index. The
    suffix may be longer than one of ``SUFFIXES``, for example ``.index.deleted``."""
    offset, underscore, rest = name.partition("_")
    text, dot, suffix = rest.partition(".")
    if not underscore or not dot or not offset.isascii() or not offset.isdecimal():
        return None
    try:
        return IndexSet(Offset(int(offset)), from_text(text)), f".{suffix}"
    except ValueError:
        return None


def check(disk: Disk, folder: str, key: IndexSet, log_size: int) -> Checked:
    """Read a set's files whole. Raises CorruptIndex if they are invalid for the segment, FileNotFoundError. Blocks.

    The entries must be ascending: after a power loss there may be zeros in between, which would mislead a look-up.
    """
    offsets = disk.read(f"{folder}/{key.file(OFFSET_INDEX)}")
    times = disk.read(f"{folder}/{key.file(TIME_INDEX)}")
    found, positions = _rising(offsets, _OFFSET_ENTRY, key.file(OFFSET_INDEX))
    if found and (found[0] < 0 or positions[0] < 0 or positions[-1] >= max(log_size, 1)):
        raise CorruptIndex(f"{key.file(OFFSET_INDEX)} points out of a log of {log_size} bytes")
    _, timed = _rising(times, _TIME_ENTRY, key.file(TIME_INDEX))
    if timed and timed[0] < 0:
        raise CorruptIndex(f"{key.file(TIME_INDEX)} begins before its segment")
    path = f"{folder}/{key.file(TXN_INDEX)}"
    txn_size = disk.size(path)
    return Checked(len(offsets) + len(times) + txn_size, read_aborted(disk, path) if txn_size else [])


def _rising(data: bytes, entry: str, name: str) -> tuple[list[int], list[int]]:
    """Return both numbers of all entries. The first must be strictly ascending, and the second must not descend; raises
    CorruptIndex otherwise. A segment of 1 GiB has 260,000 entries, so they are decoded in blocks."""
    one, block = Struct(f">{entry}"), Struct(f">{entry * _BLOCK}")
    if len(data) % one.size:
        raise CorruptIndex(f"{name} has {len(data)} bytes, no multiple of {one.size}")
    flat: list[int] = []
    whole = len(data) - len(data) % block.size
    for part in block.iter_unpack(data[:whole]):
        flat += part
    for part in one.iter_unpack(data[whole:]):
        flat += part
    first, second = flat[::2], flat[1::2]
    if not all(map(lt, first, islice(first, 1, None))) or not all(map(le, second, islice(second, 1, None))):
        raise CorruptIndex(f"{name} is not in order")
    return first, second
