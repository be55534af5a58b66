"""The number of file descriptors that this process has open and may open."""

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
"""Seconds between two checks of the number of open descriptors."""
SAY_INTERVAL: Final = 300.0
NEAR: Final = 0.8
"""The share of the limit from which a warning is logged."""


def limit() -> int:
    """The maximum number of open descriptors (``ulimit -n``)."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def kept() -> int:
    """The number of descriptors reserved for segments, outgoing connections and imports; accepted connections do not
    use them."""
    return min(MOST_KEPT, limit() // KEPT_SHARE)


def room_for_a_connection(fd: int, of_a_node: bool) -> bool:
    """Whether one more connection may be accepted. ``fd``: any open descriptor; the system hands out the lowest free
    number. Connections from nodes of the cluster may use half of the reserve, so that clients cannot cut a broker off
    from its controller.

    Raises OSError (EMFILE, ENFILE) if no descriptor is left.
    """
    free = os.dup(fd)
    os.close(free)
    return free < limit() - (kept() // 2 if of_a_node else kept())


def open_now() -> int:
    """The number of open descriptors; 0 if the system does not report it. The check itself needs a descriptor; if there
    is none, the limit is returned."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # without the descriptor of this listing
    except FileNotFoundError:
        return 0
    except OSError:
        return limit()


class DescriptorWatch:
    """Logs a warning every few minutes while the process is near the limit, before connections have to wait."""

    def __init__(self, clock: Clock, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._log = log
        self._not_before = 0.0

    def start(self) -> None:
        """Run for the rest of the process's life."""
        self._look()
        self._clock.call_later(LOOK_INTERVAL, self.start)

    def _look(self) -> None:
        count, most, now = open_now(), limit(), self._clock.monotonic()
        if count >= NEAR * most and now >= self._not_before:
            self._not_before = now + SAY_INTERVAL
            self._log.warning(
                "file descriptors nearly exhausted, raise ulimit -n",
                open=count,
                limit=most,
            )
