"""A shard's writes, markers, timeouts and expiration."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from milena.broker.transactions.model import EXHAUSTED_EPOCH, NO_TIMEOUT
from milena.broker.transactions.partitions import NO_PARTITIONS
from milena.broker.transactions.shard import IDS_PER_YIELD, PREPARED_PER_TURN, RETRY_SECONDS
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.transaction_records import TransactionState
from milena.runtime.limited_log import BURST
from tests.unit.broker.transactions.worlds import A, B, World, transaction

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
NONE = ErrorCode.NONE
OPEN = transaction(ONGOING, A, B, start_ms=400)
PREPARED = transaction(PREPARE_COMMIT, A, B, start_ms=400)


@pytest.fixture
def world() -> World:
    return World()


# -- writes


def test_a_state_takes_effect_when_its_record_is_committed(world: World) -> None:
    world.log.hold = True
    errors = world.change("x", transaction())
    assert world.shard.get("x") is None
    assert world.shard.is_busy("x")
    assert not errors
    world.log.commit()
    assert world.shard.get("x") == transaction()
    assert not world.shard.is_busy("x")
    assert errors == [NONE]


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refused_write_changes_nothing(world: World, refused: ErrorCode, answered: ErrorCode) -> None:
    world.change("x", OPEN)
    world.log.error = refused
    assert world.change("x", PREPARED) == [answered]
    assert world.shard.get("x") == OPEN
    assert not world.shard.is_busy("x")


def test_an_id_is_busy_until_a_late_commit(world: World) -> None:
    world.change("x", OPEN)
    world.log.hold = True
    errors = world.change("x", PREPARED)
    world.log.give_up()
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.shard.get("x") == OPEN
    assert world.shard.is_busy("x")
    world.log.commit()
    world.clock.advance(RETRY_SECONDS)
    assert world.shard.get("x") == PREPARED
    assert [work[0] for work in world.markers] == ["x"]
    assert len(errors) == 1


def test_a_second_write_of_a_busy_id_is_a_broken_invariant(world: World) -> None:
    world.log.hold = True
    world.change("x", transaction())
    with pytest.raises(BrokenInvariant, match="written again"):
        world.change("x", transaction(epoch=4))


def test_a_closed_shard_answers_all_and_refuses_writes(world: World) -> None:
    world.log.hold = True
    errors = world.change("x", transaction())
    world.shard.close()
    world.log.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert errors == [ErrorCode.NOT_COORDINATOR]
    assert world.change("y", transaction()) == [ErrorCode.NOT_COORDINATOR]
    assert len(world.log.batches) == 1


def test_nothing_happens_when_a_record_is_committed_after_the_shard_was_closed(world: World) -> None:
    world.change("x", OPEN)
    world.log.hold = True
    errors = world.change("x", PREPARED)
    world.shard.close()
    world.log.commit()
    assert errors == [ErrorCode.NOT_COORDINATOR]
    assert not world.markers


# -- markers


def test_a_prepared_transaction_is_completed_after_its_markers(world: World) -> None:
    world.change("x", OPEN)
    assert world.change("x", PREPARED) == [NONE]
    [(transactional_id, prepared, done)] = world.markers
    assert (transactional_id, prepared) == ("x", PREPARED)
    assert world.shard.is_busy("x")
    done()
    completed = world.shard.get("x")
    assert completed is not None
    assert (completed.state, completed.partitions) == (COMMITTED, NO_PARTITIONS)
    assert not world.shard.is_busy("x")


def test_the_client_is_answered_before_the_markers_are_written(world: World) -> None:
    world.change("x", OPEN)
    seen: list[int] = []
    world.shard.change("x", PREPARED, lambda error: seen.append(len(world.markers)))
    assert seen == [0]
    assert len(world.markers) == 1


def test_the_markers_are_written_even_if_the_response_fails(world: World) -> None:
    def fail(error: ErrorCode) -> None:
        raise ValueError(error.name)

    world.change("x", OPEN)
    with pytest.raises(ValueError, match="NONE"):
        world.shard.change("x", PREPARED, fail)
    assert [work[0] for work in world.markers] == ["x"]


def test_a_late_commit_takes_effect_even_if_the_response_fails(world: World) -> None:
    def fail(error: ErrorCode) -> None:
        raise ValueError(error.name)

    world.log.hold = True
    world.shard.change("x", OPEN, fail)
    with pytest.raises(ValueError, match="COORDINATOR_NOT_AVAILABLE"):
        world.log.give_up()
    world.log.commit()
    world.clock.advance(RETRY_SECONDS)
    assert world.shard.get("x") == OPEN
    assert not world.shard.is_busy("x")


def test_an_abort_without_partitions_is_complete_at_once(world: World) -> None:
    world.change("x", transaction())
    world.change("x", transaction(PREPARE_ABORT, start_ms=500, epoch=4, client_version=2))
    completed = world.shard.get("x")
    assert completed is not None
    assert completed.state is ABORTED
    assert not world.markers


def test_a_completion_that_is_refused_is_tried_again(world: World) -> None:
    world.change("x", OPEN)
    world.change("x", PREPARED)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.markers[0][2]()
    assert world.shard.get("x") == PREPARED
    assert world.shard.retries == 1
    world.clock.advance(RETRY_SECONDS)
    world.log.error = NONE
    world.clock.advance(RETRY_SECONDS)
    completed = world.shard.get("x")
    assert completed is not None
    assert completed.state is COMMITTED
    assert (world.clock.armed(), world.shard.retries) == (0, 0)


def test_a_completion_that_is_committed_late_is_not_written_twice(world: World) -> None:
    world.change("x", OPEN)
    world.change("x", PREPARED)
    world.log.hold = True
    world.markers[0][2]()
    world.log.give_up()
    world.clock.advance(10)
    assert len(world.log.batches) == 3
    world.log.commit()
    world.clock.advance(RETRY_SECONDS)
    completed = world.shard.get("x")
    assert completed is not None
    assert completed.state is COMMITTED


def test_a_second_report_of_markers_changes_nothing(world: World) -> None:
    world.change("x", OPEN)
    world.change("x", PREPARED)
    world.markers[0][2]()
    world.markers[0][2]()
    assert len(world.log.batches) == 3


def test_markers_that_are_reported_to_a_closed_shard_change_nothing(world: World) -> None:
    world.change("x", OPEN)
    world.change("x", PREPARED)
    world.shard.close()
    world.markers[0][2]()
    assert len(world.log.batches) == 2


def test_the_next_leader_writes_the_markers_of_prepared_transactions(world: World) -> None:
    for transactional_id in ("x", "y", "z"):
        world.change(transactional_id, OPEN)
    world.change("x", PREPARED)
    world.change("y", transaction(PREPARE_ABORT, A, B, start_ms=400))
    world.become_next_leader()
    assert [(work[0], work[1].state) for work in world.markers] == [("x", PREPARE_COMMIT), ("y", PREPARE_ABORT)]
    assert world.shard.is_busy("x")


def test_markers_of_loaded_transactions_wait_until_what_was_loaded_is_committed(world: World) -> None:
    world.change("x", OPEN)
    world.log.hold = True
    world.change("x", PREPARED)
    world.become_next_leader()
    assert world.shard.get("x") == PREPARED
    assert not world.markers
    world.log.give_up()
    assert not world.markers
    world.log.commit()
    world.clock.advance(RETRY_SECONDS)
    assert [work[0] for work in world.markers] == ["x"]


def test_markers_of_a_transaction_that_ends_while_others_are_continued_are_sent_once(world: World) -> None:
    for number in range(IDS_PER_YIELD):
        world.change(f"{number}", transaction())
    world.change("x", OPEN)
    world.shard.close()
    world.shard = world.reload()
    steps = world.shard.begin()
    next(steps)
    world.change("x", PREPARED)
    for _ in steps:
        pass
    assert [work[0] for work in world.markers] == ["x"]


def test_the_markers_of_many_loaded_transactions_are_sent_in_steps(world: World) -> None:
    for number in range(PREPARED_PER_TURN + 1):
        world.change(f"x{number}", OPEN)
        world.change(f"x{number}", PREPARED)
    world.become_next_leader()
    assert len(world.markers) == PREPARED_PER_TURN
    world.clock.advance(0)
    assert len(world.markers) == PREPARED_PER_TURN + 1


# -- timeouts


@pytest.mark.parametrize("loaded", [False, True])
def test_an_open_transaction_is_aborted_after_its_timeout(world: World, loaded: bool) -> None:
    world.change("x", replace(OPEN, timeout_ms=500))
    world.change("y", replace(OPEN, timeout_ms=NO_TIMEOUT))
    if loaded:
        world.become_next_leader()
    world.clock.advance(0.9)
    run_now(world.shard.abort_timed_out(world.ids.next))
    assert not world.markers
    world.clock.advance(0.001)
    run_now(world.shard.abort_timed_out(world.ids.next))
    [(transactional_id, prepared, _)] = world.markers
    assert transactional_id == "x"
    assert (prepared.state, prepared.epoch, prepared.last_epoch) == (PREPARE_ABORT, 4, 3)


def test_a_busy_transaction_is_not_aborted(world: World) -> None:
    world.change("x", replace(OPEN, timeout_ms=500))
    world.clock.advance(5)
    world.log.hold = True
    world.change("x", transaction(ONGOING, A, B, ("u", 0), start_ms=400, timeout_ms=500))
    run_now(world.shard.abort_timed_out(world.ids.next))
    assert len(world.log.batches) == 2


def test_a_transaction_that_has_ended_is_not_aborted(world: World) -> None:
    world.change("x", replace(OPEN, timeout_ms=500))
    world.change("x", replace(PREPARED, timeout_ms=500))
    world.markers.pop()[2]()
    world.clock.advance(5)
    run_now(world.shard.abort_timed_out(world.ids.next))
    assert len(world.log.batches) == 3


def test_an_abort_that_needs_a_producer_id_is_made_at_a_later_check(world: World) -> None:
    world.change("x", replace(OPEN, timeout_ms=500, epoch=EXHAUSTED_EPOCH))
    world.clock.advance(5)
    world.ids.available = False
    run_now(world.shard.abort_timed_out(world.ids.next))
    assert not world.markers
    world.ids.available = True
    run_now(world.shard.abort_timed_out(world.ids.next))
    assert world.markers[0][1].next_producer_id == 1_000


def test_the_log_of_many_timeouts_is_limited(world: World) -> None:
    for number in range(2 * BURST):
        world.change(f"{number}", replace(OPEN, timeout_ms=500, epoch=EXHAUSTED_EPOCH))
    world.clock.advance(5)
    with capture_logs() as events:
        for available in (False, True):
            world.ids.available = available
            run_now(world.shard.abort_timed_out(world.ids.next))
    assert Counter(event["event"] for event in events) == {
        "transaction not aborted": BURST,
        "transaction aborted after its timeout": BURST,
    }


# -- expiration


def test_ids_without_transitions_are_removed(world: World) -> None:
    world.change("old", transaction(update_ms=1_000))
    world.change("new", transaction(update_ms=3_000))
    world.change("open", OPEN)
    world.clock.advance(4)
    run_now(world.shard.expire(2_000))
    assert set(world.shard.transactions) == {"new", "open"}
    assert set(world.reload().transactions) == {"new", "open"}


def test_an_id_is_busy_until_its_tombstone_is_committed(world: World) -> None:
    world.change("old", transaction())
    world.clock.advance(4)
    world.log.hold = True
    run_now(world.shard.expire(2_000))
    assert world.shard.is_busy("old")
    assert world.shard.get("old") is not None
    run_now(world.shard.expire(2_000))
    assert len(world.log.batches) == 2
    world.log.give_up()
    assert world.shard.is_busy("old")
    world.log.commit()
    world.clock.advance(RETRY_SECONDS)
    assert not world.shard.is_busy("old")
    assert world.shard.get("old") is None


def test_an_id_stays_if_its_tombstone_is_refused(world: World) -> None:
    world.change("old", transaction())
    world.clock.advance(4)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    run_now(world.shard.expire(2_000))
    assert world.shard.get("old") == transaction()
    assert not world.shard.is_busy("old")


def test_many_ids_expire_in_steps_and_several_batches(world: World) -> None:
    world.load({f"id-{number}": transaction() for number in range(3 * IDS_PER_YIELD)})
    world.clock.advance(4)
    steps = sum(1 for _ in world.shard.expire(2_000))
    assert steps == 3
    assert not world.shard.transactions
    records = [view.record_count for batch in world.log.batches for view in iter_batches(memoryview(batch))]
    assert sum(records) == 3 * IDS_PER_YIELD
    assert max(len(batch) for batch in world.log.batches) <= 16_384


def test_long_ids_expire_in_batches_that_fit_into_a_message(world: World) -> None:
    ids = [f"{number}".rjust(length, "x") for number, length in enumerate([32_000, 10, 10, 9_000, 9_000])]
    world.load({one: transaction() for one in ids})
    world.clock.advance(4)
    run_now(world.shard.expire(2_000))
    assert not world.shard.transactions
    records = [view.record_count for batch in world.log.batches for view in iter_batches(memoryview(batch))]
    assert records == [1, 3, 1]
