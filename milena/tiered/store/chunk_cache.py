"""An in-memory cache of chunks of remote objects, with read-ahead for sequential readers.

A store with a latency of 50 ms and a bandwidth of 500 MB/s needs several concurrent requests. Each step of a sequential
reader doubles the number of chunks requested ahead of it, up to a limit. Readers of the same chunk share one request.
Memory is bounded: chunks that their readers have passed are evicted first, and read-ahead evicts no others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from milena.protocol.invariants import BrokenInvariant
from milena.runtime.clock import Clock
from milena.runtime.tasks import Tasks
from milena.tiered.store.remote_storage import (
    RemoteStorageError,
    RetriableRemoteStorageError,
    cancellation_errors,
)

Load = Callable[[str, int, int], Awaitable[bytes]]
"""(path, start, length) -> exactly these bytes. Raises RemoteStorageError."""

FORSAKEN: Final = 30.0
"""Seconds after which a chunk that no reader has used counts as passed."""
READERS: Final = 1000
"""The number of sequential readers that are remembered."""


class Chunk(NamedTuple):
    """One chunk of an object, counted from 0."""

    path: str
    number: int


class Slot:
    """A chunk that is cached or being loaded."""

    __slots__ = ("data", "passed", "size", "touched")

    def __init__(self, data: asyncio.Future[bytes], size: int, now: float) -> None:
        self.data = data
        self.size = size
        self.touched = now
        """The time of its request, or of its last read."""
        self.passed = False
        """Whether a reader has reached its end."""


class ChunkCache:
    """To be used on the loop only. Sizes are bytes."""

    def __init__(self, load: Load, tasks: Tasks, clock: Clock, *, chunk: int, capacity: int, ahead: int) -> None:
        """``ahead``: the maximum number of chunks that are loaded before a reader has reached them."""
        self._load = load
        self._tasks = tasks
        self._clock = clock
        self._chunk = chunk
        self._capacity = capacity
        self._ahead = ahead
        self._slots: OrderedDict[Chunk, Slot] = OrderedDict()
        self._heads: OrderedDict[Chunk, int] = OrderedDict()
        """The positions of sequential readers, and the number of chunks requested ahead of them."""
        self._closed = False
        self.used = 0
        """Bytes of cached and loading chunks."""

    async def read(self, path: str, size: int, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start`` on of an object of ``size`` bytes; the range must exist. Raises
        RemoteStorageError."""
        first, last = start // self._chunk, (start + length - 1) // self._chunk
        window = min(max(self._heads.pop(Chunk(path, first), 1), last - first), self._ahead)
        parts = []
        for index in range(first, last + 1):
            if index > first:
                window = min(2 * window, self._ahead)
            slot = self._want(Chunk(path, index), size)
            self._read_ahead(path, size, index + 1, window)
            # Shielded: the chunk remains useful if this reader is cancelled.
            data = await asyncio.shield(slot.data)
            begin = index * self._chunk
            slot.passed = slot.passed or start + length >= begin + slot.size
            parts.append(data[max(start - begin, 0) : start + length - begin])
        self._remember(Chunk(path, last), window, at_end=start + length == (last + 1) * self._chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def expect(self, path: str, size: int, start: int) -> None:
        """A hint that a sequential reader will soon reach ``start``: read ahead with the maximum number of chunks."""
        first = start // self._chunk
        self._read_ahead(path, size, first, self._ahead)
        self._remember(Chunk(path, first), self._ahead, at_end=False)

    def forget(self, path: str) -> None:
        """The object was deleted."""
        for chunk in [chunk for chunk in self._slots if chunk.path == path]:
            self._drop(chunk)

    def close(self) -> None:
        """Close the cache. Waiting readers get an error."""
        self._closed = True
        for chunk, slot in list(self._slots.items()):
            self._fail(chunk, slot, RetriableRemoteStorageError("the remote storage is closed"))
        self._slots.clear()
        self.used = 0

    def _remember(self, chunk: Chunk, window: int, *, at_end: bool) -> None:
        if at_end:
            chunk, window = Chunk(chunk.path, chunk.number + 1), min(2 * window, self._ahead)
        self._heads[chunk] = max(window, self._heads.pop(chunk, 0))
        if len(self._heads) > READERS:
            self._heads.popitem(last=False)

    def _want(self, chunk: Chunk, size: int) -> Slot:
        slot = self._slots.get(chunk)
        if slot is None:
            length = self._length(chunk, size)
            self._make_room(length, for_reader=True)
            slot = self._ask(chunk, length)
        slot.touched = self._clock.monotonic()
        self._slots.move_to_end(chunk)
        return slot

    def _read_ahead(self, path: str, size: int, first: int, count: int) -> None:
        for index in range(first, min(first + count, -(-size // self._chunk))):
            chunk = Chunk(path, index)
            if chunk not in self._slots:
                length = self._length(chunk, size)
                if self._closed or not self._make_room(length, for_reader=False):
                    return
                self._ask(chunk, length)

    def _length(self, chunk: Chunk, size: int) -> int:
        return min(self._chunk, size - chunk.number * self._chunk)

    def _make_room(self, length: int, *, for_reader: bool) -> bool:
        """Evict chunks until ``length`` more bytes fit; returns whether they do. A reader gets its chunk in any case:
        there are few readers, and each waits for one chunk."""
        forsaken = self._clock.monotonic() - FORSAKEN
        for any_chunk in (False, True) if for_reader else (False,):
            for chunk, slot in list(self._slots.items()):
                if self.used + length <= self._capacity:
                    return True
                if slot.data.done() and (any_chunk or slot.passed or slot.touched <= forsaken):
                    self._drop(chunk)
        return self.used + length <= self._capacity

    def _ask(self, chunk: Chunk, length: int) -> Slot:
        if self._closed:
            raise RetriableRemoteStorageError("the remote storage is closed")
        slot = Slot(asyncio.get_running_loop().create_future(), length, self._clock.monotonic())
        self._slots[chunk] = slot
        self.used += length
        self._tasks.spawn(self._fill(chunk, slot), name=f"chunk {chunk.number} of {chunk.path}")
        return slot

    async def _fill(self, chunk: Chunk, slot: Slot) -> None:
        try:
            with cancellation_errors():
                data = await self._load(chunk.path, chunk.number * self._chunk, slot.size)
        except RemoteStorageError as error:
            self._fail(chunk, slot, error)
        else:
            if not slot.data.done():
                slot.data.set_result(data)

    def _fail(self, chunk: Chunk, slot: Slot, error: RemoteStorageError) -> None:
        """Fail the waiting readers; the next read requests the chunk again."""
        if not slot.data.done():
            slot.data.set_exception(error)
            slot.data.exception()  # it may have no reader
        if self._slots.get(chunk) is slot:
            self._drop(chunk)

    def _drop(self, chunk: Chunk) -> None:
        slot = self._slots.pop(chunk)
        if slot.size > self.used:
            raise BrokenInvariant(f"chunk {chunk} of {slot.size} bytes goes where {self.used} are cached")
        self.used -= slot.size
