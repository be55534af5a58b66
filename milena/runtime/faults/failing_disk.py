"""A real disk that fails, fills up or is slow on demand, for the log directories and the tier of nodes with ``--lab``.

A fault applies to a folder and everything below it. It does not affect data sent with sendfile, nor files that were
mapped or opened as a handle before.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence

from milena.runtime.clock import Clock
from milena.runtime.disk import Bytes, File, P, T
from milena.runtime.files import OFFLOAD_THREADS, RealDisk, RealFile, open_descriptor


class DiskFaults:
    """Faults by folder; ``""`` applies to every folder."""

    def __init__(self) -> None:
        self._failing: dict[str, None] = {}
        self._full: dict[str, None] = {}
        self._slow: dict[str, float] = {}
        self.failed = 0
        """The number of failed calls. It may be too low: several threads increment it."""
        self.slowed = 0
        """The number of slowed syncs; may be too low as well."""

    def fail(self, folder: str) -> None:
        """Let every call for the folder raise OSError EIO."""
        self._failing[folder] = None

    def heal(self, folder: str) -> None:
        self._failing.pop(folder, None)

    def fill(self, folder: str) -> None:
        """Let every append and creation in the folder raise OSError ENOSPC."""
        self._full[folder] = None

    def slow(self, folder: str, seconds: float) -> None:
        """Delay each sync in the folder by ``seconds``; 0 ends it."""
        self._slow[folder] = seconds

    def end_delays(self) -> None:
        """End all delays of syncs."""
        self._slow.clear()

    def active(self) -> list[dict[str, object]]:
        """Return the faults of folders that are set, each as the lab command that sets it."""
        slow = {folder: round(seconds * 1000, 3) for folder, seconds in self._slow.items() if seconds}
        found: list[dict[str, object]] = [{"command": "fail_disk", "path": folder} for folder in self._failing]
        found += [{"command": "fill_disk", "path": folder} for folder in self._full]
        return found + [{"command": "slow_disk", "path": folder, "ms": ms} for folder, ms in slow.items()]

    @property
    def lasting(self) -> bool:
        """Whether a folder fails or is full."""
        return bool(self._failing or self._full)

    def check(self, path: str) -> None:
        """Raise OSError if the path is in a failed folder."""
        for folder in self._failing:
            if _is_in(path, folder):
                self.failed += 1
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def check_room(self, path: str) -> None:
        """Raise OSError if the path is in a failed or full folder. Call this before bytes or entries are added."""
        self.check(path)
        for folder in self._full:
            if _is_in(path, folder):
                self.failed += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def before_sync(self, path: str) -> None:
        """Apply the faults of a sync. May block. Raises OSError."""
        self.check(path)
        seconds = max((seconds for folder, seconds in self._slow.items() if _is_in(path, folder)), default=0.0)
        if seconds:
            self.slowed += 1
            time.sleep(seconds)  # called in the disk's own threads


class FailingFile(RealFile):
    """A file of a FailingDisk."""

    __slots__ = ("_faults",)

    def __init__(self, path: str, fd: int, faults: DiskFaults) -> None:
        super().__init__(path, fd)
        self._faults = faults

    def append(self, parts: Sequence[Bytes]) -> int:
        self._faults.check_room(self.path)
        return super().append(parts)

    def append_from(self, source: File, length: int, position: int) -> int:
        self._faults.check_room(self.path)
        return super().append_from(source, length, position)

    def pread(self, length: int, position: int) -> bytes:
        self._faults.check(self.path)
        return super().pread(length, position)

    def pwrite(self, data: Bytes, position: int) -> None:
        self._faults.check(self.path)
        super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._faults.check(self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._faults.before_sync(self.path)
        super().sync()


class FailingDisk(RealDisk):
    """Implements ``runtime.disk.Disk``, for one process."""

    def __init__(self, threads: int = OFFLOAD_THREADS) -> None:
        super().__init__(threads)
        self.faults = DiskFaults()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.check_open(path, create=create)
        return FailingFile(path, open_descriptor(path, create=create, read_only=read_only), self.faults)

    def check_open(self, path: str, *, create: bool) -> None:
        """Raise OSError if opening must fail."""
        if create and not os.path.exists(path):
            self.faults.check_room(path)
        else:
            self.faults.check(path)

    def read(self, path: str) -> bytes:
        self.faults.check(path)
        return super().read(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        self.remove(temporary)
        file = self.open(temporary, create=True)
        try:
            file.append([data])
            if sync:
                file.sync()
        finally:
            file.close()
        self.rename(temporary, path, sync=sync)

    def list(self, folder: str) -> list[str]:
        self.faults.check(folder)
        return super().list(folder)

    def make_folders(self, path: str) -> None:
        if os.path.isdir(path):
            self.faults.check(path)
        else:
            self.faults.check_room(path)
        super().make_folders(path)

    def make_folder(self, path: str) -> None:
        self.faults.check_room(path)
        super().make_folder(path)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        self.faults.check(old)
        super().rename(old, new, sync=sync)

    def remove(self, path: str) -> None:
        self.faults.check(path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.faults.check(path)
        super().remove_tree(path)

    def remove_folder(self, path: str) -> None:
        self.faults.check(path)
        super().remove_folder(path)

    def sync_folder(self, path: str) -> None:
        self.faults.before_sync(path)
        super().sync_folder(path)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


class TroubledDisk(FailingDisk):
    """``renamed`` is called with the new path after each rename, in the thread that did it."""

    def __init__(self, threads: int, clock: Clock, renamed: Callable[[str], object]) -> None:
        super().__init__(threads)
        self.delay = 0.0
        """The delay of each offloaded call, in seconds."""
        self.slowed = 0
        """The number of delayed calls."""
        self._clock = clock
        self._renamed = renamed

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.delay:
            self.slowed += 1
            await self._clock.sleep(self.delay)
        return await RealDisk.offload(self, work, *args, **kwargs)

    def exists(self, path: str) -> bool:
        """Return whether the file exists. Raises OSError in a failed folder, where this is not known."""
        self.faults.check(path)
        return super().exists(path)

    def size(self, path: str) -> int:
        self.faults.check(path)
        return super().size(path)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        super().rename(old, new, sync=sync)
        self._renamed(new)
