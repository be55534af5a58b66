"""The task port: every task of a node is owned by a scope, and scopes end in order.

One implementation serves processes and the simulation: asyncio's and anyio's groups cancel in set order, which no seed
reproduces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

from milena.runtime.containment import Containment


class TaskHandle(Protocol):
    def cancel(self) -> object: ...

    def done(self) -> bool: ...


class Tasks(Protocol):
    """An owner of tasks. Tasks that process input from peers are started with ``attempt`` or ``keep``: their errors do
    not end the node."""

    def spawn(self, work: Coroutine[object, object, object], *, name: str) -> TaskHandle:
        """Start ``work``. An error that it raises is a broken invariant: the owner's ``failed`` callback is called.

        Raises RuntimeError, closing the coroutine, if the scope has been stopped.
        """
        ...

    def attempt(self, work: Coroutine[object, object, object], *, name: str) -> TaskHandle:
        """Start ``work``. Its errors are logged (``runtime.containment``) and fail only this task. Raises as
        ``spawn``."""
        ...

    def keep(self, work: Callable[[], Coroutine[object, object, object]], *, name: str) -> TaskHandle:
        """Start ``work``, and restart it after growing pauses if it fails. Raises as ``spawn``."""
        ...

    async def stop(self) -> None:
        """Cancel all tasks in order of creation and wait for each. Idempotent."""
        ...


class TaskScope:
    """Implements ``runtime.tasks.Tasks``.

    ``failed(description, error)`` is called for each task that ended with an exception other than its cancellation.
    ``contained`` receives the errors of tasks started with ``attempt`` or ``keep``.
    """

    __slots__ = ("_contained", "_failed", "_name", "_stopped", "_tasks")

    def __init__(
        self, name: str, failed: Callable[[str, BaseException | None], object], contained: Containment
    ) -> None:
        self._name = name
        self._failed = failed
        self._contained = contained
        self._stopped = False
        # A dict keeps the order of creation, a set does not.
        self._tasks: dict[asyncio.Task[object], None] = {}

    def spawn(self, work: Coroutine[object, object, object], *, name: str) -> TaskHandle:
        task = self._start(work, name)
        task.add_done_callback(self._ended)
        return task

    def attempt(self, work: Coroutine[object, object, object], *, name: str) -> TaskHandle:
        task = self._start(work, name)
        task.add_done_callback(self._attempted)
        return task

    def keep(self, work: Callable[[], Coroutine[object, object, object]], *, name: str) -> TaskHandle:
        return self.spawn(self._contained.keep(name, work), name=name)

    def _start(self, work: Coroutine[object, object, object], name: str) -> asyncio.Task[object]:
        if self._stopped:
            work.close()
            raise RuntimeError(f"task {name!r} was started in scope {self._name!r}, which has been stopped")
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work, name=f"{self._name}/{name}")
        self._tasks[task] = None
        return task

    async def stop(self) -> None:
        """Cancel and wait. A task of the scope may call it: it is not cancelled and ends by itself."""
        for task in self.cancel():
            if not task.done():
                await asyncio.wait((task,))

    def cancel(self) -> list[asyncio.Task[object]]:
        """Cancel all tasks except the caller's, in order of creation, without waiting; returns them."""
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
            # Errors are grouped by kind of task: names end with the object that the task works on.
            self._contained.note(f"task {self._name}", error, task=task.get_name())

    def _left(self, task: asyncio.Task[object]) -> BaseException | None:
        """The task's error; None if it has none or was cancelled."""
        del self._tasks[task]
        return None if task.cancelled() else task.exception()
