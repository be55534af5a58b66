"""A tier in any store that fsspec supports: S3, GCS, Azure, HDFS, ... with the names of Kafka's LocalTieredStorage.

For processes only, not the simulation: fsspec's calls block and run in worker threads. In object stores an object
appears atomically; in other file systems it is written beside Kafka's part of the tree and renamed into it. fsspec
cannot sync: for a local folder use ``tiered.store.local_tier``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar, cast
from uuid import UUID

from milena.protocol.uuids import to_text
from milena.runtime.context import Runtime
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from milena.tiered.store import tier_names
from milena.tiered.store.chunk_cache import ChunkCache
from milena.tiered.store.fsspec_system import (
    FileSystem,
    Info,
    is_object_store,
    library_errors,
    list_folder,
    modified_ms,
    put,
    remove_tree,
    removes_empty_folders_alone,
)
from milena.tiered.store.partition_folders import ATTEMPTS
from milena.tiered.store.remote_storage import (
    INCOMPLETE_AGE_MS,
    LOG_SUFFIX,
    IndexType,
    RemoteRange,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentFiles,
    StoredSegment,
    TruncatedObject,
    length_of_range,
    nothing_at,
)
from milena.tiered.store.tier_identity import IDENTITY, Claim, encode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FsspecSettings:
    """The location of the tier, its options, and the limits of read-ahead (sizes in bytes)."""

    url: str
    options: Mapping[str, object]
    """Passed to the file system: keys, endpoints, ..."""
    chunk: int
    cache: int
    ahead: int
    """The maximum number of chunks loaded before a sequential reader has reached them."""


class FsspecTier:
    """Implements ``tiered.store.remote_storage.RemoteStorage``. Brokers may share the tree; ``owner`` distinguishes
    them."""

    def __init__(
        self,
        runtime: Runtime,
        settings: FsspecSettings,
        owner: str,
        *,
        system: FileSystem | None = None,
        claim: Claim | None = None,
    ) -> None:
        """``system``: used instead of the one that the URL names; the URL is then the path in it."""
        self._disk = runtime.tier_disk
        self._own_disk = runtime.disk
        self._clock = runtime.clock
        self._connect_store = runtime.connect_store
        self._settings = settings
        self._owner = owner
        self._system = system
        self._claim = claim
        self._top = settings.url.rstrip("/")
        self._tasks = runtime.new_tasks("tier")
        self._under_way: dict[str, None] = {}
        self._copies = 0
        self._chunks = ChunkCache(
            self._load,
            self._tasks,
            runtime.clock,
            chunk=settings.chunk,
            capacity=settings.cache,
            ahead=settings.ahead,
        )

    async def start(self) -> None:
        def make(system: FileSystem) -> None:
            if self._claim is not None:
                if self._is_there(system):  # otherwise it is created by the first copy, when the metadata are known
                    self._check_owner(system)
            elif not is_object_store(system):
                system.makedirs(f"{self._top}/{tier_names.ROOT}", exist_ok=True)

        await self._do(f"cannot make {self._settings.url}", make)

    async def check(self) -> None:
        await self._do(f"cannot use {self._settings.url}", self._check_owner)

    async def own(self, cluster_id: str) -> None:
        await self._connected()
        await self._do(f"cannot own {self._settings.url}", put, encode(cluster_id), f"{self._top}/{IDENTITY}")

    def _is_there(self, system: FileSystem) -> bool:
        root = f"{self._top}/{tier_names.ROOT}"
        return bool(list_folder(system, root)) if is_object_store(system) else system.exists(root)

    def _check_owner(self, system: FileSystem) -> None:
        """Check or write the file that names the tier's owner. Raises RemoteStorageError."""
        if self._claim is None:
            return
        path = f"{self._top}/{IDENTITY}"
        try:
            found = bytes(memoryview(system.cat_file(path)))
        except FileNotFoundError:
            found = None
        identity = self._claim.check(self._settings.url, found, is_there=found is not None or self._is_there(system))
        if not is_object_store(system):
            system.makedirs(f"{self._top}/{tier_names.ROOT}", exist_ok=True)
        if identity is not None:
            put(system, identity, path)

    async def copy(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        what = f"cannot copy segment {to_text(metadata.id)} to {self._settings.url}"
        objects = tier_names.sources(files)
        await self._connected()
        await self._check_sources(what, objects, metadata.size)
        self._copies += 1
        folder = f"{self._top}/{tier_names.COPYING}/{self._owner}/{to_text(metadata.id)}.{self._copies}"
        self._under_way[folder.rpartition("/")[2]] = None
        try:
            if files.description is not None:
                await self._do(what, self._describe, metadata, files.description)
            await self._do(what, self._put, objects, metadata, folder)
        except RemoteStorageError:
            with suppress(RemoteStorageError):  # the first error is reported; leftovers are swept later
                await self.delete(metadata)
                await self._do(what, remove_tree, folder)
            raise
        finally:
            del self._under_way[folder.rpartition("/")[2]]
        return None

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        length = length_of_range(metadata.size, start, end)
        if not length:
            return nothing_at(start)
        await self._connected()
        path = self._path(metadata, LOG_SUFFIX)
        return RemoteRange(start, length, None, lambda: self._chunks.read(path, metadata.size, start, length))

    def expect(self, metadata: RemoteLogSegmentMetadata, start: int = 0) -> None:
        if self._system is not None and start < metadata.size:
            self._chunks.expect(self._path(metadata, LOG_SUFFIX), metadata.size, start)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        await self._connected()
        path = self._path(metadata, index.value)
        return await self._do(f"cannot read {path}", lambda system: bytes(memoryview(system.cat_file(path))))

    async def description(self, segment: RemoteLogSegmentId, start_offset: int) -> bytes | None:
        await self._connected()
        path = f"{self._top}/{tier_names.description_path(segment.partition, start_offset, segment.id)}"
        try:
            return await self._do(f"cannot read {path}", lambda system: bytes(memoryview(system.cat_file(path))))
        except RemoteResourceNotFound:
            return None

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._delete(metadata.partition, metadata.start_offset, metadata.id)

    async def segments(self, partition: TopicIdPartition | None = None) -> list[StoredSegment]:
        await self._connected()
        root = f"{self._top}/{tier_names.ROOT}"
        if partition is None:
            entries = await self._do(f"cannot list {root}", list_folder, root)
            found = (tier_names.parse_folder(name) for name, _ in entries)
            partitions = sorted(
                (found_partition for found_partition in found if found_partition is not None),
                key=tier_names.partition_folder,
            )
        else:
            partitions = [partition]
        return [segment for found_partition in partitions for segment in await self._segments(found_partition)]

    async def foreign(self) -> list[str]:
        await self._connected()
        top = f"{self._top}/{tier_names.ROOT}"
        found = []
        for folder, info in await self._do(f"cannot list {top}", list_folder, top):
            path = f"{tier_names.ROOT}/{folder}"
            if info.get("type") != "directory" or tier_names.parse_folder(folder) is None:
                found.append(path)
                continue
            names = await self._do(f"cannot list {path}", list_folder, f"{self._top}/{path}")
            found += [f"{path}/{name}" for name, _ in names if tier_names.parse_object(name) is None]
        return sorted(found)

    async def sweep_incomplete(self, partition: TopicIdPartition, known: Collection[UUID]) -> list[RemoteLogSegmentId]:
        await self._connected()
        copies = f"{self._top}/{tier_names.COPYING}/{self._owner}"
        for name, _ in await self._do(f"cannot list {copies}", list_folder, copies):
            if name not in self._under_way:
                await self._do(f"cannot delete {copies}/{name}", remove_tree, f"{copies}/{name}")
        limit = self._clock.time_ms() - INCOMPLETE_AGE_MS
        incomplete = [
            segment
            for segment in await self._segments(partition)
            if LOG_SUFFIX not in segment.objects and segment.segment_id.id not in known and segment.modified_ms <= limit
        ]
        for segment in incomplete:
            await self._delete(partition, segment.start_offset, segment.segment_id.id)
        alone = [one for one in await self._described_alone(partition, limit) if one[1] not in known]
        for start_offset, described in alone:
            await self._delete(partition, start_offset, described)
        return [*(one.segment_id for one in incomplete), *(RemoteLogSegmentId(partition, one) for _, one in alone)]

    async def _described_alone(self, partition: TopicIdPartition, before_ms: int) -> list[tuple[int, UUID]]:
        """Return the descriptions that belong to no segment and were written before a time."""
        folder, now = f"{self._top}/{tier_names.description_folder(partition)}", self._clock.time_ms()
        there = {(one.start_offset, one.segment_id.id) for one in await self._segments(partition)}
        entries = await self._do(f"cannot list {folder}", list_folder, folder)
        old = [tier_names.parse_description(name) for name, info in entries if modified_ms(info, now) <= before_ms]
        return [one for one in old if one is not None and one not in there]

    async def remove_work_orders(self) -> bool:
        folder = f"{self._top}/{tier_names.WORK_ORDERS}"

        def remove(system: FileSystem) -> bool:
            if not list_folder(system, folder):
                return False
            remove_tree(system, folder)
            return True

        await self._connected()
        return await self._do(f"cannot remove {folder}", remove)

    async def close(self) -> None:
        self._chunks.close()
        await self._tasks.stop()

    def _path(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        return f"{self._top}/{tier_names.object_path(metadata, suffix)}"

    async def _do(self, what: str, work: Callable[..., T], *arguments: object) -> T:
        """Run ``work(system, *arguments)`` in a thread. If the tier's root itself is missing, for example because it is
        not mounted, a missing object is a retriable error."""
        system = await self._connected()

        def call() -> T:
            try:
                with library_errors(what):
                    return work(system, *arguments)
            except RemoteResourceNotFound:
                root = f"{self._top}/{tier_names.ROOT}"
                with library_errors(what):
                    if is_object_store(system) or system.exists(root):
                        raise
                where = "it" if root in what else root
                raise RetriableRemoteStorageError(f"{what}: {where} does not exist, or is not mounted") from None

        return await self._disk.offload(call)

    async def _connected(self) -> FileSystem:
        """Return the file system, and connect to it at the first call. Call it before building a path, since it
        determines the prefix of paths."""
        system = self._system
        return system if system is not None else await self._disk.offload(self._connect)

    def _connect(self) -> FileSystem:
        url = self._settings.url
        with library_errors(f"cannot reach {url}"):
            try:
                found, top = self._connect_store(url, self._settings.options)
            except (ImportError, ValueError) as error:
                raise RemoteStorageError(f"cannot reach {url}: {error}") from error
        self._top = top.rstrip("/")
        self._system = system = cast("FileSystem", found)
        return system

    async def _load(self, path: str, start: int, length: int) -> bytes:
        def read(system: FileSystem) -> bytes:
            return bytes(memoryview(system.cat_file(path, start=start, end=start + length)))

        data = await self._do(f"cannot read {path}", read)
        if len(data) != length:
            why = f"{path} returned {len(data)} bytes from position {start} on instead of {length}"
            raise TruncatedObject(why, start + len(data))
        return data

    async def _check_sources(self, what: str, objects: list[tuple[str, str | bytes]], size: int) -> None:
        """Check the segment's own files: problems there are not errors of the tier."""
        for suffix, source in objects:
            if isinstance(source, str):
                try:
                    found = await self._disk.offload(self._own_disk.size, source)
                except OSError as error:
                    raise RemoteStorageError(f"{what}: {source}: {error.strerror}") from error
                if suffix == LOG_SUFFIX and found != size:
                    raise RemoteStorageError(f"{what}: {source} has {found} bytes, its metadata says {size}")

    def _describe(self, system: FileSystem, metadata: RemoteLogSegmentMetadata, description: bytes) -> None:
        """Write a segment's description. In a file system it may be incomplete after a crash; the segment is written
        later, and the description has a checksum."""
        self._check_owner(system)
        path = f"{self._top}/{tier_names.description_path(metadata.partition, metadata.start_offset, metadata.id)}"
        if not is_object_store(system):
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
        put(system, description, path)

    def _put(
        self,
        system: FileSystem,
        objects: list[tuple[str, str | bytes]],
        metadata: RemoteLogSegmentMetadata,
        folder: str,
    ) -> None:
        self._check_owner(system)
        if is_object_store(system):
            for suffix, source in objects:
                put(system, source, self._path(metadata, suffix))
            return
        if not system.exists(f"{self._top}/{tier_names.ROOT}"):
            raise FileNotFoundError(errno.ENOENT, "the tier's root is missing")
        system.makedirs(folder, exist_ok=True)
        for suffix, source in objects:
            put(system, source, f"{folder}/{suffix[1:]}")
        (first, _), *others = objects
        self._enter(system, f"{folder}/{first[1:]}", self._path(metadata, first))
        for suffix, _ in others:
            system.mv(f"{folder}/{suffix[1:]}", self._path(metadata, suffix))
        remove_tree(system, folder)

    def _enter(self, system: FileSystem, source: str, path: str) -> None:
        """Move a segment's first object into its partition's folder, which another broker may remove until then."""
        home = path.rpartition("/")[0]
        for attempt in range(ATTEMPTS):
            system.makedirs(home, exist_ok=True)
            try:
                system.mv(source, path)
                return
            except FileNotFoundError:
                if attempt == ATTEMPTS - 1 or system.exists(home):
                    raise

    async def _delete(self, partition: TopicIdPartition, start_offset: int, segment: UUID) -> None:
        await self._connected()
        home = f"{self._top}/{tier_names.partition_folder(partition)}"

        def remove(system: FileSystem) -> None:
            if not is_object_store(system) and not system.exists(home):
                system.ls(f"{self._top}/{tier_names.ROOT}")
                self._forget(system, partition, start_offset, segment)
                return
            for suffix in reversed(tier_names.SUFFIXES):
                with suppress(FileNotFoundError):
                    system.rm_file(f"{home}/{tier_names.object_name(start_offset, segment, suffix)}")
            self._forget(system, partition, start_offset, segment)
            if removes_empty_folders_alone(system):
                with suppress(OSError):  # it has other segments; an empty folder that remains costs nothing
                    system.rmdir(home)

        await self._do(f"cannot delete segment {to_text(segment)} in {self._settings.url}", remove)
        self._chunks.forget(f"{home}/{tier_names.object_name(start_offset, segment, LOG_SUFFIX)}")

    def _forget(self, system: FileSystem, partition: TopicIdPartition, start_offset: int, segment: UUID) -> None:
        with suppress(FileNotFoundError):
            system.rm_file(f"{self._top}/{tier_names.description_path(partition, start_offset, segment)}")

    async def _segments(self, partition: TopicIdPartition) -> list[StoredSegment]:
        home, now = f"{self._top}/{tier_names.partition_folder(partition)}", self._clock.time_ms()

        def found(system: FileSystem) -> list[StoredSegment]:
            return stored_segments(partition, list_folder(system, home), now)

        return await self._do(f"cannot list {home}", found)


def stored_segments(partition: TopicIdPartition, entries: list[tuple[str, Info]], now_ms: int) -> list[StoredSegment]:
    """Return the segments in a partition's folder, according to the names of the objects."""
    found: dict[tuple[int, bytes], tuple[dict[str, int], list[int]]] = {}
    for name, info in entries:
        parsed = tier_names.parse_object(name)
        if parsed is not None:
            sizes, times = found.setdefault((parsed.start_offset, parsed.id.bytes), ({}, []))
            sizes[parsed.suffix] = int(info["size"])
            times.append(modified_ms(info, now_ms))
    return [
        StoredSegment(RemoteLogSegmentId(partition, UUID(bytes=segment)), start, sizes, max(times))
        for (start, segment), (sizes, times) in sorted(found.items())
    ]
