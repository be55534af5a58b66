"""The offset index of a segment: maps some offsets to positions in the log file.

One entry of 8 bytes for about every ``index.interval.bytes``: the last offset of a batch, relative to the segment's
base (int32), and the batch's position in the log file (int32).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from milena.runtime.disk import Disk
from milena.storage.files.handle_cache import HandleCache
from milena.storage.files.index_file import CorruptIndex, IndexFile

_ENTRY: Final = Struct(">ii")
ENTRY_SIZE: Final = _ENTRY.size


class PositionBounds(NamedTuple):
    """The bounds of an index for the position of the batch that contains an offset.

    The batch begins at ``position`` or later. The batch at ``position`` ends at offset ``indexed`` or before; None if
    ``position`` is the start of the segment. The batch begins at ``beyond`` or before. The batch at ``beyond`` ends at
    offset ``beyond_indexed`` or before. Both are None if the index has no later entry.
    """

    position: int
    indexed: int | None
    beyond: int | None
    beyond_indexed: int | None

    def agrees(self, position: int, last_offset: int) -> bool:
        """Whether a batch at ``position`` may end at ``last_offset``."""
        if position == self.position and self.indexed is not None:
            return last_offset <= self.indexed
        return position != self.beyond or self.beyond_indexed is None or last_offset <= self.beyond_indexed


class OffsetIndex(IndexFile):
    """Takes and returns absolute offsets; they are relative only in the file."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, maps: HandleCache, path: str, base_offset: int, *, exists: bool) -> None:
        super().__init__(disk, maps, path, _ENTRY, exists=exists)
        self.base_offset = base_offset

    def check(self, log_size: int) -> None:
        """Raise CorruptIndex if the last entry does not match a log file of ``log_size`` bytes."""
        if count := len(self):
            first, (relative, position) = self[0], self[count - 1]
            if relative < 0 or position >= max(log_size, 1) or (relative, position) < first:
                raise CorruptIndex(f"{self.path} ends with offset +{relative} at {position} of {log_size} bytes")

    def lookup(self, offset: int) -> int:
        """Return the position of the batch that contains ``offset``, or of an earlier one."""
        slot = self.floor_by_first(offset - self.base_offset)
        return self[slot][1] if slot >= 0 else 0

    def position_bounds(self, offset: int) -> PositionBounds:
        """Return the bounds for the position of the batch that contains ``offset``."""
        slot = self.floor_by_first(offset - self.base_offset)
        position, indexed, beyond, beyond_indexed = 0, None, None, None
        if slot >= 0:
            relative, position = self[slot]
            indexed = self.base_offset + relative
        if slot + 1 < len(self):
            relative, beyond = self[slot + 1]
            beyond_indexed = self.base_offset + relative
        return PositionBounds(position, indexed, beyond, beyond_indexed)

    def add(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch at ``position``, whose ``last_offset`` is greater than that of all entries."""
        self.append(last_offset - self.base_offset, position)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries for ``offset`` and later."""
        self.truncate(self.floor_by_first(offset - self.base_offset - 1) + 1)

    def first_after_position(self, position: int) -> int | None:
        """Return the first indexed offset whose batch is at ``position`` or later, None if there is none."""
        slot = self.floor_by_second(position - 1) + 1
        return self.base_offset + self[slot][0] if slot < len(self) else None


def entries(data: bytes) -> list[tuple[int, int]]:
    """Decode the entries of an index: a relative offset and a position each. An incomplete entry at the end is
    skipped."""
    return [(first, second) for first, second in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE])]


def last_entry(data: bytes) -> tuple[int, int] | None:
    """Decode the last entry of an index, None if it is empty."""
    count = len(data) // ENTRY_SIZE
    return entries(data[(count - 1) * ENTRY_SIZE : count * ENTRY_SIZE])[0] if count else None
