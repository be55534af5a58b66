"""The simulated disk: in-memory files with a record of what a power loss would leave."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Sequence

from milena.lab.world.life import Life, SimulatedClock
from milena.lab.world.power import DirectoryJournal, Inode, below, move, tear
from milena.runtime.disk import Bytes, File, P, T, Worker
from milena.runtime.randomness import Randomness
from milena.runtime.workers import PlainWorker

UNLIMITED = 1 << 40
OFFLOAD_SECONDS = (0.0001, 0.002)
"""Duration of offloaded work on a disk that is not slowed down."""


class Storage:
    """The state that outlives the process: names, bytes, faults."""

    def __init__(self, random: Randomness, *, capacity: int | None = None) -> None:
        self.files: dict[str, Inode] = {}
        self.folders: dict[str, None] = {"/": None}
        self.journal = DirectoryJournal(self.files, self.folders)
        self.locks: dict[str, Life] = {}
        self.capacity = capacity
        """Capacity of the disk in bytes; None for no limit."""
        self.offload_seconds = OFFLOAD_SECONDS
        """Duration of offloaded work, at random (from, to)."""
        self.before: Callable[[str, str], object] = lambda _operation, _path: None
        """Called before each operation; may end the process or raise."""
        self._random = random
        self._faults: list[tuple[str, str, int]] = []
        self.failed = 0
        """The number of operations that a fault failed."""
        self.slowed = 0
        """The number of delayed calls."""

    def fail(self, prefix: str, number: int, *, operation: str = "") -> None:
        """Let operations (of one kind, or all) below ``prefix`` raise OSError with this errno."""
        self._faults.append((prefix, operation, number))

    def heal(self) -> None:
        self._faults.clear()

    def check(self, operation: str, path: str) -> None:
        self.before(operation, path)
        for prefix, only, number in self._faults:
            if path.startswith(prefix) and only in ("", operation):
                self.failed += 1
                raise OSError(number, os.strerror(number), path)

    def wipe(self) -> None:
        """Replace the disk with a new one."""
        self.files.clear()
        self.folders.clear()
        self.folders["/"] = None
        self.journal.clear()
        self.locks.clear()

    def used(self) -> int:
        return sum(len(inode.data) for inode in self.files.values())

    def reserve(self, path: str, count: int) -> None:
        if self.capacity is not None and self.used() + count > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def corrupt(self, path: str, position: int) -> None:
        """Flip one bit of a file on the disk, silently."""
        self.files[path].data[position] ^= 1

    def lose_power(self) -> None:
        """Remove unsynced data, completely or in part, as described in ``lab.world.power``."""
        self.journal.lose_power(self._random)
        for path in sorted(self.files):
            tear(self.files[path], self._random)


class SimulatedHandle:
    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a simulated file has no descriptor", self._path)

    def pread(self, length: int, position: int) -> bytes:
        self._disk.check("read", self._path)
        return bytes(self._inode.data[position : position + length])

    def load(self, length: int, position: int) -> None:
        self._disk.check("read", self._path)


class SimulatedFile:
    """Implements ``runtime.disk.File``."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode, *, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._read_only = read_only
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self._inode.data)

    @property
    def synced(self) -> int:
        return self._inode.synced

    def append(self, parts: Sequence[Bytes]) -> int:
        self._check("append", write=True)
        start = len(self._inode.data)
        data = b"".join(parts)
        self._disk.storage.reserve(self._path, len(data))
        self._inode.data += data
        self._touch()
        return start

    def append_from(self, source: File, length: int, position: int) -> int:
        data = source.pread(length, position)
        self.append([data])
        return len(data)

    def pread(self, length: int, position: int) -> bytes:
        self._check("read")
        return bytes(self._inode.data[position : position + length])

    def pwrite(self, data: Bytes, position: int) -> None:
        self._check("write", write=True)
        size = len(self._inode.data)
        self._disk.storage.reserve(self._path, max(0, position + len(data) - size))
        if position > size:
            self._inode.data += bytes(position - size)
        self._inode.data[position : position + len(data)] = data
        self._inode.synced = min(self._inode.synced, position)
        self._touch()

    def truncate(self, size: int) -> None:
        self._check("truncate", write=True)
        data = self._inode.data
        if size > len(data):
            self._disk.storage.reserve(self._path, size - len(data))
            data += bytes(size - len(data))
        else:
            del data[size:]
        self._inode.synced = min(self._inode.synced, size)
        self._touch()

    def sync(self) -> None:
        self._check("sync")
        self._inode.synced = len(self._inode.data)

    def fileno(self) -> int:
        return self.handle().fileno()

    def handle(self) -> SimulatedHandle:
        """Does not access the disk: a read fault appears when the handle is read."""
        if self._closed:
            raise _closed(self._path)
        return SimulatedHandle(self._disk, self._path, self._inode)

    def close(self) -> None:
        self._closed = True

    def _touch(self) -> None:
        self._inode.modified_ms = self._disk.clock.time_ms()

    def _check(self, operation: str, *, write: bool = False) -> None:
        self._disk.check(operation, self._path)
        if self._closed:
            raise _closed(self._path)
        if write and self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


class SimulatedDisk:
    """Implements ``runtime.disk.Disk`` for one run of one node."""

    def __init__(self, storage: Storage, clock: SimulatedClock, random: Randomness, life: Life) -> None:
        self.storage = storage
        self.clock = clock
        self._random = random
        self._life = life

    def check(self, operation: str, path: str) -> None:
        self._life.check()
        self.storage.check(operation, path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.check("open", path)
        inode = self.storage.files.get(path)
        if inode is None:
            if not create or posixpath.dirname(path) not in self.storage.folders:
                raise _missing(path)
            inode = self.storage.files[path] = Inode(self.clock.time_ms())
            self.storage.journal.made(path)
        return SimulatedFile(self, path, inode, read_only=read_only)

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._inode(path).data)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        self.remove(temporary)
        file = self.open(temporary, create=True)
        file.append([data])
        if sync:
            file.sync()
        self.rename(temporary, path, sync=sync)

    def exists(self, path: str) -> bool:
        return path in self.storage.files or path in self.storage.folders

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, time: int) -> None:
        self.check("write", path)
        self._inode(path).modified_ms = time

    def list(self, folder: str) -> list[str]:
        self.check("list", folder)
        if folder not in self.storage.folders:
            raise _missing(folder)
        names = (*self.storage.files, *self.storage.folders)
        return sorted(posixpath.basename(name) for name in names if posixpath.dirname(name) == folder and name != "/")

    def make_folders(self, path: str) -> None:
        self.check("write", path)
        storage = self.storage
        missing = []
        while path not in storage.folders:
            if path in storage.files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            missing.append(path)
            path = posixpath.dirname(path)
        for folder in reversed(missing):
            storage.folders[folder] = None
            storage.journal.made(folder)

    def make_folder(self, path: str) -> None:
        if posixpath.dirname(path) not in self.storage.folders:
            raise _missing(path)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.make_folders(path)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        self.check("rename", old)
        storage = self.storage
        if posixpath.dirname(new) not in storage.folders or (old not in storage.files and old not in storage.folders):
            raise _missing(old)
        replaced = storage.files.get(new)
        if old in storage.files:
            storage.files[new] = storage.files.pop(old)
        else:
            move(storage.files, old, new)
            move(storage.folders, old, new)
        storage.journal.renamed(old, new, replaced)
        if sync:
            storage.journal.synced(posixpath.dirname(new))
            storage.journal.synced(posixpath.dirname(old))

    def remove(self, path: str) -> None:
        self.check("remove", path)
        inode = self.storage.files.pop(path, None)
        if inode is not None:
            self.storage.journal.removed(path, inode)

    def remove_tree(self, path: str) -> None:
        self.check("remove", path)
        storage = self.storage
        for file in below(storage.files, path):
            storage.journal.removed(file, storage.files.pop(file))
        for folder in sorted(below(storage.folders, path), reverse=True):
            del storage.folders[folder]
            storage.journal.removed(folder, None)

    def remove_folder(self, path: str) -> None:
        self.check("remove", path)
        storage = self.storage
        if path not in storage.folders:
            raise _missing(path)
        if any(posixpath.dirname(name) == path for name in (*storage.files, *storage.folders)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        del storage.folders[path]
        storage.journal.removed(path, None)

    def sync_folder(self, path: str) -> None:
        self.check("sync", path)
        if path not in self.storage.folders:
            raise _missing(path)
        self.storage.journal.synced(path)

    def lock(self, path: str) -> Callable[[], None]:
        self.check("open", path)
        holder = self.storage.locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path, create=True).close()
        self.storage.locks[path] = self._life
        return lambda: self._unlock(path)

    def _unlock(self, path: str) -> None:
        if self.storage.locks.get(path) is self._life:
            del self.storage.locks[path]

    def usage(self, path: str) -> tuple[int, int]:
        total = self.storage.capacity if self.storage.capacity is not None else UNLIMITED
        return total, total - self.storage.used()

    def map_read(self, file: File) -> memoryview:
        return memoryview(file.pread(file.size, 0))

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.storage.slowed += self.storage.offload_seconds != OFFLOAD_SECONDS
        await self.clock.sleep(self._random.uniform(*self.storage.offload_seconds))
        self._life.check()
        return work(*args, **kwargs)

    def worker(self) -> Worker:
        return PlainWorker(self)

    def _inode(self, path: str) -> Inode:
        inode = self.storage.files.get(path)
        if inode is None:
            raise _missing(path)
        return inode


def _closed(path: str) -> OSError:
    return OSError(errno.EBADF, "file is closed", path)


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
