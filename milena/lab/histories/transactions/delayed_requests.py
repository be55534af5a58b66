"""Which transactions a delayed request of an earlier one may have changed (KAFKA-17754).

If all transactions of a producer have one epoch, a coordinator or a leader cannot tell a late EndTxn or Produce of one
transaction from a request of the next one. Kafka permits what follows from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from milena.lab.histories.group_events import RequestOutcome
from milena.lab.histories.transactions.events import TransactionalSend, TransactionEnd

UNANSWERED: Final = 1.0
"""Seconds: an EndTxn that was answered sooner had one attempt. It is less than any request timeout."""


class Requests(Protocol):
    """The requests of one transaction."""

    name: str
    producer: str
    begun: float
    writes: list[TransactionalSend]
    ends: list[TransactionEnd]


def exposed(transactions: Iterable[Requests], shared: Collection[str]) -> frozenset[str]:
    """Return the names of the transactions that follow one with a request that may have been delayed. ``shared``: the
    producers whose transactions share an epoch."""
    found: set[str] = set()
    delayed: set[str] = set()
    for one in sorted((one for one in transactions if one.producer in shared), key=lambda one: one.begun):
        if one.producer in delayed:
            found.add(one.name)
        elif _may_be_delayed(one):
            delayed.add(one.producer)
    return frozenset(found)


def _may_be_delayed(one: Requests) -> bool:
    outcomes = {request.outcome for request in one.ends} | {request.outcome for request in one.writes}
    return RequestOutcome.UNKNOWN in outcomes or any(end.ended - end.begun > UNANSWERED for end in one.ends)
