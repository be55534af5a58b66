"""Cooperative work: generators that yield so that the event loop can run other work, and the budget between two yields.

``run_now`` runs such a generator without pauses; ``milena/node/serving/scheduler.py`` runs other work at each yield.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Cooperative: TypeAlias = Generator[None, None, R]
"""A generator that yields None where other work may run, and returns its result."""

ELEMENTS_PER_YIELD: Final = 500
"""Elements of a request or response that are processed between two yields: one to five milliseconds."""


def run_now(work: Cooperative[R]) -> R:
    """Run ``work`` to its end without pauses. Returns its result, raises what it raises."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: R = done.value
            return result


async def run_in_steps(work: Cooperative[R], pause: Callable[[], Awaitable[object]]) -> R:
    """Run ``work`` to its end, and ``pause`` at each yield. Returns its result, raises what it raises."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: R = done.value
            return result
        await pause()


class YieldBudget:
    """Counts elements until the next yield."""

    __slots__ = ("_size", "left")

    def __init__(self, size: int = ELEMENTS_PER_YIELD) -> None:
        self.left = self._size = size

    def spend(self, elements: int) -> bool:
        """Count ``elements`` more. Returns whether the caller must yield now; in that case the budget is reset."""
        self.left -= elements
        if self.left > 0:
            return False
        self.left = self._size
        return True

    def apply(self, items: Iterable[T], work: Callable[[T], R]) -> Cooperative[list[R]]:
        """Apply ``work`` to each item in order. Returns the results. Other state may change at each yield."""
        done: list[R] = []
        for item in items:
            done.append(work(item))
            if self.spend(1):
                yield
        return done
