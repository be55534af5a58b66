"""A pool of readers over a store by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from milena.tiered.reading.reader_pool import ReaderPool
from tests.unit.tiered.tiered_log import Bench, on_bench


class Waiter:
    """Records the results and errors that it receives."""

    def __init__(self) -> None:
        self.results: list[tuple[Hashable, Any]] = []
        self.heard = asyncio.Event()

    def read_done(self, key: Hashable, result: Any, error: Exception | None) -> None:
        self.results.append((key, error or result))
        self.heard.set()


class Store:
    """Work that ends when it is let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gate = asyncio.Event()

    def work(self, name: str, outcome: Exception | None = None) -> Callable[[], Awaitable[str]]:
        async def work() -> str:
            self.begun.append(name)
            await self.gate.wait()
            if outcome is not None:
                raise outcome
            return name.upper()

        return work


def with_pool(scenario: Callable[[ReaderPool, Store, Bench], Awaitable[None]]) -> None:
    async def run(bench: Bench) -> None:
        bench.keys |= {"remote.log.reader.threads": 2, "remote.log.reader.max.pending.tasks": 2}
        pool = ReaderPool(bench.tier, bench.metrics)
        await scenario(pool, Store(), bench)
        await pool.stop()

    on_bench(run)
