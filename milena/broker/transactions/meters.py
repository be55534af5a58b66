"""Meters of transactions on a broker, with Kafka's metric names."""

from __future__ import annotations

from typing import Final

from milena.node.metrics import Metrics

_MANAGER: Final = "kafka_server_addpartitionstotxnmanager"


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
