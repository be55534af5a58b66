"""An owner of tasks that ends them in the order they were made. Serves the real and the simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from runtime.tasks import TaskHandle


class TaskScope:
    """Implements ``runtime.tasks.Tasks``.

    ``failed(description, error)`` hears of each task that ended by an exception other than its cancellation.
    """

    __slots__ = ("_failed", "_name", "_stopped", "_tasks")

    def __init__(self, name: str, failed: Callable[[str, BaseException | None], object]) -> None:
        self._name = name
        self._failed = failed
        self._stopped = False
        # A dict keeps the order of creation, which a set would not.
        self._tasks: dict[asyncio.Task[object], None] = {}

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> TaskHandle:
        if self._stopped:
            work.close()
            raise RuntimeError(f"task {name!r} was started in scope {self._name!r}, which has been stopped")
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work, name=f"{self._name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def stop(self) -> None:
        """Cancel and wait. A task of the scope may call it: it is spared, and ends by itself."""
        for task in self.cancel():
            if not task.done():
                await asyncio.wait((task,))

    def cancel(self) -> list[asyncio.Task[object]]:
        """Cancel all tasks but the caller's, in order of creation, without waiting; returns them."""
        self._stopped = True
        own = asyncio.current_task()
        waiting = [task for task in self._tasks if task is not own]
        for task in waiting:
            task.cancel()
        return waiting

    def _ended(self, task: asyncio.Task[object]) -> None:
        del self._tasks[task]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._failed(f"task {task.get_name()} failed", error)
