"""The producer snapshot files of a log: writes them, and loads the latest readable one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from milena.protocol.types import Offset
from milena.storage.files.names import DELETED, SNAPSHOT, segment_file
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from milena.storage.log.context import LogContext
from milena.storage.state.producer_state import ProducerState, is_expired


class ProducerFiles:
    """The snapshots of one log, by offset. One is taken at each roll, at a clean shutdown and after a truncation.
    Methods raise OSError."""

    __slots__ = ("_context", "_offsets", "newest")

    newest: Offset
    """The offset of the last snapshot. No snapshot is taken at or before it."""

    def __init__(self, context: LogContext, offsets: Iterable[int] = ()) -> None:
        self._context = context
        self._offsets = sorted(offsets)
        self.newest = Offset(self._offsets[-1] if self._offsets else 0)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of the snapshots, ascending."""
        return tuple(self._offsets)

    def take(self, folder: str, state: ProducerState, offset: Offset) -> str | None:
        """Write the state at ``offset``, without a sync. Returns the path, None if there is a snapshot at ``offset`` or
        later."""
        if offset <= self.newest:
            return None
        self.newest = offset
        return self.put(folder, state, offset)

    def put(self, folder: str, state: ProducerState, offset: Offset) -> str:
        """Write the state at ``offset``, without a sync. Returns the path."""
        path = _path(folder, offset)
        self._context.disk.write_atomic(path, encode_snapshot(state), sync=False)
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return path

    def adopt(self, folder: str, data: bytes, offset: Offset) -> None:
        """Write and sync a snapshot of another replica, which cannot be rebuilt here."""
        self._context.disk.write_atomic(_path(folder, offset), data)
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def load(self, folder: str, state: ProducerState, *, upto: Offset, log_start: Offset) -> Offset:
        """Load ``state`` from the latest readable snapshot up to ``upto``. Unreadable ones are removed.

        Returns the offset of that snapshot. If there is none, clears ``state`` and returns ``log_start``.
        """
        now = self._context.clock.time_ms()
        while past := bisect_right(self._offsets, upto):
            offset = Offset(self._offsets[past - 1])
            path = _path(folder, offset)
            try:
                entries = decode_snapshot(self._context.disk.read(path))
            except (CorruptSnapshot, FileNotFoundError) as error:
                self._context.events.warning("producer snapshot unreadable", path=path, reason=str(error))
                self._remove(folder, offset)
                continue
            expiration = self._context.producer_expiration_ms
            state.load((key, entry) for key, entry in entries if not is_expired(entry, now, expiration))
            self.newest = offset
            return offset
        state.clear()
        self.newest = log_start
        return log_start

    def keep_within(self, folder: str, log_start: Offset, log_end: Offset) -> None:
        """Remove the snapshots up to ``log_start`` and after ``log_end``."""
        for offset in self._offsets.copy():
            if offset > log_end or offset <= log_start:
                self._remove(folder, offset)

    def remove_strays(self, folder: str, bases: Iterable[int]) -> None:
        """Remove the snapshots that are not at one of ``bases``, the base offsets of the segments. The latest one is
        kept if it is after the last base offset: it is that of a clean shutdown."""
        known = set(bases)
        strays = [offset for offset in self._offsets if offset not in known]
        if strays and known and strays[-1] >= max(known):
            strays.pop()
        for offset in strays:
            self._remove(folder, offset)

    def remove_all(self, folder: str) -> None:
        for offset in self._offsets.copy():
            self._remove(folder, offset)
        self.newest = Offset(0)

    def mark_deleted(self, folder: str, offset: Offset) -> str | None:
        """Rename the snapshot at ``offset`` for deletion. Returns the new path, None if there is no such snapshot."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        path = _path(folder, offset)
        if not self._context.disk.exists(path):
            return None
        self._context.disk.rename(path, path + DELETED, sync=False)
        return path + DELETED

    def log_start_moved(self, log_start: Offset) -> None:
        """The log start offset was incremented to ``log_start``."""
        self.newest = Offset(self._offsets[-1]) if self._offsets else log_start

    def _remove(self, folder: str, offset: int) -> None:
        self._context.disk.remove(_path(folder, offset))
        del self._offsets[bisect_left(self._offsets, offset)]


def _path(folder: str, offset: int) -> str:
    return f"{folder}/{segment_file(offset, SNAPSHOT)}"
