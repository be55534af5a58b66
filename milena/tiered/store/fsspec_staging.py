"""Work orders and their results in a store of fsspec (``tiered.store.staging``). For processes only."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from milena.runtime.context import Runtime
from milena.tiered.store.fsspec_system import FileSystem, is_object_store, library_errors, list_folder, put, remove_tree
from milena.tiered.store.remote_storage import RemoteStorageError
from milena.tiered.store.staging import UNFINISHED, WORK

T = TypeVar("T")


class FsspecStaging:
    """Implements ``Staging``. ``writer`` tells apart who writes at the same time."""

    def __init__(self, runtime: Runtime, url: str, options: Mapping[str, object], writer: str) -> None:
        self._disk = runtime.tier_disk
        self._connect_store = runtime.connect_store
        self._url = url
        self._options = options
        self._unfinished = f".{writer}{UNFINISHED}"
        self._reached: tuple[FileSystem, str] | None = None

    async def names(self, folder: str = "") -> list[str]:
        def listed(system: FileSystem, top: str) -> list[str]:
            found = (name for name, _ in list_folder(system, f"{top}/{folder}".rstrip("/")))
            return sorted(name for name in found if name and not name.endswith(UNFINISHED))

        return await self._do(f"cannot list {WORK}/{folder}", listed)

    async def size(self, path: str) -> int:
        def found(system: FileSystem, top: str) -> int:
            where = f"{top}/{path}"
            system.invalidate_cache(where)
            info = system.info(where)
            if info["type"] == "directory":
                raise FileNotFoundError(errno.ENOENT, f"there is no {WORK}/{path}")
            return int(info["size"])

        return await self._do(f"cannot look at {WORK}/{path}", found)

    async def read(self, path: str, start: int, length: int) -> bytes:
        def read(system: FileSystem, top: str) -> bytes:
            return bytes(memoryview(system.cat_file(f"{top}/{path}", start=start, end=start + length)))

        data = await self._do(f"cannot read {WORK}/{path}", read) if length else b""
        if len(data) != length:
            raise RemoteStorageError(f"{WORK}/{path} returned {len(data)} bytes from {start} on instead of {length}")
        return data

    async def write(self, path: str, source: str | bytes) -> None:
        def write(system: FileSystem, top: str) -> None:
            if is_object_store(system):
                put(system, source, f"{top}/{path}")
                return
            system.makedirs(f"{top}/{path}".rpartition("/")[0], exist_ok=True)
            written = f"{top}/{path}{self._unfinished}"
            put(system, source, written)
            system.mv(written, f"{top}/{path}")

        await self._do(f"cannot write {WORK}/{path}", write)

    async def remove(self, folder: str) -> None:
        await self._do(f"cannot remove {WORK}/{folder}", lambda system, top: remove_tree(system, f"{top}/{folder}"))

    async def _do(self, what: str, work: Callable[[FileSystem, str], T]) -> T:
        """Run ``work(system, top)`` in a thread."""

        def call() -> T:
            with library_errors(f"{what} in {self._url}"):
                if self._reached is None:
                    system, top = self._connect_store(self._url, self._options)
                    self._reached = cast("FileSystem", system), f"{top.rstrip('/')}/{WORK}"
                return work(*self._reached)

        return await self._disk.offload(call)
