"""An event loop in a thread of its own: Spark calls from plain threads, what reads the tier and the wire is asyncio.

While records are made of one piece, the loop fetches the next one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar

from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime

T = TypeVar("T")


class LoopThread:
    """Use it in a ``with``. ``runtime``: the real machine's ports, for code on the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="milena", daemon=True)
        self._closers: list[Callable[[], Coroutine[object, object, None]]] = []

    def __enter__(self) -> LoopThread:
        self._thread.start()
        self.runtime: Runtime = self.run(_runtime())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for close in reversed(self._closers):
            self.run(close())
        for disk in (self.runtime.disk, self.runtime.tier_disk):
            assert isinstance(disk, RealDisk)
            disk.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def at_end(self, close: Callable[[], Coroutine[object, object, None]]) -> None:
        """What is to be closed before the loop, the last one first."""
        self._closers.append(close)

    def start(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Begin work; whoever needs its result waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.start(work).result()


async def _runtime() -> Runtime:
    return real_runtime()
