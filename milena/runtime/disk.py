"""The disk port: files that know which of their bytes are synced.

Short appends and page-cache reads are plain calls on the loop. Work that may block for long (fsync, recovery, copies,
deletes) is plain synchronous code too, but runs in ``Disk.offload``: a worker thread in reality, inline after a
virtual delay in the simulation. All errors are OSError with errno (ENOSPC, EIO, ...).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Bytes = bytes | bytearray | memoryview


class Handle(Protocol):
    """Keeps a file's bytes readable after ``File.close``, as long as something refers to it."""

    def fileno(self) -> int:
        """The descriptor, for sendfile and mmap. Raises OSError in the simulation, which has none."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to ``length`` bytes; shorter at the end of the file."""
        ...

    def load(self, length: int, position: int) -> None:
        """Load bytes into the page cache, so that the next read or send does not wait for the disk. May block."""
        ...


class File(Protocol):
    """An open file. Positions and sizes are bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Current length, kept by the object: no system call."""
        ...

    @property
    def synced(self) -> int:
        """Length known to survive a power loss."""
        ...

    def append(self, parts: Sequence[Bytes]) -> int:
        """Write all parts at the end; returns the position of the first byte. After an error the file is truncated to
        its former length, as far as the disk permits, and the OSError is raised."""
        ...

    def append_from(self, source: File, length: int, position: int) -> int:
        """Append up to ``length`` bytes of another file, inside the kernel if the system supports that; returns how
        many, 0 at its end. Errors as in ``append``. May block."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to ``length`` bytes; shorter at the end of the file."""
        ...

    def pwrite(self, data: Bytes, position: int) -> None: ...

    def truncate(self, size: int) -> None:
        """Truncate, or extend with zeros."""
        ...

    def sync(self) -> None:
        """fsync. May block: call it through ``offload``, except during start-up."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile and mmap. Raises OSError in the simulation, which has none."""
        ...

    def handle(self) -> Handle:
        """The open descriptor. A ``FileRange`` takes it when it is created, so that a file may be closed or deleted
        while a range of it waits to be sent."""
        ...

    def close(self) -> None:
        """Idempotent. The descriptor is released with the last reference to its handle."""
        ...


class Disk(Protocol):
    """A node's file systems. Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...

    def read(self, path: str) -> bytes:
        """A whole small file. Raises FileNotFoundError."""
        ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Write ``path.tmp``, fsync it, rename it, fsync the folder. For checkpoints."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, time: int) -> None: ...

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted. Raises FileNotFoundError."""
        ...

    def make_folders(self, path: str) -> None: ...

    def make_folder(self, path: str) -> None:
        """Create a folder. Raises FileNotFoundError if the parent folder does not exist, FileExistsError if the folder
        does."""
        ...

    def rename(self, old: str, new: str, *, sync: bool = True) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; does nothing if it does not exist."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder. Raises FileNotFoundError, and OSError ENOTEMPTY if it is not empty."""
        ...

    def sync_folder(self, path: str) -> None: ...

    def lock(self, path: str) -> Callable[[], None]:
        """flock ``path`` exclusively (creating it) and return the release. Raises BlockingIOError if it is locked."""
        ...

    def usage(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system."""
        ...

    def map_read(self, file: File) -> memoryview:
        """The file's current bytes, read-only, memory-mapped if possible. Release with ``.release()``."""
        ...

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work off the loop. Results and exceptions are passed through."""
        ...

    def worker(self) -> Worker:
        """A new worker for long work on these files."""
        ...


Report = Callable[[int], None]
"""Called by the work with each amount done (bytes). It may block for long, and an error that it raises ends the
work."""
Paced = Callable[[int], Awaitable[None]]
"""Awaited by the owner with each reported amount. An error that it raises ends the work and is raised by
``Steps.next``."""


class WorkerEnded(Exception):
    """The process of a worker was killed, or could not be started."""


class Steps(Protocol[T_co]):
    """Work in progress."""

    async def next(self, answer: object = None) -> T_co | None:
        """Return the next value that the work yields, None at its end. ``answer``: the result of its present ``yield``;
        None before the first one. Raises what the work raises, and WorkerEnded. After an error the worker has to be
        ended."""
        ...


class Worker(Protocol):
    """Runs one work at a time."""

    def run(
        self,
        work: Callable[Concatenate[Disk, Report, P], Iterator[T]],
        paced: Paced,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Steps[T]:
        """Start ``work``, a generator function of a module. It waits after each value until the next is requested. Its
        values are not None."""
        ...

    def set_urgent(self, urgent: bool) -> None:
        """Choose the priority of the next work: that of this process if it is ``urgent``, else a lower one. A running
        process with the other priority is ended."""
        ...

    @property
    def cpu_seconds(self) -> float | None:
        """The CPU time that its works have used, as of the last report; None if they run in this process."""
        ...

    def end(self) -> None:
        """Kill the worker's process; the next work starts another. Does nothing if it is not running."""
        ...

    async def ended(self) -> None:
        """After ``end``: wait until the process has ended."""
        ...
