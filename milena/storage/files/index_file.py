"""The common part of offset and time indexes: a file of fixed-size entries that is appended to and searched.

The newest entries of the active segment stay in memory until there are a few hundred, since recovery rebuilds an index
after a crash. Entries in the file are searched in a memory map, which is opened on use and released if too many maps
are open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from struct import Struct
from typing import Final

from milena.protocol.invariants import BrokenInvariant
from milena.runtime.disk import Disk
from milena.storage.files.handle_cache import HandleCache

_WRITE_AT: Final = 4096
"""Pending entries are written when they reach this many bytes."""


class CorruptIndex(ValueError):
    """An index file that does not match the log file of its segment."""


class IndexFile:
    """Entries of two integers, neither of which ever decreases. Positions in the index are numbers of entries."""

    __slots__ = ("_disk", "_entry", "_in_file", "_map", "_maps", "_pending", "path")

    def __init__(self, disk: Disk, maps: HandleCache, path: str, entry: Struct, *, exists: bool) -> None:
        """``exists``: whether the file exists. It is created only when entries are written.

        Raises CorruptIndex if its length is not a multiple of the entry size.
        """
        self.path = path
        self._disk = disk
        self._maps = maps
        self._entry = entry
        self._pending = bytearray()
        self._map: memoryview | None = None
        self._in_file = 0
        if exists:
            size = disk.size(path)
            self._in_file, remainder = divmod(size, entry.size)
            if remainder:
                raise CorruptIndex(f"{path} has {size} bytes, which is not a multiple of {entry.size}")

    def __len__(self) -> int:
        return self._in_file + len(self._pending) // self._entry.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        size = self._entry.size
        if index >= self._in_file:
            first, second = self._entry.unpack_from(self._pending, (index - self._in_file) * size)
        else:
            first, second = self._entry.unpack_from(self._mapped(index), index * size)
        return first, second

    def floor_by_first(self, target: int) -> int:
        """Return the position of the last entry whose first integer is at most ``target``, -1 for none."""
        return self._floor(target, self._first)

    def floor_by_second(self, target: int) -> int:
        """Return the position of the last entry whose second integer is at most ``target``, -1 for none."""
        return self._floor(target, self._second)

    def append(self, first: int, second: int) -> None:
        """Add an entry. ``first`` must be greater than before, ``second`` not less."""
        if self._pending:
            before = self._entry.unpack_from(self._pending, len(self._pending) - self._entry.size)
            if first <= before[0] or second < before[1]:
                raise BrokenInvariant(f"{self.path}: entry {(first, second)} after {before}")
        self._pending += self._entry.pack(first, second)
        if len(self._pending) >= _WRITE_AT:
            self.write()

    def write(self) -> None:
        """Write the pending entries, and create the file if it is missing."""
        size = self._entry.size
        file = self._disk.open(self.path, create=True)
        try:
            if file.size != self._in_file * size:  # entries of an earlier file, or of a failed write
                file.truncate(self._in_file * size)
            if self._pending:
                file.append((self._pending,))
                self._in_file += len(self._pending) // size
                self._pending = bytearray()
        finally:
            file.close()

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` entries."""
        size = self._entry.size
        if count >= self._in_file:
            del self._pending[(count - self._in_file) * size :]
            return
        self._pending.clear()
        self.release()
        self._in_file = count
        self.write()

    def release_handle(self) -> None:
        if self._map is not None:
            self._map.release()
            self._map = None

    def release(self) -> None:
        """Release the map, before the file is truncated, renamed or removed."""
        self.release_handle()
        self._maps.closed(self)

    def _first(self, index: int) -> int:
        return self[index][0]

    def _second(self, index: int) -> int:
        return self[index][1]

    def _floor(self, target: int, key: Callable[[int], int]) -> int:
        start, end = 0, self._in_file
        if self._pending and (not end or key(end) <= target):
            start, end = end, len(self)
        return bisect_right(range(end), target, start, end, key=key) - 1

    def _mapped(self, index: int) -> memoryview:
        view = self._map
        if view is not None and (index + 1) * self._entry.size <= len(view):
            self._maps.used(self)
            return view
        self.release()
        file = self._disk.open(self.path, read_only=True)
        try:
            view = self._map = self._disk.map_read(file)
        finally:
            file.close()
        self._maps.opened(self)
        return view
