"""A tier in a folder, with the names and contents of Kafka's LocalTieredStorage (docs/kafka-semantics.md: Layout of the
folder tier).

Segments are written beside Kafka's part of the folder, synced, and renamed into it, the log last: Kafka's class takes
every file in its part for a segment's. Unlike Kafka's class, a copy may be repeated, a fetch ends at its end position,
and a truncated log is an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Final, TypeVar
from uuid import UUID

from milena.protocol.uuids import to_text
from milena.runtime.context import Runtime
from milena.runtime.disk import File
from milena.runtime.logging import get_logger
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from milena.tiered.store import tier_names
from milena.tiered.store.open_logs import CutLog, OpenLogs
from milena.tiered.store.partition_folders import delete, describe, descriptions_of, forget, names_of, publish
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
    remote_errors,
)
from milena.tiered.store.tier_identity import Claim, encode, read_identity, write_identity

T = TypeVar("T")

PIECE: Final = 4 << 20
"""Bytes copied in one work item: others use the same threads in between."""
OLD_COPY_MS: Final = 24 * 60 * 60 * 1000
"""The minimum age of another broker's unfinished copy when it is swept."""


class LocalTier:
    """Implements ``tiered.store.remote_storage.RemoteStorage``. Brokers may share the folder; ``owner`` distinguishes
    them.

    ``memory`` is a file on the owner's disk. If it names the folder, a tier existed there: no new one is created in its
    place.
    """

    def __init__(
        self, runtime: Runtime, folder: str, owner: str, *, memory: str | None = None, claim: Claim | None = None
    ) -> None:
        """``claim``: without one, the tier is used whatever cluster owns it."""
        self._disk = runtime.tier_disk
        self._own_disk = runtime.disk
        self._clock = runtime.clock
        self._folder = folder
        self._root = f"{folder}/{tier_names.ROOT}"
        self._copying = f"{folder}/{tier_names.COPYING}"
        self._owner = owner
        self._memory = memory
        self._claim = claim
        self._logs = OpenLogs(self._disk, self._clock)
        self._copies = 0
        self._under_way: dict[str, None] = {}
        """Folders of copies that this adapter is writing."""

    async def start(self) -> None:
        known = await self._own_disk.offload(self._is_known)
        if known and not await self._do(f"cannot look for {self._root}", self._disk.exists, self._root):
            raise self._away
        if self._claim is None:
            if await self._do(f"cannot make {self._root}", self._start):
                get_logger("remote storage").info("folder of the tier created: it is empty", folder=self._root)
        elif await self._do(f"cannot look for {self._root}", self._disk.exists, self._root):
            await self._do(f"cannot use {self._folder}", self._check_owner)
        # Else it is created with the first copy: the metadata must be known, which may say that there was a tier.
        if not known and await self._do(f"cannot look for {self._root}", self._disk.exists, self._root):
            await self._own_disk.offload(self._remember)

    async def check(self) -> None:
        await self._do(f"cannot use {self._folder}", self._check_owner)
        if not await self._own_disk.offload(self._is_known):
            await self._own_disk.offload(self._remember)

    async def own(self, cluster_id: str) -> None:
        identity = encode(cluster_id)
        await self._do("cannot own it", write_identity, self._disk, self._folder, self._owner, identity)

    async def copy(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        self._copies += 1
        folder = f"{self._copying}/{self._owner}/{to_text(metadata.id)}.{self._copies}"
        self._under_way[folder] = None
        what = f"cannot copy segment {to_text(metadata.id)} to {self._folder}"
        try:
            try:
                await self._do(what, self._make_folder, folder)
                suffixes = await self._write(what, folder, metadata, files)
                if files.description is not None:
                    await self._do(what, self._describe, folder, metadata, files.description)
                await self._do(what, self._publish, folder, metadata, suffixes)
            except RemoteStorageError:
                await self._clean(folder)
                raise
        finally:
            del self._under_way[folder]
        return None

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        length = length_of_range(metadata.size, start, end)
        if not length:
            return nothing_at(start)
        path = f"{self._folder}/{tier_names.object_path(metadata, LOG_SUFFIX)}"
        what = f"cannot read {path}"
        try:
            part = await self._guarded(what, self._logs.range(path, start, length))
        except CutLog as cut:
            why = f"{path} has {cut.size} of its segment's {metadata.size} bytes"
            raise TruncatedObject(why, cut.size) from cut

        async def read() -> bytes:
            data = await self._do(what, part.handle.pread, length, start)
            if len(data) < length:
                raise RemoteStorageError(f"{path} was cut while it was read")
            return data

        return RemoteRange(start, length, part, read)

    def expect(self, metadata: RemoteLogSegmentMetadata, start: int = 0) -> None:
        """A reader will soon reach the segment: read more of it ahead, from its start."""
        if not start:
            self._logs.expect(f"{self._folder}/{tier_names.object_path(metadata, LOG_SUFFIX)}")

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        path = f"{self._folder}/{tier_names.object_path(metadata, index.value)}"
        return await self._do(f"cannot read {path}", self._disk.read, path)

    async def description(self, segment: RemoteLogSegmentId, start_offset: int) -> bytes | None:
        path = f"{self._folder}/{tier_names.description_path(segment.partition, start_offset, segment.id)}"
        try:
            return await self._do(f"cannot read {path}", self._disk.read, path)
        except RemoteResourceNotFound:
            return None

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._do(
            f"cannot delete segment {to_text(metadata.id)} in {self._folder}",
            self._delete,
            metadata.partition,
            metadata.start_offset,
            metadata.id,
        )
        self._logs.forget(f"{self._folder}/{tier_names.object_path(metadata, LOG_SUFFIX)}")

    async def segments(self, partition: TopicIdPartition | None = None) -> list[StoredSegment]:
        what = f"cannot list {self._root}"
        if partition is None:
            names = await self._do(what, self._disk.list, self._root)
            partitions = [found for found in map(tier_names.parse_folder, names) if found is not None]
        else:
            partitions = [partition]
            await self._do(what, self._disk.list, self._root)  # without the root, the contents are unknown
        return [segment for one in partitions for segment in await self._do(what, self._segments, one)]

    async def foreign(self) -> list[str]:
        return await self._do(f"cannot list {self._root}", self._foreign)

    async def sweep_incomplete(self, partition: TopicIdPartition, known: Collection[UUID]) -> list[RemoteLogSegmentId]:
        await self._do(f"cannot sweep {self._copying}", self._sweep_copies)
        what = f"cannot sweep {tier_names.partition_folder(partition)}"
        found = await self._do(what, self._incomplete, partition, known)
        for start_offset, segment in found:
            await self._do(what, self._delete, partition, start_offset, segment)
        return [RemoteLogSegmentId(partition, segment) for _, segment in found]

    async def remove_work_orders(self) -> bool:
        folder = f"{self._folder}/{tier_names.WORK_ORDERS}"

        def remove() -> bool:
            if not self._disk.exists(folder):
                return False
            self._disk.remove_tree(folder)
            return True

        return await self._do(f"cannot remove {folder}", remove)

    async def close(self) -> None:
        self._logs.close()

    async def _do(self, what: str, work: Callable[..., T], *arguments: object, **options: object) -> T:
        """Run work on the folder in a thread."""
        return await self._guarded(what, self._disk.offload(work, *arguments, **options))

    async def _guarded(self, what: str, work: Awaitable[T]) -> T:
        """If the whole folder is missing, for example because it is not mounted, a missing object is a retriable
        error."""
        try:
            with remote_errors(what):
                return await work
        except RemoteResourceNotFound:
            if await self._disk.offload(self._disk.exists, self._root):
                raise
            where = "it" if self._root in what else self._root
            raise RetriableRemoteStorageError(f"{what}: {where} does not exist, or is not mounted") from None

    def _check_owner(self) -> None:
        """Check or write the file that names the tier's owner. Raises RemoteStorageError."""
        if self._claim is None:
            return
        is_there = self._disk.exists(self._root)
        identity = self._claim.check(self._root, read_identity(self._disk, self._folder), is_there=is_there)
        if not is_there:
            if self._is_known():  # everything may have expired, so that the metadata has no segment
                raise self._away
            self._start()
        if identity is not None:
            write_identity(self._disk, self._folder, self._owner, identity)
            said = "tier claimed for this cluster" if is_there else "folder of the tier created: it is empty"
            get_logger("remote storage").info(said, folder=self._root)

    @property
    def _away(self) -> RetriableRemoteStorageError:
        what = "is missing, and existed before: mount it, or create it to start with an empty tier"
        return RetriableRemoteStorageError(f"{self._root} {what}")

    def _is_known(self) -> bool:
        try:
            return self._memory is not None and self._own_disk.read(self._memory) == self._remembered()
        except OSError:
            return False

    def _remember(self) -> None:
        """Errors of the owner's disk are ignored: they are handled elsewhere."""
        if self._memory is not None:
            with suppress(OSError):
                self._own_disk.write_atomic(self._memory, self._remembered())

    def _remembered(self) -> bytes:
        return f"0\n{self._folder}\n".encode()

    def _start(self) -> bool:
        """Create the folder, if that is allowed, and return whether it did not exist."""
        missing = []
        path = self._root
        while not self._disk.exists(path):
            missing.append(path)
            path = parent(path)
        self._disk.make_folders(self._root)
        for made in reversed(missing):
            self._disk.sync_folder(parent(made))
        return bool(missing)

    def _make_folder(self, folder: str) -> None:
        self._check_owner()
        self._disk.list(self._root)  # fails if it is not mounted: else the mount point would be filled
        self._disk.remove_tree(folder)  # an earlier run may have been killed in the same copy
        self._disk.make_folders(folder)

    async def _write(
        self, what: str, folder: str, metadata: RemoteLogSegmentMetadata, files: SegmentFiles
    ) -> list[str]:
        """Write all objects into ``folder``, synced. Returns their suffixes in the order in which they may appear."""
        written = []
        for suffix, source in tier_names.sources(files):
            path = f"{folder}/{suffix[1:]}"
            if suffix == LOG_SUFFIX:
                await self._copy_log(what, files.log, path, metadata.size)
            else:
                data = await self._own(what, self._own_disk.read, source) if isinstance(source, str) else source
                await self._do(what, self._write_object, path, data)
            written.append(suffix)
        return written

    async def _copy_log(self, what: str, source_path: str, path: str, size: int) -> None:
        source = await self._own(what, self._own_disk.open, source_path, read_only=True)
        try:
            target = await self._do(what, self._disk.open, path, create=True)
            try:
                while await self._do(what, copy_piece, source, target):
                    pass
                if target.size != size:
                    raise RemoteStorageError(f"{what}: {source_path} has {target.size} bytes, its metadata says {size}")
                await self._do(what, target.sync)
            finally:
                target.close()
        finally:
            source.close()

    async def _own(self, what: str, work: Callable[..., T], path: str, **options: object) -> T:
        """Run work on one of the segment's own files. Errors there are not errors of the tier, and a missing file is
        not a missing object."""
        try:
            return await self._disk.offload(work, path, **options)
        except OSError as error:
            raise RemoteStorageError(f"{what}: {path}: {error.strerror}") from error

    def _write_object(self, path: str, data: bytes) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.append([data])
            file.sync()
        finally:
            file.close()

    def _describe(self, folder: str, metadata: RemoteLogSegmentMetadata, description: bytes) -> None:
        written = f"{folder}/{tier_names.DESCRIPTION[1:]}"
        self._write_object(written, description)
        describe(self._disk, self._folder, written, metadata)

    def _publish(self, folder: str, metadata: RemoteLogSegmentMetadata, suffixes: list[str]) -> None:
        self._check_owner()
        publish(self._disk, self._folder, folder, metadata, suffixes)

    async def _clean(self, folder: str) -> None:
        """Remove the files of a failed copy. Files that cannot be removed are swept later."""
        try:
            await self._disk.offload(self._disk.remove_tree, folder)
        except OSError:
            return

    def _delete(self, partition: TopicIdPartition, start_offset: int, segment: UUID) -> None:
        delete(self._disk, self._folder, partition, start_offset, segment)
        forget(self._disk, self._folder, partition, start_offset, segment)

    def _names(self, partition: TopicIdPartition) -> dict[tuple[int, UUID], list[str]]:
        return names_of(self._disk, self._folder, partition)

    def _foreign(self) -> list[str]:
        found = []
        for folder in self._disk.list(self._root):
            path = f"{tier_names.ROOT}/{folder}"
            try:
                names = self._disk.list(f"{self._folder}/{path}") if tier_names.parse_folder(folder) else None
            except NotADirectoryError:
                names = None
            except FileNotFoundError:
                names = []  # its last segment has just been deleted
            if names is None:
                found.append(path)
            else:
                found += [f"{path}/{name}" for name in names if tier_names.parse_object(name) is None]
        return sorted(found)

    def _segments(self, partition: TopicIdPartition) -> list[StoredSegment]:
        found = []
        for (start_offset, segment), suffixes in self._names(partition).items():
            try:
                found.append(self._stored(partition, start_offset, segment, suffixes))
            except FileNotFoundError:
                continue  # it is being deleted
        return found

    def _stored(
        self, partition: TopicIdPartition, start_offset: int, segment: UUID, suffixes: Iterable[str]
    ) -> StoredSegment:
        home = f"{self._folder}/{tier_names.partition_folder(partition)}"
        paths = {suffix: f"{home}/{tier_names.object_name(start_offset, segment, suffix)}" for suffix in suffixes}
        sizes = {suffix: self._disk.size(path) for suffix, path in paths.items()}
        modified = max(map(self._disk.modified_ms, paths.values()))
        return StoredSegment(RemoteLogSegmentId(partition, segment), start_offset, sizes, modified)

    def _incomplete(self, partition: TopicIdPartition, known: Collection[UUID]) -> list[tuple[int, UUID]]:
        limit = self._clock.time_ms() - INCOMPLETE_AGE_MS
        found = []
        for (start_offset, segment), suffixes in self._names(partition).items():
            if segment not in known and LOG_SUFFIX not in suffixes:
                with suppress(FileNotFoundError):
                    if self._stored(partition, start_offset, segment, suffixes).modified_ms <= limit:
                        found.append((start_offset, segment))
        names = self._names(partition)
        for one in descriptions_of(self._disk, self._folder, partition):
            if one[1] not in known and one not in names:
                with suppress(FileNotFoundError):
                    path = f"{self._folder}/{tier_names.description_path(partition, *one)}"
                    if self._disk.modified_ms(path) <= limit:
                        found.append(one)
        return found

    def _sweep_copies(self) -> None:
        """Remove the remains of interrupted copies of this broker, and old ones of brokers that are gone."""
        disk = self._disk
        limit = self._clock.time_ms() - OLD_COPY_MS
        for owner in disk.list(self._copying) if disk.exists(self._copying) else ():
            for name in disk.list(f"{self._copying}/{owner}"):
                folder = f"{self._copying}/{owner}/{name}"
                if folder not in self._under_way and (owner == self._owner or self._youngest(folder) <= limit):
                    disk.remove_tree(folder)

    def _youngest(self, folder: str) -> int:
        """Return the time (ms) at which the newest file in a folder was written; for an empty folder, which may be new,
        the present time."""
        times = [self._disk.modified_ms(f"{folder}/{name}") for name in self._disk.list(folder)]
        return max(times, default=self._clock.time_ms())


def copy_piece(source: File, target: File) -> int:
    """Append the next bytes of ``source``; returns how many, 0 at its end."""
    return target.append_from(source, PIECE, target.size)


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
