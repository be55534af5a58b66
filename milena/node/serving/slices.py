"""Long work on the loop in slices: other tasks run between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from milena.runtime.clock import Clock

T = TypeVar("T")
R = TypeVar("R")


async def in_slices(clock: Clock, items: Sequence[T], work: Callable[[T], R], size: int) -> list[R]:
    """Apply ``work`` to each item in order, ``size`` items per slice. State may change between two slices."""
    done: list[R] = []
    for first in range(0, len(items), size):
        if first:
            await clock.sleep(0)
        done += map(work, items[first : first + size])
    return done
