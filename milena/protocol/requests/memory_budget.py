"""A limit on the memory of all connections of a server together, and the choice of connections to close when it is
reached.

Stalled connections are closed first, then those with the largest product of bytes and time. So a new connection with a
small request is not closed in favor of one that has used much memory for long. No I/O; ``now`` returns the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.protocol.invariants import BrokenInvariant

STALL_SECONDS: Final = 5.0
"""A connection is stalled after so many seconds without a byte."""
RATE_WINDOW: Final = 1.0
"""Seconds over which the transfer rate is measured. A window ends with the first byte after that time."""
MAX_REFILL_SECONDS: Final = 60.0
"""A connection is also stalled if, at its last transfer rate, its bytes would take more seconds than this. So single
bytes do not count as progress."""
PROGRESS_INTERVAL: Final = 60.0
"""Seconds in which an unfinished request must receive MIN_PROGRESS_BYTES, even if the budget is not used up."""
MIN_PROGRESS_BYTES: Final = 16 << 10
EXTRA_EVICTION_FRACTION: Final = 16
"""If connections must be closed, this fraction of the limit (1/16) is freed in addition, from stalled connections, so
that not each small request has to sort all connections."""


class BudgetExceeded(Exception):
    """The requesting connection itself must be closed."""


class MemoryBudget:
    """The memory limit in bytes, and the shares that use it."""

    __slots__ = ("_shares", "limit", "now", "used")

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self.limit = limit
        self.now = now
        self.used = 0
        self._shares: dict[BudgetShare, None] = {}

    def _evict_for(self, requester: BudgetShare, count: int) -> None:
        """Close connections until ``count`` more bytes fit into the limit. Raises BudgetExceeded if ``requester`` is
        the next to be closed."""
        if requester.held + count > self.limit:
            raise BudgetExceeded(f"more than {self.limit} bytes at once")
        now = self.now()
        for one in list(self._shares):
            one.refresh()
        allowed = self.limit - count
        for one in sorted(self._shares, key=lambda one: one.eviction_priority(now), reverse=True):
            if self.used <= (allowed - self.limit // EXTRA_EVICTION_FRACTION if one.is_stalled(now) else allowed):
                break
            if one is requester:
                if self.used <= allowed:
                    continue
                raise BudgetExceeded(
                    f"{self.used} of {self.limit} bytes are held, and no other connection holds more for longer"
                )
            one.evict(f"{one.held} bytes held for {now - one.since:.1f} s while others need room")


class BudgetShare:
    """The bytes of a budget that one connection uses. ``on_evict`` closes the connection; it takes the reason."""

    __slots__ = (
        "_budget",
        "_closed",
        "_current",
        "_last_rate",
        "_on_evict",
        "_progress_at",
        "_progress_bytes",
        "_rate_at",
        "_rate_bytes",
        "_transferred_at",
        "held",
        "since",
        "transferred_bytes",
    )  # fmt: skip

    def __init__(
        self, budget: MemoryBudget, on_evict: Callable[[str], object], current: Callable[[], int] | None = None
    ) -> None:
        """``current`` returns the present number of bytes, if it decreases without a call of ``hold`` (as a peer
        reads)."""
        self._budget = budget
        self._on_evict = on_evict
        self._current = current
        self._closed = False
        self.held = 0
        self.transferred_bytes = 0
        """Bytes transferred since ``since``."""
        self.since = self._transferred_at = self._rate_at = self._progress_at = 0.0
        self._rate_bytes = self._progress_bytes = 0
        self._last_rate = float("inf")

    def hold(self, count: int) -> None:
        """Set the bytes of this share to ``count``. Other connections may be closed for it. Raises BudgetExceeded."""
        more = count - self.held
        if not more or self._closed:
            return
        budget = self._budget
        if more > 0:
            if not self.held:
                self._restart_at(budget.now())
            if budget.used + more > budget.limit:
                budget._evict_for(self, more)
            budget._shares[self] = None
        if not 0 <= budget.used + more <= budget.limit or count < 0:
            raise BrokenInvariant(f"{budget.used} bytes of {budget.limit} are held, {self.held} become {count}")
        budget.used += more
        self.held = count
        if not count:
            del budget._shares[self]

    def restart(self) -> None:
        """Measure time and transfer rate from now on: the bytes now held belong to another request."""
        self._restart_at(self._budget.now())

    def transferred(self, count: int) -> None:
        """The peer has sent, or read, ``count`` bytes."""
        now = self._budget.now()
        self.transferred_bytes += count
        self._transferred_at = now
        if now - self._rate_at >= RATE_WINDOW:
            self._last_rate = (self.transferred_bytes - self._rate_bytes) / (now - self._rate_at)
            self._rate_at, self._rate_bytes = now, self.transferred_bytes

    def refresh(self) -> None:
        """Update the bytes from ``current``."""
        if self._current is not None and (left := self._current()) < self.held:
            self.transferred(self.held - left)
            self.hold(left)

    def restart_progress_timer(self) -> None:
        """Start the interval of ``overdue`` again, after a time in which this node did not read."""
        self._progress_at, self._progress_bytes = self._budget.now(), self.transferred_bytes

    def overdue(self) -> bool:
        """Whether too few bytes were transferred in the last PROGRESS_INTERVAL. Must be called regularly."""
        now = self._budget.now()
        if not self.held or now - self._progress_at < PROGRESS_INTERVAL:
            return False
        transferred_bytes = self.transferred_bytes - self._progress_bytes
        self._progress_at, self._progress_bytes = now, self.transferred_bytes
        return transferred_bytes < MIN_PROGRESS_BYTES

    def is_stalled(self, now: float) -> bool:
        """Whether no bytes, or too few, were transferred lately (STALL_SECONDS, MAX_REFILL_SECONDS)."""
        return now - self._transferred_at > STALL_SECONDS or self._last_rate * MAX_REFILL_SECONDS < self.held

    def eviction_priority(self, now: float) -> tuple[bool, float, int]:
        """Return a sort key; shares with greater keys are closed first: stalled ones, then by bytes times seconds."""
        return self.is_stalled(now), self.held * (now - self.since), self.held

    def evict(self, reason: str) -> None:
        """Release all bytes and close the connection."""
        self.close()
        self._on_evict(reason)

    def close(self) -> None:
        """Release all bytes for good: later calls of ``hold`` are ignored. Idempotent."""
        self.hold(0)
        self._closed = True

    def _restart_at(self, now: float) -> None:
        self.since = self._transferred_at = self._rate_at = self._progress_at = now
        self.transferred_bytes = self._rate_bytes = self._progress_bytes = 0
        self._last_rate = float("inf")
