"""Random interleavings of all that touches transactional ids: after every step memory is what a reader of the committed
log finds, and each transaction has one outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from milena.broker.coordinators import coordinator as coordinators
from milena.broker.transactions.loading import Loader
from milena.broker.transactions.model import PREPARED, Transaction
from milena.broker.transactions.shard import RETRY_SECONDS
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerIdAndEpoch
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from tests.fixtures.properties import examples
from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.hand_log import HandLog
from tests.unit.broker.hand_clock import HandClock
from tests.unit.broker.transactions.coordinators import Coordinated
from tests.unit.broker.transactions.worlds import A, B

IDS = st.sampled_from(["x", "y"])
VERSIONS = st.sampled_from([0, 2, 2])
SHIFTS = st.sampled_from([0, 0, 0, -1, 1])
"""How far the epoch of a request is from the present one: mostly it is the right one."""
FOLLOWS = {
    TransactionState.EMPTY: {"EMPTY", "ONGOING", "PREPARE_ABORT"},
    TransactionState.ONGOING: {"ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT"},
    TransactionState.PREPARE_COMMIT: {"COMPLETE_COMMIT"},
    TransactionState.PREPARE_ABORT: {"COMPLETE_ABORT"},
    TransactionState.COMPLETE_COMMIT: {"EMPTY", "ONGOING", "PREPARE_ABORT"},
    TransactionState.COMPLETE_ABORT: {"EMPTY", "ONGOING", "PREPARE_ABORT"},
}
"""The states that may follow each state in the log."""


class LedLog(HandLog):
    """A log of which this broker is the leader."""

    leads = True

    def append(self, batch: bytes, *verification: Any) -> int:
        """Append. If it is committed at once, so is everything before it."""
        end = super().append(batch, *verification)
        if not self.hold:
            self.commit()
        return end

    def lose_uncommitted(self) -> None:
        """Truncate to the high watermark, like a new leader that lacks the rest."""
        del self.batches[self.high_watermark :]


def _loader() -> Loader:
    return Loader(LimitedLog(get_logger("transactions"), HandClock().monotonic))


def read(batches: list[bytes]) -> dict[str, Transaction]:
    loader = _loader()
    for batch in batches:
        run_now(loader.apply(memoryview(batch)))
    return run_now(loader.finish())


class Interleavings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.log = LedLog()
        self.patch.setattr(coordinators, "PartitionLog", lambda *_, **__: self.log)
        self.bench = Bench(Path("unused"))

        async def turn(_: float) -> None:
            pass

        self.patch.setattr(self.bench.clock, "sleep", turn)
        self.patch.setattr(Bench, "led", lambda *_, **__: Followed())
        self.node = Coordinated(self.bench)
        self.transactions = self.node.transactions
        self.outcomes: dict[tuple[Any, ...], bool] = {}
        self.answers = 0
        self.waiting = 0

    def teardown(self) -> None:
        self.transactions.close()
        self.patch.undo()

    # -- requests

    def _producer(self, transactional_id: str, shift: int) -> ProducerIdAndEpoch | None:
        found = self.transactions.find(transactional_id)
        if found is None:
            return None
        return ProducerIdAndEpoch(found.producer_id, ProducerEpoch(max(found.epoch + shift, 0)))

    def _answer(self, *_: object) -> None:
        self.waiting -= 1

    def _ask(self, request: Any, *arguments: Any) -> None:
        """Each request is answered once: at once, later, or with an error that is raised."""
        self.waiting += 1
        try:
            request(*arguments, self._answer)
        except KafkaError:
            self._answer()

    @rule(transactional_id=IDS, shift=st.none() | SHIFTS, timeout_ms=st.sampled_from([50, 60_000]))
    def initialize(self, transactional_id: str, shift: int | None, timeout_ms: int) -> None:
        expected = None if shift is None else self._producer(transactional_id, shift)
        self._ask(self.transactions.init_producer_id, transactional_id, timeout_ms, expected)

    @rule(transactional_id=IDS, shift=SHIFTS, partition=st.sampled_from([A, B]), version=VERSIONS)
    def add(self, transactional_id: str, shift: int, partition: tuple[str, int], version: int) -> None:
        if producer := self._producer(transactional_id, shift):
            self._ask(self.transactions.add_partitions, transactional_id, producer, [partition], version)

    @rule(transactional_id=IDS, shift=SHIFTS, commit=st.booleans(), version=VERSIONS)
    def end(self, transactional_id: str, shift: int, commit: bool, version: int) -> None:
        if producer := self._producer(transactional_id, shift):
            self._ask(self.transactions.end, transactional_id, producer, commit, version)

    # -- time

    @rule(seconds=st.sampled_from([0.04, 0.5, 61.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @rule()
    def abort_timed_out(self) -> None:
        run_now(self.transactions.shard("x").abort_timed_out(self.node.producer_ids.ids.next))

    @rule(expiration_ms=st.sampled_from([100, 100_000]))
    def expire(self, expiration_ms: int) -> None:
        run_now(self.transactions.shard("x").expire(expiration_ms))

    @rule(level=st.sampled_from([0, 1, 2]))
    def change_the_feature(self, level: int) -> None:
        self.node.version = level

    # -- markers

    @precondition(lambda self: self.node.markers.sent)
    @rule(data=st.data(), fenced=st.sampled_from([False, False, True]))
    def write_markers(self, data: st.DataObject, fenced: bool) -> None:
        work = self.node.markers.sent.pop(data.draw(st.integers(0, len(self.node.markers.sent) - 1)))
        if fenced:
            work.fenced(ErrorCode.INVALID_PRODUCER_EPOCH)
        else:
            work.done()

    # -- the log

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def refuse_writes(self, error: ErrorCode) -> None:
        self.log.error = error

    @rule(hold=st.booleans())
    def hold_commits(self, hold: bool) -> None:
        self.log.hold = hold

    @rule(count=st.sampled_from([None, 1]))
    def commit(self, count: int | None) -> None:
        self.log.commit(count)

    @rule()
    def give_up(self) -> None:
        self.log.give_up()

    @rule(loses=st.booleans())
    def change_the_leader(self, loses: bool) -> None:
        self.transactions.resigned(0)
        self.log.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert not self.waiting, "a request is answered when the leadership ends"
        if loses:
            self.log.lose_uncommitted()
        self.log.commit()
        self.node.elect()
        self.node.tasks.run()

    # -- what holds

    @invariant()
    def memory_is_the_committed_log(self) -> None:
        # A commit after the timeout is noticed at the next wait.
        self.bench.clock.advance(RETRY_SECONDS)
        memory = {
            name: replace(found, last_epoch=NO_PRODUCER_EPOCH)
            for name, found in self.transactions.shard("x").transactions.items()
        }
        assert _without_tags(memory) == _without_tags(read(self.log.batches[: self.log.high_watermark]))

    @invariant()
    def the_census_is_that_of_the_ids(self) -> None:
        shard = self.transactions.shard("x")
        states = {name: found.state for name, found in shard.transactions.items()}
        assert +shard.census.counts == Counter(states.values())
        assert set(shard.census.open) == {name for name, state in states.items() if state is TransactionState.ONGOING}
        assert set(shard.census.prepared) == {name for name, state in states.items() if state in PREPARED}

    @invariant()
    def states_follow_each_other(self) -> None:
        before = dict[str, Transaction]()
        for batch in self.log.batches:
            changed = read([batch])
            for name, following in changed.items():
                present = before.get(name)
                assert following.state.name in (FOLLOWS[present.state] if present else {"EMPTY"})
            before |= changed

    @invariant()
    def each_transaction_has_one_outcome(self) -> None:
        for work in self.node.markers.sent:
            found = self.transactions.find(work.transactional_id)
            assert found is not None
            key = (work.transactional_id, work.producer_id, found.start_ms, tuple(work.partitions))
            assert self.outcomes.setdefault(key, work.commit) is work.commit


def _without_tags(found: dict[str, Transaction]) -> dict[str, Transaction]:
    """Without the fields that a value of version 0 lacks."""
    return {
        name: replace(one, previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_version=0)
        for name, one in found.items()
    }


class Followed:
    """Stands for the partition, whose log is a LedLog."""

    topic = "__transaction_state"

    def become(self, image: object) -> None:
        pass


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=examples(60), stateful_step_count=40, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
