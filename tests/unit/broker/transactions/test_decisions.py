"""Decisions on requests of producers, beside a table of Kafka's results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milena.broker.transactions import decisions
from milena.broker.transactions.model import NO_TIMEOUT, Transaction
from milena.broker.transactions.partitions import NO_PARTITIONS
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import ProducerIdAndEpoch
from tests.unit.broker.transactions.worlds import A, B, Ids, producer, transaction

NOW = 9_000
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
SAME = producer(7, 3)
"""The present producer of ``transaction()``."""


def init(
    present: Transaction | None,
    expected: ProducerIdAndEpoch | None = None,
    *,
    busy: bool = False,
    version: int = 2,
    ids: Ids | None = None,
) -> Transaction | ErrorCode:
    try:
        return decisions.init_producer_id(
            present,
            busy=busy,
            expected=expected,
            timeout_ms=5_000,
            next_id=(ids or Ids()).next,
            version=version,
            now_ms=NOW,
        )
    except KafkaError as error:
        return error.code


def add(
    present: Transaction | None, by: ProducerIdAndEpoch = SAME, *, busy: bool = False, version: int = 2
) -> Transaction | ErrorCode:
    try:
        return decisions.add_partitions(present, by, [A, B], busy=busy, client_version=version, now_ms=NOW)
    except KafkaError as error:
        return error.code


def end(
    present: Transaction | None,
    by: ProducerIdAndEpoch = SAME,
    *,
    commit: bool = True,
    version: int = 2,
    busy: bool = False,
) -> Transaction | ErrorCode:
    try:
        return decisions.end(
            present, by, busy=busy, commit=commit, client_version=version, next_id=Ids().next, now_ms=NOW
        )
    except KafkaError as error:
        return error.code


def fields(result: Transaction | ErrorCode) -> tuple[TransactionState, int, int, int]:
    assert isinstance(result, Transaction), result
    return result.state, result.producer_id, result.epoch, result.last_epoch


# -- InitProducerId


def test_a_new_transactional_id_gets_a_new_producer_id_with_epoch_0() -> None:
    created = init(None)
    assert isinstance(created, Transaction)
    assert fields(created) == (EMPTY, 1_000, 0, -1)
    assert (created.timeout_ms, created.start_ms, created.update_ms, created.previous_producer_id) == (
        5_000,
        -1,
        NOW,
        1_000,
    )


@pytest.mark.parametrize("state", [EMPTY, COMMITTED, ABORTED])
def test_a_producer_that_starts_again_gets_the_next_epoch(state: TransactionState) -> None:
    result = init(transaction(state, start_ms=100))
    assert fields(result) == (EMPTY, 7, 4, -1)
    assert isinstance(result, Transaction)
    assert (result.start_ms, result.timeout_ms, result.partitions) == (-1, 5_000, NO_PARTITIONS)


@pytest.mark.parametrize(
    ("present", "expected", "result"),
    [
        (transaction(), producer(7, 3), (EMPTY, 7, 4, 3)),
        (transaction(epoch=4, last_epoch=3), producer(7, 3), (EMPTY, 7, 4, 3)),
        (transaction(epoch=4), producer(7, 3), ErrorCode.PRODUCER_FENCED),
        (transaction(), producer(7, 9), ErrorCode.PRODUCER_FENCED),
        (transaction(), producer(8, 3), ErrorCode.PRODUCER_FENCED),
        (transaction(epoch=0, previous=6), producer(6, 5), ErrorCode.PRODUCER_FENCED),
        (transaction(epoch=0, last_epoch=32_766, previous=6), producer(6, 32_766), (EMPTY, 7, 0, 32_766)),
        (None, producer(8, 3), (EMPTY, 1_000, 0, -1)),
    ],
)
def test_a_producer_that_continues_is_fenced_unless_its_epoch_is_the_present_or_the_last_one(
    present: Transaction | None, expected: ProducerIdAndEpoch, result: object
) -> None:
    found = init(present, expected)
    assert (found if isinstance(found, ErrorCode) else fields(found)) == result


@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_a_producer_with_the_last_epoch_gets_another_id(epoch: int) -> None:
    assert fields(init(transaction(epoch=epoch))) == (EMPTY, 1_000, 0, -1)
    assert fields(init(transaction(epoch=epoch), producer(7, epoch))) == (EMPTY, 1_000, 0, epoch)
    result = init(transaction(epoch=epoch))
    assert isinstance(result, Transaction)
    assert result.previous_producer_id == 7


def test_a_producer_that_continues_with_a_lower_epoch_than_the_last_gets_kafkas_unknown_error() -> None:
    assert init(transaction(epoch=32_766), producer(7, 5)) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_producer_that_starts_while_its_transaction_is_open_aborts_it_with_the_next_epoch() -> None:
    opened = transaction(ONGOING, A, start_ms=400)
    result = init(opened)
    assert fields(result) == (PREPARE_ABORT, 7, 4, 3)
    assert isinstance(result, Transaction)
    assert (result.partitions, result.start_ms, result.client_version) == (NO_PARTITIONS.adding([A]), 400, 2)
    # Below transaction version 2 the last epoch is forgotten: the former producer cannot continue.
    result = init(opened, version=1)
    assert fields(result) == (PREPARE_ABORT, 7, 4, -1)
    assert isinstance(result, Transaction)
    assert result.client_version == 0


def test_an_id_that_is_busy_is_not_changed() -> None:
    for answer in (init(transaction(), busy=True), init(None, busy=True), add(None, busy=True), end(None, busy=True)):
        assert answer is ErrorCode.CONCURRENT_TRANSACTIONS


def test_without_producer_ids_a_new_id_has_to_wait() -> None:
    ids = Ids()
    ids.available = False
    assert init(None, ids=ids) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert fields(init(transaction(), ids=ids)) == (EMPTY, 7, 4, -1)


# -- AddPartitionsToTxn


@pytest.mark.parametrize("state", [EMPTY, COMMITTED, ABORTED])
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    result = add(transaction(state, start_ms=100))
    assert fields(result) == (ONGOING, 7, 3, -1)
    assert isinstance(result, Transaction)
    assert (result.start_ms, result.update_ms, list(result.partitions)) == (NOW, NOW, [A, B])


def test_more_partitions_are_added_to_an_open_transaction() -> None:
    result = add(transaction(ONGOING, B, start_ms=100))
    assert isinstance(result, Transaction)
    assert (result.start_ms, list(result.partitions)) == (100, [B, A])


def test_partitions_that_are_there_already_change_nothing() -> None:
    present = transaction(ONGOING, A, B, ("u", 0))
    assert add(present) is present


@pytest.mark.parametrize(
    ("by", "error"),
    [
        (producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (producer(7, 2), ErrorCode.PRODUCER_FENCED),
        (producer(7, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_another_producer_adds_nothing(by: ProducerIdAndEpoch, error: ErrorCode) -> None:
    assert add(transaction(ONGOING, A), by) is error
    assert add(None) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    with pytest.raises(KafkaError) as caught:
        decisions.verify_partitions(transaction(ONGOING, A), by)
    assert caught.value.code is error


def test_nothing_is_verified_while_a_transaction_ends() -> None:
    with pytest.raises(KafkaError) as caught:
        decisions.verify_partitions(transaction(PREPARE_COMMIT, A), SAME)
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS


# -- EndTxn

INVALID = ErrorCode.INVALID_TXN_STATE
OUTCOMES: dict[tuple[int, TransactionState, bool], object] = {
    (0, EMPTY, True): INVALID,
    (0, EMPTY, False): INVALID,
    (0, ONGOING, True): (PREPARE_COMMIT, 7, 3, -1),
    (0, ONGOING, False): (PREPARE_ABORT, 7, 3, -1),
    (0, COMMITTED, True): (COMMITTED, 7, 3, -1),
    (0, COMMITTED, False): INVALID,
    (0, ABORTED, True): INVALID,
    (0, ABORTED, False): (ABORTED, 7, 3, -1),
    (2, EMPTY, True): INVALID,
    (2, EMPTY, False): (PREPARE_ABORT, 7, 4, 3),
    (2, ONGOING, True): (PREPARE_COMMIT, 7, 4, 3),
    (2, ONGOING, False): (PREPARE_ABORT, 7, 4, 3),
    (2, COMMITTED, True): INVALID,
    (2, COMMITTED, False): (PREPARE_ABORT, 7, 4, 3),
    (2, ABORTED, True): INVALID,
    (2, ABORTED, False): (PREPARE_ABORT, 7, 4, 3),
}


@pytest.mark.parametrize(("version", "state", "commit"), OUTCOMES)
def test_the_outcome_of_an_end_by_state(version: int, state: TransactionState, commit: bool) -> None:
    present = transaction(state, *([A] if state is ONGOING else []), start_ms=100)
    result = end(present, commit=commit, version=version)
    assert (result if isinstance(result, ErrorCode) else fields(result)) == OUTCOMES[version, state, commit]
    if version == 0 and state in (COMMITTED, ABORTED) and not isinstance(result, ErrorCode):
        assert result is present


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("by", "error"),
    [
        (producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (producer(7, 2), ErrorCode.PRODUCER_FENCED),
        (producer(7, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_another_producer_ends_nothing(version: int, by: ProducerIdAndEpoch, error: ErrorCode) -> None:
    assert end(transaction(ONGOING, A), by, version=version) is error
    assert end(None, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_below_version_2_the_producer_is_checked_before_the_transition_in_progress() -> None:
    wrong = producer(8, 3)
    assert end(transaction(ONGOING, A), wrong, version=0, busy=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(transaction(ONGOING, A), wrong, version=2, busy=True) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("present", "commit", "result"),
    [
        (transaction(COMMITTED, epoch=4), True, "present"),
        (transaction(COMMITTED, epoch=4), False, INVALID),
        (transaction(ABORTED, epoch=4), False, "present"),
        (transaction(ABORTED, epoch=4), True, INVALID),
        (transaction(EMPTY, epoch=4), True, ErrorCode.PRODUCER_FENCED),
        (transaction(ONGOING, A, epoch=4), True, ErrorCode.PRODUCER_FENCED),
        (transaction(COMMITTED, epoch=5), True, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_repeated_end_gets_the_outcome_that_it_asked_for(present: Transaction, commit: bool, result: object) -> None:
    found = end(present, SAME, commit=commit)
    assert found is (present if result == "present" else result)


def test_a_repeated_end_of_the_former_producer_id_gets_the_new_id() -> None:
    rotated = transaction(COMMITTED, producer_id=8, epoch=0, previous=7, last_epoch=32_766)
    assert end(rotated, producer(7, 32_766)) is rotated
    assert end(rotated, producer(7, 32_765)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(replace(rotated, state=EMPTY), producer(7, 32_766)) is ErrorCode.PRODUCER_FENCED


def test_an_abort_without_partitions_begins_and_ends_a_transaction() -> None:
    result = end(transaction(COMMITTED, start_ms=100), commit=False)
    assert isinstance(result, Transaction)
    assert (result.start_ms, result.partitions) == (NOW, NO_PARTITIONS)


def test_the_last_epoch_ends_with_the_id_after_it() -> None:
    prepared = end(transaction(ONGOING, A, epoch=32_766, start_ms=100), producer(7, 32_766))
    assert isinstance(prepared, Transaction)
    assert (*fields(prepared), prepared.next_producer_id) == (PREPARE_COMMIT, 7, 32_767, 32_766, 1_000)
    completed = decisions.complete(prepared, now_ms=NOW)
    assert fields(completed) == (COMMITTED, 1_000, 0, 32_766)
    assert (completed.previous_producer_id, completed.next_producer_id) == (7, -1)


# -- the coordinator


def test_a_completed_transaction_has_no_partitions() -> None:
    completed = decisions.complete(transaction(PREPARE_ABORT, A, start_ms=100), now_ms=NOW)
    assert fields(completed) == (ABORTED, 7, 3, -1)
    assert (completed.partitions, completed.start_ms, completed.update_ms) == (NO_PARTITIONS, 100, NOW)


def test_a_fenced_producer_of_the_last_epoch_keeps_it() -> None:
    opened = transaction(ONGOING, A, epoch=32_767, start_ms=100)
    for version in (1, 2):
        aborted = decisions.abort_by_coordinator(opened, next_id=Ids().next, version=version, now_ms=NOW)
        assert fields(aborted)[:3] == (PREPARE_ABORT, 7, 32_767)


def test_a_transaction_times_out_after_its_timeout_unless_it_has_none() -> None:
    opened = transaction(ONGOING, A, start_ms=1_000, timeout_ms=500)
    assert not opened.times_out(1_500)
    assert opened.times_out(1_501)
    assert not replace(opened, timeout_ms=NO_TIMEOUT).times_out(2**62)
    assert not replace(opened, state=COMMITTED).times_out(1_501)


def test_ids_without_an_open_transaction_expire() -> None:
    for state in TransactionState:
        expires = state in (EMPTY, COMMITTED, ABORTED)
        found = transaction(state, update_ms=1_000)
        assert decisions.is_expired(found, now_ms=1_500, expiration_ms=500) is expires
        assert not decisions.is_expired(found, now_ms=1_499, expiration_ms=500)


@pytest.mark.parametrize(
    ("present", "following"),
    [
        (transaction(EMPTY), transaction(PREPARE_COMMIT, start_ms=1)),
        (transaction(ONGOING, A), transaction(COMMITTED)),
        (transaction(ONGOING, A), transaction(ONGOING, B)),
        (transaction(ONGOING, A), transaction(ONGOING, A, epoch=4)),
        (transaction(ONGOING, A), transaction(PREPARE_COMMIT, start_ms=1)),
        (transaction(ONGOING, A), transaction(PREPARE_COMMIT, A, epoch=5, start_ms=1)),
        (transaction(PREPARE_COMMIT, A), transaction(ABORTED)),
        (transaction(PREPARE_COMMIT, A), transaction(COMMITTED, producer_id=8, epoch=0)),
        (transaction(EMPTY), transaction(EMPTY, epoch=5)),
        (transaction(EMPTY), transaction(EMPTY, epoch=2)),
        (transaction(EMPTY), transaction(TransactionState.DEAD)),
    ],
)
def test_an_impossible_transition_is_a_broken_invariant(present: Transaction, following: Transaction) -> None:
    with pytest.raises(BrokenInvariant):
        decisions.check_transition(present, following)
