"""The error of a log with a violated invariant."""

from __future__ import annotations

from milena.protocol.errors import KafkaError
from milena.protocol.invariants import BrokenInvariant


class BrokenLog(BrokenInvariant, KafkaError):
    """A change would have violated an invariant of the log (KAFKA_STORAGE_ERROR). The change was not made, and the log
    refuses all later calls."""
