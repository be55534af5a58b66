"""The part of fsspec's file system interface that the tier uses, and the differences between implementations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final, Protocol

from milena.tiered.store.remote_storage import RemoteStorageError, RetriableRemoteStorageError, remote_errors

Info = Mapping[str, Any]

OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2", "memory"})
"""Protocols of stores in which objects appear atomically, and folders need not be created."""
OWN_FILES: Final = frozenset({"file", "local"})
"""Protocols whose rmdir rejects a folder with content. (Hadoop's also removes the content.)"""
MODIFIED: Final = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""The info keys for an object's modification time, by preference."""


class FileSystem(Protocol):
    """The used part of fsspec's AbstractFileSystem. All calls block and raise OSError, or errors of their library."""

    protocol: str | tuple[str, ...]

    def cat_file(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        """``end`` is exclusive. Pass it by keyword: s3fs has another argument before it."""
        ...

    def pipe_file(self, path: str, value: bytes) -> object: ...
    def put_file(self, lpath: str, rpath: str) -> object: ...
    def mv(self, path1: str, path2: str) -> object: ...
    def rm_file(self, path: str) -> object: ...
    def rmdir(self, path: str) -> object: ...
    def rm(self, path: str, recursive: bool = False) -> object: ...
    def exists(self, path: str) -> bool: ...
    def ls(self, path: str, detail: bool = True) -> list[Info]: ...
    def info(self, path: str) -> Info:
        """Return information about an object; it may come from the file system's cache of listings."""
        ...

    def makedirs(self, path: str, exist_ok: bool = False) -> object: ...
    def invalidate_cache(self, path: str | None = None) -> object: ...


def is_object_store(system: FileSystem) -> bool:
    names = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    return not OBJECT_STORES.isdisjoint(names)


def removes_empty_folders_alone(system: FileSystem) -> bool:
    names = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    return not OWN_FILES.isdisjoint(names)


def modified_ms(info: Info, unknown: int) -> int:
    """Return the modification time of an object in ms; ``unknown`` if the file system has none. File systems report it
    as seconds, a datetime or ISO text."""
    for key in MODIFIED:
        match info.get(key):
            case int() | float() as seconds:
                return int(seconds * 1000)
            case datetime() as time:
                return int(time.timestamp() * 1000)
            case str() as text:
                with suppress(ValueError):
                    return int(datetime.fromisoformat(text).timestamp() * 1000)
    return unknown


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """As ``remote_errors``; errors of a store's library other than OSError are treated as connection problems, for
    example the ValueError of a proxy's page that is not JSON. That includes everything it may raise: a CancelledError
    or StopIteration from the worker thread would leave the caller without an answer. Use in worker threads only."""
    try:
        with remote_errors(what):
            yield
    except RemoteStorageError:
        raise
    except BaseException as error:
        raise RetriableRemoteStorageError(f"{what}: {type(error).__name__}: {error}") from error


def put(system: FileSystem, source: str | bytes, path: str) -> None:
    if isinstance(source, bytes):
        system.pipe_file(path, source)
    else:
        system.put_file(source, path)


def list_folder(system: FileSystem, folder: str) -> list[tuple[str, Info]]:
    """Return name and info of the entries of a folder; empty if the folder does not exist."""
    system.invalidate_cache()
    try:
        entries = system.ls(folder, detail=True)
    except FileNotFoundError:
        return []
    return [(str(entry["name"]).rstrip("/").rpartition("/")[2], dict(entry)) for entry in entries]


def remove_tree(system: FileSystem, folder: str) -> None:
    with suppress(FileNotFoundError):
        system.rm(folder, recursive=True)
