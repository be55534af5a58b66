"""The error of a log whose invariant does not hold."""

from __future__ import annotations

from milena.protocol.errors import KafkaError
from milena.protocol.invariants import BrokenInvariant


class BrokenLog(BrokenInvariant, KafkaError):
    """A change would have broken an invariant of the log (KAFKA_STORAGE_ERROR). It was not made, and the log refuses
    all later calls."""
