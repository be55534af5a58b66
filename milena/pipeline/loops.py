"""An event loop in a separate thread: Spark calls the source from threads without an event loop, but the readers of the
tier and of brokers are coroutines. While the caller converts one piece of data to records, the loop fetches the next
one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime

T = TypeVar("T")


class LoopThread:
    """A context manager. ``runtime``: the real machine's ports, for code on the loop."""

    def __enter__(self) -> LoopThread:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal(name="milena"))
            self.runtime: Runtime = self.run(_runtime())
            stack.callback(self._close_disks)
            stack.callback(self._portal.call, self._portal.stop, True)  # a prefetch that no reader needs any more
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def at_end(self, close: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run ``close`` on the loop when the context ends, in reverse order of registration."""
        self._stack.callback(self._portal.call, close)

    def start(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Start a coroutine. Returns the future of its result."""
        return self._portal.start_task_soon(_awaited, work)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Return the result of a coroutine, or raise its error."""
        return self.start(work).result()

    def _close_disks(self) -> None:
        for disk in (self.runtime.disk, self.runtime.tier_disk):
            assert isinstance(disk, RealDisk)
            disk.close()


async def _awaited(work: Coroutine[object, object, T]) -> T:
    return await work


async def _runtime() -> Runtime:
    return real_runtime()
