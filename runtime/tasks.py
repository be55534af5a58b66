"""The task port: every task of a node is owned by a scope, and scopes end in order.

One implementation serves both worlds: asyncio's and anyio's groups cancel in set order, which no seed repeats.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol


class TaskHandle(Protocol):
    def cancel(self) -> object: ...

    def done(self) -> bool: ...


class Tasks(Protocol):
    """An owner of tasks. A task that raises is a broken invariant: the owner's ``failed`` call-back hears of it."""

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> TaskHandle:
        """Start ``work``. Raises RuntimeError, closing the coroutine, when the scope has been stopped."""
        ...

    async def stop(self) -> None:
        """Cancel all tasks in order of creation and wait for each. Idempotent."""
        ...
