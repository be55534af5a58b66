"""A shard of transactional ids with a log, producer ids and markers that the test controls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from milena.broker.transactions.census import counted
from milena.broker.transactions.decisions import NoProducerIds
from milena.broker.transactions.loading import load
from milena.broker.transactions.model import Transaction
from milena.broker.transactions.partitions import NO_PARTITIONS
from milena.broker.transactions.shard import Shard
from milena.broker.transactions.transition_log import TransitionLog
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import ProducerEpoch, ProducerId, ProducerIdAndEpoch, TopicPartition
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from tests.unit.broker.groups.hand_log import HandLog
from tests.unit.broker.hand_clock import HandClock

A, B = ("t", 0), ("t", 1)
TIMEOUT_MS = 60_000


def producer(producer_id: int, epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(ProducerId(producer_id), ProducerEpoch(epoch))


def transaction(
    state: TransactionState = TransactionState.EMPTY,
    *partitions: TopicPartition,
    producer_id: int = 7,
    epoch: int = 3,
    start_ms: int = -1,
    update_ms: int = 500,
    previous: int = -1,
    following: int = -1,
    last_epoch: int = -1,
    client_version: int = 0,
    timeout_ms: int = TIMEOUT_MS,
) -> Transaction:
    return Transaction(
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        timeout_ms,
        state,
        update_ms,
        start_ms,
        NO_PARTITIONS.adding(partitions),
        ProducerEpoch(last_epoch),
        ProducerId(previous),
        ProducerId(following),
        client_version,
    )


class Ids:
    """Producer ids from 1,000 on. Without ``available`` a block has to be allocated first."""

    def __init__(self) -> None:
        self._ids = count(1_000)
        self.available = True

    def next(self) -> ProducerId:
        if not self.available:
            raise NoProducerIds
        return ProducerId(next(self._ids))


class World:
    """A shard over a log in memory. Markers are written when the test calls their ``done``."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.log = HandLog()
        self.ids = Ids()
        self.version = 2
        self.markers: list[tuple[str, Transaction, Callable[[], None]]] = []
        self.transitions = TransitionLog(self.clock, keeps=True)
        self.shard = self.new_shard()

    def new_shard(self) -> Shard:
        return Shard(
            self.log,
            clock=self.clock,
            version=lambda: self.version,
            send_markers=lambda *work: self.markers.append(work),
            transitions=self.transitions,
        )

    def change(self, transactional_id: str, following: Transaction) -> list[ErrorCode]:
        """Write a state. Returns the list that gets the result."""
        errors: list[ErrorCode] = []
        self.shard.change(transactional_id, following, errors.append)
        return errors

    def load(self, transactions: dict[str, Transaction]) -> None:
        """Add ids as if they were loaded from a log."""
        self.shard.add_loaded(transactions, run_now(counted(transactions)))

    def reload(self) -> Shard:
        """A shard that is loaded from the log, like that of the next leader."""
        shard = self.new_shard()
        run_now(load(self.log, shard, LimitedLog(get_logger("transactions"), self.clock.monotonic)))
        return shard

    def become_next_leader(self) -> None:
        """Close the shard and load another one."""
        self.shard.close()
        self.markers.clear()
        self.shard = self.reload()
        run_now(self.shard.begin())
