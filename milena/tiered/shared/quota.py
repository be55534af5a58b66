"""Rate quotas for copying to, and reading from, the tier (KIP-956; docs/kafka-semantics.md: Quotas).

The rate is the amount recorded in the last ``windows`` windows divided by the time since the oldest of them began,
which counts as at least one whole window. Pure: the caller passes the time in ms.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class _Sample:
    begun_ms: int
    total: int = 0


class RateQuota:
    """A limit in bytes per second. It may be changed at any time."""

    __slots__ = ("_windows", "limit", "window_ms", "windows")

    def __init__(self, limit: int, *, windows: int, window_seconds: int) -> None:
        self.limit = limit
        self.windows = windows
        self.window_ms = window_seconds * 1000
        self._windows: deque[_Sample] = deque()

    def record(self, amount: int, now_ms: int) -> None:
        """Record ``amount`` bytes."""
        self._forget(now_ms)
        if not self._windows or now_ms - self._windows[-1].begun_ms >= self.window_ms:
            self._windows.append(_Sample(now_ms))
        self._windows[-1].total += amount

    def rate(self, now_ms: int) -> float:
        """Bytes per second."""
        self._forget(now_ms)
        if not self._windows:
            return 0.0
        elapsed = max(now_ms - self._windows[0].begun_ms, self.window_ms)
        return sum(window.total for window in self._windows) * 1000 / elapsed

    def throttle_ms(self, now_ms: int) -> float:
        """The minimum throttle time; 0 if the rate is within the limit."""
        excess = self.rate(now_ms) - self.limit
        return excess / self.limit * self.windows * self.window_ms if excess > 0 else 0.0

    def _forget(self, now_ms: int) -> None:
        past = now_ms - self.windows * self.window_ms
        while self._windows and self._windows[0].begun_ms <= past:
            self._windows.popleft()
