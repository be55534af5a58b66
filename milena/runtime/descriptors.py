"""How many descriptors this process has and may have."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Final

from milena.runtime.clock import Clock

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

KEPT_SHARE: Final = 4
MOST_KEPT: Final = 64
LOOK_INTERVAL: Final = 10.0
"""Seconds between two looks at how many are open."""
SAY_INTERVAL: Final = 300.0
NEAR: Final = 0.8
"""The share of the limit from which on it is said."""


def limit() -> int:
    """How many may be open (``ulimit -n``)."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def kept() -> int:
    """The last ones, which accepted connections leave to segments, to connections of our own and to imports."""
    return min(MOST_KEPT, limit() // KEPT_SHARE)


def room_for_a_connection(fd: int, of_a_node: bool) -> bool:
    """Whether one more connection may be accepted. ``fd``: any open one. The system gives out the lowest free number.
    Nodes of the cluster may use half of what is kept: what clients do must not keep a broker from its controller.

    Raises OSError (EMFILE, ENFILE) where there is none at all.
    """
    free = os.dup(fd)
    os.close(free)
    return free < limit() - (kept() // 2 if of_a_node else kept())


def open_now() -> int:
    """How many are open; 0 if the system does not tell. To look takes a descriptor: without any, all are open."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # without the one that lists
    except FileNotFoundError:
        return 0
    except OSError:
        return limit()


class DescriptorWatch:
    """Says, every few minutes, that the limit is near: before it is reached, and connections have to wait."""

    def __init__(self, clock: Clock, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._log = log
        self._not_before = 0.0

    def start(self) -> None:
        """For the rest of the process's life."""
        self._look()
        self._clock.call_later(LOOK_INTERVAL, self.start)

    def _look(self) -> None:
        count, most, now = open_now(), limit(), self._clock.monotonic()
        if count >= NEAR * most and now >= self._not_before:
            self._not_before = now + SAY_INTERVAL
            self._log.warning(
                "descriptors run short: raise `ulimit -n`, or have fewer connections and partitions here",
                open=count,
                limit=most,
            )
