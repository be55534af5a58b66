"""A cache of chunks over a store that counts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from milena.lab.world.world import World, simulate
from milena.runtime.context import Runtime
from milena.tiered.store.chunk_cache import ChunkCache
from milena.tiered.store.remote_storage import RemoteStorageError

MIB = 1 << 20
LATENCY = 0.05
BANDWIDTH = 200 * MIB
"""Bytes a second, over all requests together."""


class SlowStore:
    """Objects of known bytes, a round trip away, over one link of a certain bandwidth."""

    def __init__(self, runtime: Runtime, *, latency: float = LATENCY, bandwidth: float = BANDWIDTH) -> None:
        self._clock = runtime.clock
        self._latency = latency
        self._bandwidth = bandwidth
        self._link_free = 0.0
        self.requests: list[tuple[str, int, int]] = []
        self.open = 0
        self.most_open = 0
        self.error: RemoteStorageError | None = None

    async def load(self, path: str, start: int, length: int) -> bytes:
        self.requests.append((path, start, length))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._clock.sleep(self._latency)
            now = self._clock.monotonic()
            self._link_free = max(now, self._link_free) + length / self._bandwidth
            await self._clock.sleep(self._link_free - now)
            if self.error is not None:
                raise self.error
            return content(start, length)
        finally:
            self.open -= 1


def content(start: int, length: int) -> bytes:
    """What stands at these places of every object."""
    whole = bytes(range(251))
    begin = start % 251
    return (whole * (length // 251 + 2))[begin : begin + length]


class Bench:
    def __init__(self, world: World, **store: float) -> None:
        self.runtime = world.machine("broker").start()
        self.clock = self.runtime.clock
        self.store = SlowStore(self.runtime, **store)

    def cache(self, *, chunk: int = 4 * MIB, capacity: int = 64 * MIB, ahead: int = 6) -> ChunkCache:
        tasks = self.runtime.new_tasks("tier")
        return ChunkCache(self.store.load, tasks, self.clock, chunk=chunk, capacity=capacity, ahead=ahead)

    async def read_all(self, cache: ChunkCache, path: str, size: int, step: int = MIB) -> float:
        """Seconds that a reader of ``step`` bytes at a time takes."""
        began = self.clock.monotonic()
        for at in range(0, size, step):
            length = min(step, size - at)
            assert await cache.read(path, size, at, length) == content(at, length)
        return self.clock.monotonic() - began


def in_simulation(body: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run(world: World) -> None:
            bench = Bench(world)
            await body(bench)
            assert not world.machine("broker").failures

        simulate(run, seed=1)

    test.__name__ = test.__qualname__ = body.__name__
    test.__module__ = body.__module__
    return test
