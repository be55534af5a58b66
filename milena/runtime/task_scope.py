"""An owner of tasks that ends them in the order they were made. Serves the real and the simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from milena.runtime.containment import Containment
from milena.runtime.tasks import TaskHandle


class TaskScope:
    """Implements ``runtime.tasks.Tasks``.

    ``failed(description, error)`` hears of each task that ended by an exception other than its cancellation.
    ``contained`` takes the errors of tasks that fail alone.
    """

    __slots__ = ("_contained", "_failed", "_name", "_stopped", "_tasks")

    def __init__(
        self, name: str, failed: Callable[[str, BaseException | None], object], contained: Containment
    ) -> None:
        self._name = name
        self._failed = failed
        self._contained = contained
        self._stopped = False
        # A dict keeps the order of creation, which a set would not.
        self._tasks: dict[asyncio.Task[object], None] = {}

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> TaskHandle:
        task = self._start(work, name)
        task.add_done_callback(self._ended)
        return task

    def attempt(self, work: Coroutine[Any, Any, object], *, name: str) -> TaskHandle:
        task = self._start(work, name)
        task.add_done_callback(self._attempted)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, object]], *, name: str) -> TaskHandle:
        return self.spawn(self._contained.keep(name, work), name=name)

    def _start(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        if self._stopped:
            work.close()
            raise RuntimeError(f"task {name!r} was started in scope {self._name!r}, which has been stopped")
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work, name=f"{self._name}/{name}")
        self._tasks[task] = None
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
        error = self._left(task)
        if error is not None:
            self._failed(f"task {task.get_name()} failed", error)

    def _attempted(self, task: asyncio.Task[object]) -> None:
        error = self._left(task)
        if error is not None:
            # A place is a kind of task: names end in what one works on.
            self._contained.note(f"task {self._name}", error, task=task.get_name())

    def _left(self, task: asyncio.Task[object]) -> BaseException | None:
        """Its error, None where it has none or was cancelled."""
        del self._tasks[task]
        return None if task.cancelled() else task.exception()
