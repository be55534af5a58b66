"""The open logs of a tier in a folder, loaded into the page cache before the loop uses them.

sendfile reads on the event loop. A slow or hanging file system would block the whole broker there, so a worker reads
each range first. For sequential readers it reads more ahead, so that their next reads need no worker.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from milena.runtime.clock import Clock
from milena.runtime.disk import Disk, File
from milena.runtime.network import FileRange

MOST_OPEN: Final = 64
REOPEN_AFTER: Final = 5.0
"""Seconds after which a log is reopened: it may have been replaced, truncated, or evicted from the page cache."""
MOST_AHEAD: Final = 8 << 20
"""Bytes that are read ahead of a sequential reader."""
MOST_WARM: Final = 64 << 20
"""Maximum bytes of one range that are loaded first. No fetch response is longer."""


class CutLog(Exception):
    """The log is shorter than requested. ``size``: its size in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class OpenLog:
    """A log, and the range of it that was read recently."""

    __slots__ = ("ahead", "file", "opened", "warm_end", "warm_start")

    def __init__(self, file: File, now: float) -> None:
        self.file = file
        self.opened = now
        self.ahead = 0
        self.warm_start = 0
        self.warm_end = 0


class OpenLogs:
    """To be used on the loop only. Raises OSError."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._logs: OrderedDict[str, OpenLog] = OrderedDict()
        self._expected: OrderedDict[str, None] = OrderedDict()

    async def range(self, path: str, start: int, length: int) -> FileRange:
        """Return bytes of a log that can be sent without waiting for the file system. Raises CutLog if they do not
        exist."""
        log = await self._open(path)
        if log.file.size < start + length:
            self.forget(path)
            raise CutLog(log.file.size)
        found = FileRange(log.file, start, length)
        if start < log.warm_start or start + length > log.warm_end:
            await self._warm(path, log, found)
        return found

    def expect(self, path: str) -> None:
        """A hint that a sequential reader will soon reach the start of this log: read ahead with the maximum size."""
        self._expected[path] = None
        self._expected.move_to_end(path)
        if len(self._expected) > MOST_OPEN:
            self._expected.popitem(last=False)

    def forget(self, path: str) -> None:
        log = self._logs.pop(path, None)
        if log is not None:
            log.file.close()

    def close(self) -> None:
        for path in list(self._logs):
            self.forget(path)

    async def _open(self, path: str) -> OpenLog:
        log = self._logs.get(path)
        if log is not None and self._clock.monotonic() - log.opened < REOPEN_AFTER:
            self._logs.move_to_end(path)
            return log
        file = await self._disk.offload(self._disk.open, path, read_only=True)
        former = self._logs.get(path)
        self.forget(path)
        log = self._logs[path] = OpenLog(file, self._clock.monotonic())
        if former is not None:
            # Nothing of it counts as loaded, but its reader keeps its read-ahead size.
            log.warm_start = log.warm_end = former.warm_end
            log.ahead = former.ahead
        if len(self._logs) > MOST_OPEN:
            self.forget(next(iter(self._logs)))
        return log

    async def _warm(self, path: str, log: OpenLog, wanted: FileRange) -> None:
        start, end = wanted.position, wanted.position + wanted.length
        sequential = log.warm_start <= start <= log.warm_end
        if not start and path in self._expected:
            del self._expected[path]
            log.ahead = MOST_AHEAD
        else:
            log.ahead = min(2 * max(log.ahead, wanted.length), MOST_AHEAD) if sequential else 0
        first = max(start, log.warm_end) if sequential else start
        end = min(end + log.ahead, start + MOST_WARM, log.file.size)
        try:
            await self._disk.offload(wanted.handle.load, end - first, first)
        except OSError:
            self.forget(path)
            raise
        log.warm_start, log.warm_end = start, end
