"""The offset index of a segment: where in the log file an offset is, sparsely.

One entry of 8 bytes for about every ``index.interval.bytes``: the last offset of a batch, relative to the segment's
base (int32), and the batch's position in the log file (int32).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from runtime.disk import Disk
from storage.handle_cache import HandleCache
from storage.index_file import CorruptIndex, IndexFile

_ENTRY: Final = Struct(">ii")
ENTRY_SIZE: Final = _ENTRY.size


class OffsetIndex(IndexFile):
    """Offsets go in and come out as they are; they are relative only in the file."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, maps: HandleCache, path: str, base_offset: int, *, exists: bool) -> None:
        super().__init__(disk, maps, path, _ENTRY, exists=exists)
        self.base_offset = base_offset

    def check(self, log_size: int) -> None:
        """Raise CorruptIndex where the last entry cannot be about a log file of ``log_size`` bytes."""
        if count := len(self):
            first, (relative, position) = self[0], self[count - 1]
            if relative < 0 or position >= max(log_size, 1) or (relative, position) < first:
                raise CorruptIndex(f"{self.path} ends in offset +{relative} at {position} of {log_size} bytes")

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds ``offset``."""
        slot = self.floor_by_first(offset - self.base_offset)
        return self[slot][1] if slot >= 0 else 0

    def between(self, offset: int) -> tuple[int, int | None]:
        """Two positions: the batch that holds ``offset`` begins at the first or later, and at the second at the latest,
        None where the index does not reach so far."""
        slot = self.floor_by_first(offset - self.base_offset)
        return self[slot][1] if slot >= 0 else 0, self[slot + 1][1] if slot + 1 < len(self) else None

    def add(self, last_offset: int, position: int) -> None:
        """Index the batch that ends in ``last_offset``; greater than those before."""
        self.append(last_offset - self.base_offset, position)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for ``offset`` and later."""
        self.truncate(self.floor_by_first(offset - self.base_offset - 1) + 1)

    def first_after_position(self, position: int) -> int | None:
        """The smallest indexed offset whose batch lies at ``position`` or later; None where that is not indexed."""
        slot = self.floor_by_second(position - 1) + 1
        return self.base_offset + self[slot][0] if slot < len(self) else None
