"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, in all versions."""

from __future__ import annotations

from typing import Any

import pytest

from milena.broker.transactions import decisions
from milena.broker.transactions.shard import COMPLETION_SECONDS
from milena.node.serving.repeats import MAX_REPEATED
from milena.protocol.cooperative import ELEMENTS_PER_YIELD
from milena.protocol.errors import ErrorCode
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import OFFSETS_TOPIC
from tests.unit.broker.fixtures import ME, Request, led_by
from tests.unit.broker.transactions.coordinators import COUNT, TOPIC, Coordinated, one

NONE = ErrorCode.NONE


def producer_of(request: Request) -> tuple[int, int, int]:
    found = request.response
    return found.error_code, found.producer_id, found.producer_epoch


def errors_of(results: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, partition.partition_index, partition.partition_error_code)
        for topic in results
        for partition in topic.results_by_partition
    ]


def added(request: Request) -> list[int]:
    """The errors of a request below version 4."""
    return [error for _, _, error in errors_of(request.response.results_by_topic_v3_and_below)]


# -- InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_each_initialization_gets_the_next_epoch(coordinated: Coordinated, version: int) -> None:
    assert producer_of(coordinated.init(version=version)) == (NONE, 1_000, 0)
    assert producer_of(coordinated.init(version=version)) == (NONE, 1_000, 1)
    assert producer_of(coordinated.init("y", version=version)) == (NONE, 1_001, 0)


def test_an_idempotent_producer_gets_a_new_id_each_time(coordinated: Coordinated) -> None:
    assert producer_of(coordinated.init(None)) == (NONE, 1_000, 0)
    assert producer_of(coordinated.init(None)) == (NONE, 1_001, 0)


def test_a_producer_that_continues_has_the_last_epoch_once_more(coordinated: Coordinated) -> None:
    coordinated.init()
    for _ in range(2):
        assert producer_of(coordinated.init(producer_id=1_000, producer_epoch=0)) == (NONE, 1_000, 1)


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_gets_the_error_that_its_version_knows(
    coordinated: Coordinated, version: int, error: ErrorCode
) -> None:
    coordinated.init()
    coordinated.init()
    coordinated.init()
    fenced = coordinated.init(version=version, producer_id=1_000, producer_epoch=0)
    assert producer_of(fenced) == (error, -1, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"version": 6, "enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"version": 6, "keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_initializations_are_refused(
    coordinated: Coordinated, fields: dict[str, Any], error: ErrorCode
) -> None:
    assert producer_of(coordinated.init(**fields)) == (error, -1, -1)
    coordinated.transactions.resigned(0)
    assert producer_of(coordinated.init(**fields)) == (error, -1, -1)
    assert producer_of(coordinated.init()) == (ErrorCode.NOT_COORDINATOR, -1, -1)


def test_an_open_transaction_is_aborted_before_the_next_producer_starts(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add(0, 1)
    for _ in range(2):
        assert producer_of(coordinated.init()) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
    coordinated.markers.write()
    assert producer_of(coordinated.init()) == (NONE, 1_000, 2)


def test_producer_ids_are_allocated_if_there_are_none(coordinated: Coordinated) -> None:
    coordinated.producer_ids.ids.available = False
    assert producer_of(coordinated.init()) == (NONE, 1_000, 0)


def test_without_a_controller_a_new_producer_has_to_wait(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.producer_ids.ids.available = False
    coordinated.producer_ids.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert producer_of(coordinated.init("y")) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert producer_of(coordinated.init("x")) == (NONE, 1_000, 1)


# -- AddPartitionsToTxn


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_by_clients(coordinated: Coordinated, version: int) -> None:
    coordinated.init()
    assert added(coordinated.add(0, 1, 2, version=version)) == [NONE, NONE]
    found = coordinated.transactions.find("x")
    assert found is not None
    assert (list(found.partitions), found.client_version) == ([(TOPIC, 1), (TOPIC, 2)], 0)


def test_an_unknown_partition_refuses_all_of_its_transaction(coordinated: Coordinated) -> None:
    coordinated.init()
    assert added(coordinated.add(0, 1, COUNT)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    found = coordinated.transactions.find("x")
    assert found is not None
    assert found.state is TransactionState.EMPTY


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_all_partitions_of_a_fenced_producer_have_the_error(
    coordinated: Coordinated, version: int, error: ErrorCode
) -> None:
    coordinated.init()
    coordinated.init()
    assert added(coordinated.add(0, 1, 2, version=version)) == [error, error]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_partitions_to_many_transactions(coordinated: Coordinated, version: int) -> None:
    coordinated.init("x")
    coordinated.init("y")
    request = coordinated.add_batch(
        one("x", 1_000, 0, 1), one("y", 1_001, 7, 0, 1), one("z", 9, 0, 2), one("", 9, 0, 2), version=version
    )
    results = request.response.results_by_transaction
    assert [(found.transactional_id, errors_of(found.topic_results)) for found in results] == [
        ("x", [(TOPIC, 1, NONE)]),
        ("y", [(TOPIC, 0, ErrorCode.PRODUCER_FENCED), (TOPIC, 1, ErrorCode.PRODUCER_FENCED)]),
        ("z", [(TOPIC, 2, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]),
        ("", [(TOPIC, 2, ErrorCode.INVALID_REQUEST)]),
    ]
    found = coordinated.transactions.find("x")
    assert found is not None
    assert (list(found.partitions), found.client_version) == ([(TOPIC, 1)], 2)


def test_brokers_verify_that_partitions_were_added(coordinated: Coordinated) -> None:
    coordinated.init("x")
    coordinated.add(0, 1)
    request = coordinated.add_batch(one("x", 1_000, 0, 0, 1, verify=True), one("x", 1_000, 1, 1, verify=True))
    assert [errors_of(found.topic_results) for found in request.response.results_by_transaction] == [
        [(TOPIC, 0, ErrorCode.TRANSACTION_ABORTABLE), (TOPIC, 1, NONE)],
        [(TOPIC, 1, ErrorCode.PRODUCER_FENCED)],
    ]
    found = coordinated.transactions.find("x")
    assert found is not None
    assert list(found.partitions) == [(TOPIC, 1)]


def test_other_work_runs_between_additions_to_a_large_transaction(coordinated: Coordinated) -> None:
    coordinated.bench.topic("many", *[led_by(ME)] * (ELEMENTS_PER_YIELD + 3))
    coordinated.init("x")
    large = one("x", 1_000, 0, *range(ELEMENTS_PER_YIELD), topic="many")
    small = [one("x", 1_000, 0, ELEMENTS_PER_YIELD + number, topic="many") for number in range(3)]
    assert coordinated.steps(large, *small) == 6


def test_a_request_that_adds_to_one_large_transaction_too_often_is_refused(coordinated: Coordinated) -> None:
    """Each addition writes all partitions of the transaction."""
    coordinated.bench.topic("wide", *[led_by(ME)] * 1_000)
    coordinated.init("x")
    coordinated.add_batch(one("x", 1_000, 0, *range(999), topic="wide"))
    small = one("x", 1_000, 0, 999, topic="wide")
    most = 1 + MAX_REPEATED // 1_000  # the first addition is not counted
    end = coordinated.partition.online_log.log_end_offset
    assert coordinated.add_batch(*[small] * (most + 1)).response.error_code == ErrorCode.INVALID_REQUEST
    assert coordinated.partition.online_log.log_end_offset == end, "nothing is written"
    added_once = coordinated.add_batch(*[small] * most).response.results_by_transaction
    assert {error for found in added_once for _, _, error in errors_of(found.topic_results)} == {NONE}


def test_other_work_runs_between_long_ids(coordinated: Coordinated) -> None:
    many = [one(str(number).rjust(32_000, "x"), 1_000, 0, verify=True) for number in range(4)]
    assert coordinated.steps(*many) == 5


def test_a_request_without_transactions_is_answered(coordinated: Coordinated) -> None:
    assert coordinated.add_batch().response.results_by_transaction == ()


# -- AddOffsetsToTxn


@pytest.mark.parametrize("version", range(5))
def test_the_partition_of_a_group_is_added(coordinated: Coordinated, version: int) -> None:
    coordinated.init()
    assert coordinated.add_offsets(0, version=version).response.error_code == NONE
    found = coordinated.transactions.find("x")
    assert found is not None
    assert (list(found.partitions), found.client_version) == ([("__consumer_offsets", 0)], 0)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert coordinated.add_offsets(5, version=version).response.error_code == fenced
    unknown = coordinated.add_offsets(0, version=version, producer_id=5)
    assert unknown.response.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_offsets_wait_until_the_coordinator_knows_their_topic(coordinated: Coordinated) -> None:
    coordinated.init()
    topic = coordinated.image.topics.pop(OFFSETS_TOPIC)
    assert coordinated.add_offsets(1).response.error_code == ErrorCode.PRODUCER_FENCED
    assert not coordinated.created
    assert coordinated.add_offsets(0).response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinated.created == [OFFSETS_TOPIC]
    coordinated.image.topics[OFFSETS_TOPIC] = topic
    assert coordinated.add_offsets(0).response.error_code == NONE


# -- the next transaction waits for the markers of the previous one


def ended(coordinated: Coordinated) -> Request:
    """End a transaction whose markers are not written, and begin the next one."""
    coordinated.init()
    coordinated.add(0, 1)
    coordinated.end(0, version=4)
    return coordinated.add(0, 2)


def test_a_client_that_adds_partitions_waits_for_the_markers(coordinated: Coordinated) -> None:
    request = ended(coordinated)
    assert not request.answered
    coordinated.markers.write()
    assert added(request) == [NONE]
    found = coordinated.transactions.find("x")
    assert found is not None
    assert list(found.partitions) == [(TOPIC, 2)]


def test_offsets_wait_for_the_markers_like_partitions(coordinated: Coordinated) -> None:
    assert not ended(coordinated).answered
    coordinated.markers.write()
    coordinated.end(0, version=4)
    request = coordinated.add_offsets(0)
    assert not request.answered
    coordinated.markers.write()
    assert request.response.error_code == NONE


def test_the_wait_for_the_markers_is_short(coordinated: Coordinated) -> None:
    request = ended(coordinated)
    coordinated.bench.clock.advance(COMPLETION_SECONDS)
    assert added(request) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    coordinated.markers.write()
    assert added(coordinated.add(0, 2)) == [NONE]


def test_one_request_of_an_id_waits_for_the_markers(coordinated: Coordinated) -> None:
    first = ended(coordinated)
    assert added(coordinated.add(0, 1)) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert not first.answered


def test_a_waiting_request_is_decided_like_one_that_comes_after_the_markers(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add_batch(one("x", 1_000, 0, 1))
    coordinated.end(0)
    request = coordinated.add(0, 2)
    coordinated.markers.write()
    assert added(request) == [ErrorCode.PRODUCER_FENCED]


def test_a_waiting_request_is_answered_when_the_leadership_ends(coordinated: Coordinated) -> None:
    request = ended(coordinated)
    coordinated.transactions.resigned(0)
    assert added(request) == [ErrorCode.NOT_COORDINATOR]
    assert coordinated.bench.clock.armed() == 0


def test_a_waiting_request_is_answered_when_its_decision_fails(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the dispatcher answers a request at once whose handler fails."""

    def fail(*_: object, **__: object) -> None:
        raise BrokenInvariant("a mistake")

    request = ended(coordinated)
    monkeypatch.setattr(decisions, "add_partitions", fail)
    with pytest.raises(BrokenInvariant):
        coordinated.bench.clock.advance(COMPLETION_SECONDS)
    assert added(request) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_broker_that_adds_partitions_does_not_wait_for_the_markers(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add_batch(one("x", 1_000, 0, 1))
    coordinated.end(0)
    [transaction] = coordinated.add_batch(one("x", 1_000, 1, 2)).response.results_by_transaction
    [partition] = transaction.topic_results[0].results_by_partition
    assert partition.partition_error_code == ErrorCode.CONCURRENT_TRANSACTIONS


# -- EndTxn


@pytest.mark.parametrize("version", range(5))
def test_old_clients_keep_their_epoch(coordinated: Coordinated, version: int) -> None:
    coordinated.init()
    for commit in (True, False):
        coordinated.add(0, 1)
        assert coordinated.end(0, commit=commit, version=version).response.error_code == NONE
        assert coordinated.end(0, commit=commit, version=version).response.error_code == (
            ErrorCode.CONCURRENT_TRANSACTIONS
        )
        coordinated.markers.write()
        assert coordinated.end(0, commit=commit, version=version).response.error_code == NONE
        other = coordinated.end(0, commit=not commit, version=version)
        assert other.response.error_code == ErrorCode.INVALID_TXN_STATE
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert coordinated.end(5, version=version).response.error_code == fenced


def test_new_clients_get_the_epoch_of_their_next_transaction(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add_batch(one("x", 1_000, 0, 1))
    assert producer_of(coordinated.end(0)) == (NONE, 1_000, 1)
    assert producer_of(coordinated.end(0)) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
    coordinated.markers.write()
    assert producer_of(coordinated.end(0)) == (NONE, 1_000, 1)
    assert producer_of(coordinated.end(0, commit=False)) == (ErrorCode.INVALID_TXN_STATE, -1, -1)
    coordinated.add_batch(one("x", 1_000, 1, 1))
    assert producer_of(coordinated.end(0)) == (ErrorCode.PRODUCER_FENCED, -1, -1)
    assert producer_of(coordinated.end(1, commit=False)) == (NONE, 1_000, 2)


def test_an_end_is_answered_when_its_record_is_committed(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add(0, 1)
    coordinated.end(0)
    assert len(coordinated.markers.sent) == 1
    found = coordinated.transactions.find("x")
    assert found is not None
    assert found.state is TransactionState.PREPARE_COMMIT


def test_requests_of_an_empty_id_are_invalid(coordinated: Coordinated) -> None:
    assert added(coordinated.add(0, 1, transactional_id="")) == [ErrorCode.INVALID_REQUEST]
