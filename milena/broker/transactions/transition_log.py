"""The latest transitions of a coordinator's transactional ids, and refusals to fenced producers, for the lab command
``transactions``."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, NamedTuple

from milena.broker.transactions.model import Transaction
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import ProducerIdAndEpoch
from milena.runtime.clock import Clock

KEPT: Final = 1_000
"""The number of transitions kept in a lab; older ones are dropped."""


class Cause(Enum):
    """Why a state is written."""

    REQUEST = "request"
    """A request of the client, or all markers are written."""
    TIMEOUT = "timeout"
    """The transaction is older than its timeout."""
    FENCED = "fenced"
    """Another producer has initialized the id while a transaction was open."""
    EXPIRED = "expired"
    """The id was not used for ``transactional.id.expiration.ms``."""
    REFUSED = "refused"
    """A request of a fenced producer was refused, which is no transition."""


class Transition(NamedTuple):
    """A committed change of a transactional id's state. ``before`` is None for a new id, ``after`` for a removed
    one. With the cause ``REFUSED`` both are the present state, and producer id and epoch those of the request."""

    at_ms: int
    transactional_id: str
    before: TransactionState | None
    after: TransactionState | None
    cause: Cause
    producer_id: int
    epoch: int
    partitions: int
    """How many partitions the transaction has, or had."""

    def as_json(self) -> dict[str, object]:
        return self._asdict() | {
            "before": None if self.before is None else self.before.label,
            "after": None if self.after is None else self.after.label,
            "cause": self.cause.value,
        }


class TransitionLog:
    """The transitions of all ids that a broker coordinates. Outside of a lab nothing is kept."""

    def __init__(self, clock: Clock, *, keeps: bool) -> None:
        """``keeps``: whether to keep the transitions for ``since``."""
        self._clock = clock
        self._kept: deque[Transition] | None = deque(maxlen=KEPT) if keeps else None
        self.last = 0
        """The number of the newest transition."""
        self.version = 0
        """A number that changes with each change of an id, and of the set of ids."""

    def touch(self) -> None:
        """Note that the ids have changed without a transition."""
        self.version += 1

    def add(self, transactional_id: str, before: Transaction | None, after: Transaction | None, cause: Cause) -> None:
        """Note what an id was and what it is now. Partitions that are added to an open transaction are no
        transition."""
        self.version += 1
        if self._kept is None:
            return
        former, state = None if before is None else before.state, None if after is None else after.state
        if former is state is TransactionState.ONGOING:
            return
        self.last += 1
        known = after or before
        assert known is not None
        partitions = max(len(one.partitions) for one in (before, after) if one is not None)
        now_ms = self._clock.time_ms()
        self._kept.append(
            Transition(now_ms, transactional_id, former, state, cause, known.producer_id, known.epoch, partitions)
        )

    def refuse(self, transactional_id: str, present: Transaction, producer: ProducerIdAndEpoch) -> None:
        """Note that the request of a fenced producer was refused. What it repeats is noted once."""
        if self._kept is None:
            return
        state, count, now_ms = present.state, len(present.partitions), self._clock.time_ms()
        refused = Transition(now_ms, transactional_id, state, state, Cause.REFUSED, *producer, count)
        if self._kept and self._kept[-1]._replace(at_ms=now_ms) == refused:
            return
        self.version += 1
        self.last += 1
        self._kept.append(refused)

    def since(self, number: int) -> list[Transition]:
        """Return the kept transitions with greater numbers, oldest first."""
        kept = self._kept or ()
        count = min(max(self.last - number, 0), len(kept))
        return list(kept)[len(kept) - count :]
