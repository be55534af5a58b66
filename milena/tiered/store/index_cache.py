"""A cache of the indexes of remote segments on the broker's disk: Kafka's RemoteIndexCache (docs/kafka-semantics.md:
The index cache).

Files ``<start offset>_<segment id>`` with ``.index``, ``.timeindex`` and ``.txnindex``, in ``remote-log-index-cache``
of the first log directory. The least recently used sets are evicted when the total size exceeds the limit, or after a
time without use: their files are renamed to ``.deleted`` and removed 10 s later. Sets cached by an earlier run are
validated on first use.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from milena.protocol.invariants import BrokenInvariant
from milena.runtime.clock import Timer
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.storage.files.handle_cache import HandleCache
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.names import DELETED, OFFSET_INDEX, TEMPORARY, TIME_INDEX, TXN_INDEX
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    RemoteStorageError,
    RetriableRemoteStorageError,
    cancellation_errors,
)
from milena.tiered.store.segment_indexes import SUFFIXES, Checked, IndexSet, SegmentIndexes, check, parse_name

DELETE_DELAY: Final = 10.0
"""Seconds until the files of an evicted set are removed."""
CLOCK_ROUNDING: Final = 0.001
"""Seconds by which a timer may fire early."""
OPEN_MAPS: Final = 64
MOST_SETS: Final = 50_000
"""The maximum number of sets, which bounds the memory for sets of small or empty indexes."""


class CorruptRemoteIndex(RemoteStorageError):
    """The index in the store does not match its segment. The segment itself may be intact."""


class RemoteIndexCache:
    """To be used on the loop only."""

    def __init__(
        self, runtime: Runtime, storage: RemoteStorage, folder: str, *, capacity: int, ttl_ms: int | None
    ) -> None:
        """``capacity``: bytes of all files; ``ttl_ms``: eviction time of unused sets, None for never."""
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._storage = storage
        self._folder = folder
        self._capacity = capacity
        self._ttl = None if ttl_ms is None else ttl_ms / 1000
        self._tasks = runtime.new_tasks("remote index cache")
        self._maps = HandleCache(OPEN_MAPS)
        self._sets: OrderedDict[UUID, SegmentIndexes] = OrderedDict()
        self._found: OrderedDict[UUID, tuple[IndexSet, int, float]] = OrderedDict()
        """Sets of an earlier run (size, last use), not validated yet; they are older than all others."""
        self._loading: dict[UUID, asyncio.Future[SegmentIndexes]] = {}
        self._leaving: dict[UUID, asyncio.Future[None]] = {}
        """The evicted sets whose files are not renamed yet, with the future that is done when they are."""
        self._timer: Timer | None = None
        self._log = get_logger("remote-index-cache")
        self.size = 0
        """Bytes of all sets."""

    async def start(self) -> None:
        """List the sets of an earlier run. While the folder cannot be used, no index can be cached."""
        try:
            found = await self._disk.offload(self._scan)
        except OSError as error:
            self._log.error("remote indexes cannot be kept", folder=self._folder, reason=str(error))
            found = []
        for key, size in found:
            self._found[key.id] = key, size, self._clock.monotonic()
            self.size += size
        self._shrink()
        self._wake()

    async def get(self, metadata: RemoteLogSegmentMetadata) -> SegmentIndexes:
        """Return the segment's indexes, which are fetched if they are not cached. Concurrent callers share one fetch.

        Raises RemoteStorageError; CorruptRemoteIndex if those in the store are invalid.
        """
        found = self._sets.get(metadata.id)
        while found is None:
            # Shielded: others wait for it as well. Another set may evict it before this task continues.
            await asyncio.shield(self._loading.get(metadata.id) or self._load(metadata))
            found = self._sets.get(metadata.id)
        self._sets.move_to_end(metadata.id)
        found.used_at = self._clock.monotonic()
        return found

    def expect(self, metadata: RemoteLogSegmentMetadata) -> None:
        """A hint that these indexes will soon be requested."""
        if metadata.id not in self._sets and metadata.id not in self._loading:
            self._load(metadata)

    def remove(self, segments: Iterable[UUID]) -> None:
        """Remove the indexes of segments that were deleted."""
        for segment in segments:
            waiting = self._loading.pop(segment, None)
            if waiting is not None:
                _fail(waiting, RemoteResourceNotFound("the segment was deleted while its indexes were fetched"))
            self._drop(segment)

    def resize(self, capacity: int) -> None:
        self._capacity = capacity
        self._shrink()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._loading.values():
            _fail(waiting, RetriableRemoteStorageError("the index cache is closed"))
        self._loading.clear()
        await self._tasks.stop()
        for found in self._sets.values():
            found.release()
        self._sets.clear()

    def _load(self, metadata: RemoteLogSegmentMetadata) -> asyncio.Future[SegmentIndexes]:
        waiting: asyncio.Future[SegmentIndexes] = asyncio.get_running_loop().create_future()
        self._loading[metadata.id] = waiting
        self._tasks.spawn(self._fill(metadata, waiting), name=f"indexes of {metadata.id}")
        return waiting

    async def _fill(self, metadata: RemoteLogSegmentMetadata, waiting: asyncio.Future[SegmentIndexes]) -> None:
        key = IndexSet(metadata.start_offset, metadata.id)
        if metadata.id in self._leaving:
            await asyncio.shield(self._leaving[metadata.id])
        try:
            with cancellation_errors():
                checked = await self._cached(key, metadata) or await self._fetched(key, metadata)
            if self._loading.get(metadata.id) is not waiting:  # removed meanwhile
                await self._disk.offload(self._remove_files, key, SUFFIXES)
                return
            found = SegmentIndexes(self._disk, self._maps, self._folder, key, checked.size, checked.aborted)
        except RemoteStorageError as error:
            self._not_loaded(metadata.id, waiting, error)
        except OSError as error:
            reason = f"cannot keep indexes in {self._folder}: {error}"
            self._not_loaded(metadata.id, waiting, RetriableRemoteStorageError(reason))
        else:
            del self._loading[metadata.id]
            found.used_at = self._clock.monotonic()
            self._sets[metadata.id] = found
            self.size += found.size
            self._shrink()
            self._wake()
            waiting.set_result(found)

    def _not_loaded(self, segment: UUID, waiting: asyncio.Future[SegmentIndexes], error: RemoteStorageError) -> None:
        if self._loading.get(segment) is waiting:  # else it was removed, and may be requested again
            del self._loading[segment]
        _fail(waiting, error)

    async def _cached(self, key: IndexSet, metadata: RemoteLogSegmentMetadata) -> Checked | None:
        """Return the set that an earlier run has cached; None if it is missing or invalid."""
        if metadata.id not in self._found:
            return None
        _, size, _ = self._found.pop(metadata.id)
        self.size -= size
        try:
            return await self._disk.offload(check, self._disk, self._folder, key, metadata.size)
        except (CorruptIndex, FileNotFoundError) as error:
            self._log.warning("cached remote indexes are fetched again", segment=str(metadata.id), reason=str(error))
            return None

    async def _fetched(self, key: IndexSet, metadata: RemoteLogSegmentMetadata) -> Checked:
        fetch = self._storage.fetch_index
        contents = {
            OFFSET_INDEX: await fetch(metadata, IndexType.OFFSET),
            TIME_INDEX: await fetch(metadata, IndexType.TIMESTAMP),
            TXN_INDEX: await self._fetched_txn_index(metadata),
        }
        await self._disk.offload(self._write, key, contents)
        try:
            return await self._disk.offload(check, self._disk, self._folder, key, metadata.size)
        except CorruptIndex as error:
            await self._disk.offload(self._remove_files, key, SUFFIXES)
            raise CorruptRemoteIndex(f"in the remote storage: {error}") from error

    async def _fetched_txn_index(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        if metadata.txn_index_empty:
            return b""
        try:
            return await self._storage.fetch_index(metadata, IndexType.TRANSACTION)
        except RemoteResourceNotFound:
            return b""  # metadata written before 3.8 does not say whether there is one

    def _write(self, key: IndexSet, contents: dict[str, bytes]) -> None:
        """Only the transaction index is synced: in it, zeros after a power loss look like entries."""
        self._disk.make_folders(self._folder)
        for suffix, data in contents.items():
            path = f"{self._folder}/{key.file(suffix)}"
            self._disk.write_atomic(path, data, sync=suffix == TXN_INDEX and bool(data))

    def _scan(self) -> list[tuple[IndexSet, int]]:
        """Return the complete sets in the folder with their sizes, least recently written first. Other files and
        incomplete sets are removed."""
        disk = self._disk
        disk.make_folders(self._folder)
        sets: dict[IndexSet, set[str]] = {}
        for name in disk.list(self._folder):
            parsed = parse_name(name)
            if name.endswith((DELETED, TEMPORARY)):
                disk.remove(f"{self._folder}/{name}")
            elif parsed is not None and parsed[1] in SUFFIXES:
                sets.setdefault(parsed[0], set()).add(parsed[1])
        whole: list[tuple[int, IndexSet, int]] = []
        for key, suffixes in sets.items():
            paths = [f"{self._folder}/{key.file(suffix)}" for suffix in SUFFIXES]
            if len(suffixes) < len(SUFFIXES):
                self._remove_files(key, SUFFIXES)
            else:
                whole.append((disk.modified_ms(paths[0]), key, sum(map(disk.size, paths))))
        return [(key, size) for _, key, size in sorted(whole)]

    def _shrink(self) -> None:
        """Evict sets beyond the limit. The most recently used set is kept, whatever its size: it is about to be
        used."""
        while (self.size > self._capacity or len(self._sets) + len(self._found) > MOST_SETS) and (
            self._found or len(self._sets) > 1
        ):
            self._drop(next(iter(self._found or self._sets)))

    def _drop(self, segment: UUID) -> None:
        if segment in self._found:
            key, size, _ = self._found.pop(segment)
        elif segment in self._sets:
            found = self._sets.pop(segment)
            found.release()
            key, size = found.key, found.size
        else:
            return
        if size > self.size:
            raise BrokenInvariant(f"indexes of {size} bytes go where {self.size} are cached")
        self.size -= size
        left = self._leaving[segment] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(self._delete(key, left), name=f"delete indexes of {segment}")

    async def _delete(self, key: IndexSet, left: asyncio.Future[None]) -> None:
        try:
            try:
                await self._disk.offload(self._mark_deleted, key)
            finally:
                del self._leaving[key.id]
                left.set_result(None)
            await self._clock.sleep(DELETE_DELAY)
            await self._disk.offload(self._remove_files, key, [suffix + DELETED for suffix in SUFFIXES])
        except OSError as error:
            # They are found again at the next start.
            self._log.warning("remote indexes cannot be removed", file=key.file(""), reason=str(error))

    def _mark_deleted(self, key: IndexSet) -> None:
        for suffix in SUFFIXES:
            path = f"{self._folder}/{key.file(suffix)}"
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED, sync=False)

    def _remove_files(self, key: IndexSet, suffixes: Iterable[str]) -> None:
        for suffix in suffixes:
            self._disk.remove(f"{self._folder}/{key.file(suffix)}")

    def _wake(self) -> None:
        """Schedule the eviction of unused sets."""
        if self._ttl is None or self._timer is not None:
            return
        oldest = min((used for used in (self._oldest_found(), self._oldest_set()) if used is not None), default=None)
        if oldest is not None:
            self._timer = self._clock.call_later(max(0.0, oldest + self._ttl - self._clock.monotonic()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        assert self._ttl is not None
        limit = self._clock.monotonic() - self._ttl + CLOCK_ROUNDING
        while (used := self._oldest_found()) is not None and used <= limit:
            self._drop(next(iter(self._found)))
        while (used := self._oldest_set()) is not None and used <= limit:
            self._drop(next(iter(self._sets)))
        self._wake()

    def _oldest_found(self) -> float | None:
        return next((used for _, _, used in self._found.values()), None)

    def _oldest_set(self) -> float | None:
        return next((found.used_at for found in self._sets.values()), None)


def _fail(waiting: asyncio.Future[SegmentIndexes], error: RemoteStorageError) -> None:
    if not waiting.done():
        waiting.set_exception(error)
        waiting.exception()  # it may have no waiter
