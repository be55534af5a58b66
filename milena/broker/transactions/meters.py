"""Meters of transactions on a broker, with Kafka's metric names."""

from __future__ import annotations

from collections import deque
from typing import Final

from milena.node.metrics import Metrics
from milena.runtime.clock import Clock

_MANAGER: Final = "kafka_server_addpartitionstotxnmanager"
_WINDOW: Final = 30.0
"""Seconds."""


class VerificationMeters:
    """Kafka's AddPartitionsToTxnManager."""

    __slots__ = ("_failures", "_times")

    def __init__(self, metrics: Metrics) -> None:
        self._failures = metrics.counter(
            f"{_MANAGER}_verificationfailurerate_total", "Partitions whose transaction could not be verified."
        )
        self._times = metrics.timing(f"{_MANAGER}_verificationtimems", "Milliseconds until a coordinator has answered.")

    def answered(self, seconds: float, failed: int) -> None:
        """Count a verification that took ``seconds``, and its partitions with an error."""
        self._failures.value += failed
        self._times.record(1000 * seconds)


class LoadTimes:
    """The durations of loads that ended in the last 30 seconds (Kafka's transaction-coordinator-metrics)."""

    __slots__ = ("_clock", "_loads")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loads: deque[tuple[float, float]] = deque()
        """When each load ended, in monotonic seconds, and its milliseconds."""

    def loaded(self, began: float) -> None:
        """Note a load that ends now. ``began``: monotonic seconds."""
        now = self._clock.monotonic()
        self._forget(now)
        self._loads.append((now, 1000 * (now - began)))

    def average_ms(self) -> float:
        recent = self._recent()
        return sum(recent) / len(recent) if recent else 0.0

    def longest_ms(self) -> float:
        return max(self._recent(), default=0.0)

    def _recent(self) -> list[float]:
        self._forget(self._clock.monotonic())
        return [milliseconds for _, milliseconds in self._loads]

    def _forget(self, now: float) -> None:
        while self._loads and now - self._loads[0][0] > _WINDOW:
            self._loads.popleft()
