"""The task port: every task of a node is owned by a scope, and scopes end in order.

One implementation serves processes and the simulation: asyncio's and anyio's groups cancel in set order, which no seed
reproduces.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Protocol


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
