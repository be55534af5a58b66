"""The real disk: files of the operating system."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from milena.runtime.disk import Bytes, File, P, T, Worker

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

IOV_LIMIT: Final = 1024
OFFLOAD_THREADS: Final = 4
COPIED_AT_ONCE: Final = 1 << 20
"""Bytes."""
NOT_BY_SENDFILE: Final = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EXDEV, errno.ENOTSOCK}
)
"""The error codes of a file system, or an operating system, that does not support this way of copying."""


class RealHandle:
    """An open descriptor, closed when the last reference to it goes."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self._fd, length, position)

    def load(self, length: int, position: int) -> None:
        """Send the bytes to /dev/null, which loads them for half the cost of copying them."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            end = position + length
            while position < end and (sent := os.sendfile(nowhere, self._fd, position, end - position)):
                position += sent
        finally:
            os.close(nowhere)

    def __del__(self) -> None:
        os.close(self._fd)


class RealFile:
    """Implements ``runtime.disk.File``.

    ``synced`` starts at 0 for a file that existed before: what an earlier process left in the page cache is unknown.

    A file with a second name, as in a snapshot of the cluster (``milena.up.snapshots``), is never changed in place: the
    path gets a copy first, and all other names keep the former content. This is checked before each change except
    appends after the first one: a file that is being appended to gets no second name. (The log file of a closed segment
    may get one; it is appended to again only after it was truncated.)
    """

    __slots__ = ("_handle", "_is_new_entry", "_owned", "_path", "_size", "_synced")

    def __init__(self, path: str, fd: int) -> None:
        self._owned = False
        self._is_new_entry = False
        self._handle: RealHandle | None = RealHandle(fd)
        self._path = path
        self._size = os.fstat(fd).st_size
        self._synced = 0

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    @property
    def synced(self) -> int:
        return self._synced

    def append(self, parts: Sequence[Bytes]) -> int:
        if not self._owned:
            self._own()
        start = self._size
        try:
            if len(parts) == 1:
                self._size = start + self._write(parts[0], start)
            else:
                for first in range(0, len(parts), IOV_LIMIT):
                    self._size += self._write_all(parts[first : first + IOV_LIMIT], self._size)
        except OSError:
            self._roll_back(start)
            raise
        return start

    def append_from(self, source: File, length: int, position: int) -> int:
        if not self._owned:
            self._own()
        start = self._size
        fd, source_fd = self.fileno(), source.fileno()
        copied = 0
        try:
            os.lseek(fd, start, os.SEEK_SET)  # sendfile writes at the descriptor's position; all other calls pass one
            while copied < length and (sent := os.sendfile(fd, source_fd, position + copied, length - copied)):
                copied += sent
        except OSError as error:
            self._roll_back(start)
            if error.errno not in NOT_BY_SENDFILE:
                raise
            data = source.pread(length, position)
            self.append([data])
            return len(data)
        self._size = start + copied
        return copied

    def _own(self) -> None:
        """Continue with a copy if the file has another name; handles that were taken keep the original. Raises
        OSError."""
        found = os.fstat(self.fileno())
        if found.st_nlink > 1:
            self._handle = RealHandle(replace_by_copy(self._path, self.fileno()))
            self._synced = 0
            self._is_new_entry = True
        self._owned = True

    def _write(self, data: Bytes, position: int) -> int:
        """``pwrite`` until everything is written: a disk that is nearly full accepts only a part at first."""
        fd = self.fileno()
        written = os.pwrite(fd, data, position)
        if written < len(data):
            rest = memoryview(data)
            while written < len(rest):
                written += os.pwrite(fd, rest[written:], position + written)
        return written

    def _write_all(self, parts: Sequence[Bytes], position: int) -> int:
        total = sum(map(len, parts))
        written = os.pwritev(self.fileno(), parts, position)
        if written < total:
            written += self._write(b"".join(parts)[written:], position + written)
        return total

    def _roll_back(self, size: int) -> None:
        self._size = size
        try:
            os.ftruncate(self.fileno(), size)
        except OSError:
            # The disk has failed already, and the caller gets the first error. Later appends overwrite the rest.
            return

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self.fileno(), length, position)

    def pwrite(self, data: Bytes, position: int) -> None:
        self._own()
        end = position + self._write(data, position)
        self._size = max(self._size, end)
        self._synced = min(self._synced, position)

    def truncate(self, size: int) -> None:
        self._own()
        os.ftruncate(self.fileno(), size)
        self._size = size
        self._synced = min(self._synced, size)

    def sync(self) -> None:
        # The loop may append during the sync; only what was written before it is certainly synced.
        size = self._size
        os.fsync(self.fileno())
        if self._is_new_entry:
            sync_folder(os.path.dirname(self._path))
            self._is_new_entry = False
        self._synced = min(size, self._size)

    def fileno(self) -> int:
        return self.handle().fileno()

    def handle(self) -> RealHandle:
        if self._handle is None:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return self._handle

    def close(self) -> None:
        self._handle = None


def replace_by_copy(path: str, fd: int) -> int:
    """Replace the entry ``path`` by a copy of the file that is open as ``fd``. Return a descriptor of the copy. After a
    power loss the entry is the original or the copy, until the folder is synced. Raises OSError."""
    temporary = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):  # of a process that was killed
        os.unlink(temporary)
    copy = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        position = 0
        while data := os.pread(fd, COPIED_AT_ONCE, position):
            position += os.pwrite(copy, data, position)
        if position:
            os.fsync(copy)
        os.replace(temporary, path)
    except BaseException:
        os.close(copy)
        raise
    return copy


def sync_folder(path: str) -> None:
    """fsync a folder. Raises OSError."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_descriptor(path: str, *, create: bool, read_only: bool) -> int:
    flags = os.O_RDONLY if read_only else os.O_RDWR
    if create:
        flags |= os.O_CREAT
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


class RealDisk:
    """Implements ``runtime.disk.Disk``. Call ``close`` at the end to stop its threads."""

    def __init__(self, threads: int = OFFLOAD_THREADS) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return RealFile(path, open_descriptor(path, create=create, read_only=read_only))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        self.rename(temporary, path, sync=sync)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time: int) -> None:
        os.utime(path, ns=(time * 1_000_000, time * 1_000_000))

    def list(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def make_folders(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def make_folder(self, path: str) -> None:
        os.mkdir(path)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        os.replace(old, new)
        if sync:
            # dict: unique and ordered
            for folder in dict.fromkeys((os.path.dirname(new), os.path.dirname(old))):
                self.sync_folder(folder)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        import shutil

        if os.path.lexists(path):
            shutil.rmtree(path)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def sync_folder(self, path: str) -> None:
        sync_folder(path)

    def lock(self, path: str) -> Callable[[], None]:
        handle = RealHandle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = [handle]
        return held.clear

    def usage(self, path: str) -> tuple[int, int]:
        system = os.statvfs(path)
        return system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize

    def map_read(self, file: File) -> memoryview:
        if not file.size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), file.size, prot=mmap.PROT_READ))

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        import asyncio

        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="disk")
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))

    def worker(self) -> Worker:
        from milena.runtime.workers import ProcessWorker

        return ProcessWorker()

    def close(self) -> None:
        """Wait for the offloaded work that is running and end the threads."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
