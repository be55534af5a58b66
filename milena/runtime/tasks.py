"""The task port: every task of a node is owned by a scope, and scopes end in order.

One implementation serves both worlds: asyncio's and anyio's groups cancel in set order, which no seed repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol


class TaskHandle(Protocol):
    def cancel(self) -> object: ...

    def done(self) -> bool: ...


class Tasks(Protocol):
    """An owner of tasks. What works on what others sent is started by ``attempt`` or ``keep``: it ends no node."""

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> TaskHandle:
        """Start ``work``. An error that it raises is a broken invariant: the owner's ``failed`` call-back hears of it.

        Raises RuntimeError, closing the coroutine, when the scope has been stopped."""
        ...

    def attempt(self, work: Coroutine[Any, Any, object], *, name: str) -> TaskHandle:
        """Start ``work``, whose errors are contained (``runtime.containment``): it fails alone. Raises as ``spawn``."""
        ...

    def keep(self, work: Callable[[], Coroutine[Any, Any, object]], *, name: str) -> TaskHandle:
        """Start ``work``, and anew, after growing pauses, where it ends by an error. Raises as ``spawn``."""
        ...

    async def stop(self) -> None:
        """Cancel all tasks in order of creation and wait for each. Idempotent."""
        ...
