"""Transactions in a simulated cluster whose brokers are killed: no promise is broken, and bugs that are planted in the
brokers are found."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from milena.broker.apis import write_txn_markers
from milena.broker.groups.transactional_offsets import TransactionalOffsets
from milena.broker.transactions import decisions
from milena.broker.transactions.model import Transaction
from milena.broker.transactions.shard import Shard
from milena.lab.histories.checker import Anomaly, check, counts
from milena.lab.histories.events import RequestOutcome
from milena.lab.histories.transactions.events import (
    CommittedPoll,
    ProducerInit,
    TransactionBegin,
    TransactionEnd,
    TransactionOffsets,
)
from milena.lab.world.trace import quiet_logs
from milena.protocol.errors import ErrorCode
from milena.protocol.types import ProducerIdAndEpoch, TopicPartition
from milena.storage.log.unified_log import UnifiedLog
from tests.simulation.transaction_runs import history_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_logs()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_promise_is_broken_while_brokers_are_killed(seed: int) -> None:
    history = history_of(seed)
    assert [str(one) for one in check(history) if one.fails] == []
    ends = Counter((one.commit, one.outcome) for one in history if isinstance(one, TransactionEnd))
    assert ends[True, RequestOutcome.OK] > 20
    assert ends[False, RequestOutcome.OK] > 3
    assert ends[True, RequestOutcome.FAILED] + ends[False, RequestOutcome.FAILED] > 0, "no producer was fenced"
    assert sum(isinstance(one, ProducerInit) for one in history) > 10
    assert sum(isinstance(one, TransactionOffsets) for one in history) > 5
    assert sum(isinstance(one, CommittedPoll) for one in history) > 20
    identities = {one.identity for one in history if isinstance(one, TransactionBegin) and one.identity}
    assert len(identities) > 20


Plant = Callable[[pytest.MonkeyPatch], None]


def marker_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """One marker of five is acknowledged and not written."""
    write, count = write_txn_markers._Writing.write, itertools.count()

    def lossy(self: write_txn_markers._Writing, partition: TopicPartition) -> None:
        if next(count) % 5 == 4:
            self._results.setdefault(self._marker.producer_id, {})[partition] = ErrorCode.NONE
        else:
            write(self, partition)

    monkeypatch.setattr(write_txn_markers._Writing, "write", lossy)


def marker_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two partitions always gets an abort marker."""
    write = write_txn_markers._Writing.write

    def other(self: write_txn_markers._Writing, partition: TopicPartition) -> None:
        batch = self._batch
        if partition[1] == 1:
            self._batch = replace(self._marker, commit=False).batch(0)
        write(self, partition)
        self._batch = batch

    monkeypatch.setattr(write_txn_markers._Writing, "write", other)


def answer_before_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator answers before the replicas have the record."""
    wait = Shard._when_committed

    def early(
        self: Shard,
        end: int,
        apply: Callable[[], None],
        done: Callable[[ErrorCode], None],
        then: Callable[[], None] | None = None,
    ) -> None:
        done(ErrorCode.NONE)
        wait(self, end, apply, lambda _: None, then)

    monkeypatch.setattr(Shard, "_when_committed", early)


def no_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new producer gets the epoch of the former one, which can continue."""
    end = decisions._end_with_next_epoch

    def any_epoch(present: Transaction | None, producer: ProducerIdAndEpoch, **options: Any) -> Transaction:
        return end(present, producer if present is None else present.producer, **options)

    monkeypatch.setattr(decisions, "_end_with_next_epoch", any_epoch)


def last_stable_offset_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnifiedLog, "last_stable_offset", property(lambda log: log.high_watermark))


def offsets_are_always_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = TransactionalOffsets.apply
    monkeypatch.setattr(TransactionalOffsets, "apply", lambda self, *given, commit: apply(self, *given, commit=True))


def offsets_are_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = TransactionalOffsets.apply
    monkeypatch.setattr(TransactionalOffsets, "apply", lambda self, *given, commit: apply(self, *given, commit=False))


BUGS: dict[str, tuple[Plant, set[Anomaly]]] = {
    "a marker is lost": (marker_is_lost, {Anomaly.HANGING_TRANSACTION}),
    "a partition gets another marker": (marker_differs, {Anomaly.TORN_TRANSACTION, Anomaly.LOST_COMMITTED_WRITE}),
    "the coordinator answers before the commit": (answer_before_commit, {Anomaly.LOST_COMMITTED_WRITE}),
    "a producer is not fenced": (no_fencing, {Anomaly.FENCED_WRITE}),
    "the last stable offset is ignored": (last_stable_offset_is_ignored, {Anomaly.BEYOND_LAST_STABLE}),
    "offsets of aborted transactions are committed": (offsets_are_always_committed, {Anomaly.WITHOUT_OUTPUTS}),
    "offsets of committed transactions are dropped": (offsets_are_never_committed, {Anomaly.WITHOUT_OFFSETS}),
}
TRIED = 12
"""How many seeds may be needed to find a bug."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, expected = BUGS[bug]
    plant(monkeypatch)
    found: set[Anomaly] = set()
    for seed in range(1, TRIED + 1):
        found |= counts(check(history_of(seed))).keys()
        if expected <= found:
            return
    raise AssertionError(f"found {sorted(one.value for one in found)}, not {sorted(one.value for one in expected)}")
