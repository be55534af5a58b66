"""Decides what follows when a request of a transactional producer to a coordinator fails (Kafka's TransactionManager:
its ``TxnRequestHandler``). No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milena.protocol.errors import ErrorCode, KafkaError, retriable

HAS_NO_EFFECT: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Retriable errors of a coordinator that has changed nothing. After any other one a request may still take effect:
NOT_COORDINATOR also means that its leadership ended after it had written the record."""
COORDINATOR_LOST: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""The coordinator has to be looked up again."""


class Next(Enum):
    """What follows a failed attempt."""

    RETRY = "retry"
    REFUSED = "refused"
    """The error is final."""
    TIMED_OUT = "timed out"
    """There is no time for another attempt: the outcome is unknown."""


@dataclass(slots=True)
class Attempts:
    """The attempts of one request. ``deadline``: monotonic seconds, after which none is made."""

    deadline: float
    failed: int = 0
    uncertain: bool = False
    """Whether an attempt may have taken effect although it failed."""

    def after(self, error: KafkaError, now: float) -> Next:
        """Note a failed attempt. A connection that was lost is NETWORK_EXCEPTION. ``now``: monotonic seconds."""
        if not retriable(error.code):
            return Next.REFUSED
        self.uncertain = self.uncertain or error.code not in HAS_NO_EFFECT
        self.failed += 1
        return Next.TIMED_OUT if now >= self.deadline else Next.RETRY
