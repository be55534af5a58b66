"""Where work orders and their results lie in the tier, beside Kafka's part of it: ``milena-work/PARTITION/ORDER/NAME``.

Objects appear whole. What lies there is nobody's record of anything: it counts once a leader has checked it.
"""

from __future__ import annotations

import errno
from typing import Final, Protocol

from milena.runtime.disk import Disk, File
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.tiered.store.remote_storage import RemoteResourceNotFound, RemoteStorageError, remote_errors
from milena.tiered.store.tier_names import ROOT, partition_folder

WORK: Final = "milena-work"
"""Beside ROOT: Kafka takes any file below ROOT for a segment's."""
PIECE: Final = 4 << 20
UNFINISHED: Final = ".part"
"""Ends the names of files that are being written."""
_TIMES: Final = 5
_CHANGED: Final = frozenset({errno.ENOENT, errno.ENOTEMPTY})
"""While a folder was removed, somebody has renamed or removed a file in it, or written one."""


def work_folder(partition: TopicIdPartition) -> str:
    """Of a partition's orders, below WORK."""
    return partition_folder(partition).removeprefix(f"{ROOT}/")


class Staging(Protocol):
    """Paths are below WORK. All calls raise RemoteStorageError or a subclass, and are safe to repeat."""

    async def names(self, folder: str = "") -> list[str]:
        """What is in a folder, sorted; nothing if it does not exist."""
        ...

    async def size(self, path: str) -> int:
        """Bytes. Raises RemoteResourceNotFound."""
        ...

    async def read(self, path: str, start: int, length: int) -> bytes:
        """Exactly so many bytes of an object. Raises RemoteResourceNotFound."""
        ...

    async def write(self, path: str, source: str | bytes) -> None:
        """A file of the caller's disk, or bytes."""
        ...

    async def remove(self, folder: str) -> None:
        """With all that is in it."""
        ...


async def is_there(staging: Staging, path: str) -> bool:
    """Whether there is such an object, without a listing of its folder. Raises RemoteStorageError."""
    try:
        await staging.size(path)
    except RemoteResourceNotFound:
        return False
    return True


class LocalStaging:
    """In a folder. ``disk``: the folder's; ``own``: the caller's. ``writer`` tells apart who writes at the same
    time."""

    def __init__(self, disk: Disk, own: Disk, folder: str, writer: str) -> None:
        self._disk = disk
        self._own = own
        self._folder = folder
        self._top = f"{folder}/{WORK}"
        self._unfinished = f".{writer}{UNFINISHED}"

    async def names(self, folder: str = "") -> list[str]:
        path = f"{self._top}/{folder}".rstrip("/")

        def listed() -> list[str]:
            return [name for name in self._disk.list(path) if not name.endswith(UNFINISHED)]

        with remote_errors(f"cannot list {path}"):
            try:
                return await self._disk.offload(listed)
            except FileNotFoundError:
                return []

    async def size(self, path: str) -> int:
        with remote_errors(f"cannot look at {self._top}/{path}"):
            return await self._disk.offload(self._disk.size, f"{self._top}/{path}")

    async def read(self, path: str, start: int, length: int) -> bytes:
        with remote_errors(f"cannot read {self._top}/{path}"):
            data = await self._disk.offload(self._read, f"{self._top}/{path}", start, length)
        if len(data) < length:
            raise RemoteStorageError(f"{self._top}/{path} ends at {start + len(data)}, before {start + length}")
        return data

    async def write(self, path: str, source: str | bytes) -> None:
        with remote_errors(f"cannot write {self._top}/{path}"):
            await self._disk.offload(self._write, f"{self._top}/{path}", source)

    async def remove(self, folder: str) -> None:
        with remote_errors(f"cannot remove {self._top}/{folder}"):
            await self._disk.offload(self._remove, f"{self._top}/{folder}")

    def _read(self, path: str, start: int, length: int) -> bytes:
        file = self._disk.open(path, read_only=True)
        try:
            return file.pread(length, start)
        finally:
            file.close()

    def _remove(self, path: str) -> None:
        for left in reversed(range(_TIMES)):
            try:
                self._disk.remove_tree(path)
                return
            except OSError as error:
                if not left or error.errno not in _CHANGED:
                    raise

    def _write(self, path: str, source: str | bytes) -> None:
        self._disk.list(f"{self._folder}/{ROOT}")  # fails if it is not mounted
        self._disk.make_folders(path.rpartition("/")[0])
        written = path + self._unfinished
        self._disk.remove(written)
        target = self._disk.open(written, create=True)
        try:
            if isinstance(source, bytes):
                target.append([source])
            else:
                self._copy(source, target)
            target.sync()
        finally:
            target.close()
        self._disk.rename(written, path)

    def _copy(self, path: str, target: File) -> None:
        source = self._own.open(path, read_only=True)
        try:
            while target.append_from(source, PIECE, target.size):
                pass
        finally:
            source.close()
