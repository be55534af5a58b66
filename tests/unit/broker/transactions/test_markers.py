"""Markers reach the leaders of their partitions: again after a failure, and no longer than they are needed."""

from __future__ import annotations

import asyncio
from io import StringIO
from itertools import pairwise

import pytest

from milena.broker.transactions.markers import MAX_ELEMENTS
from milena.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.transactions.marking import BROKEN, UNREACHABLE, Marking, with_brokers

COMPLETE = [("a", None)]


def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1, 2, 1)
        brokers.topic("u", 2)
        marking.send("a", ("t", 0), ("t", 1), ("t", 2), ("u", 0))
        await asyncio.sleep(1)
        assert brokers.markers(1) == [(7, "t", 0), (7, "t", 2)]
        assert brokers.markers(2) == [(7, "t", 1), (7, "u", 0)]
        assert len(brokers.requests) == 2 and marking.results == COMPLETE

    with_brokers(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_has_the_outcome_the_epochs_and_the_transaction_version(commit: bool) -> None:
    async def scenario(marking: Marking) -> None:
        marking.brokers.topic("t", 3)
        marking.send("a", ("t", 0), producer=70, epoch=4, coordinator_epoch=9, commit=commit)
        await asyncio.sleep(1)
        ((broker, request),) = marking.brokers.requests
        (marker,) = request.markers
        assert broker == 3
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (70, 4, 9)
        assert (marker.transaction_result, marker.transaction_version) == (commit, 2)

    with_brokers(scenario)


def test_a_broker_without_version_2_gets_no_transaction_version() -> None:
    async def scenario(marking: Marking) -> None:
        marking.brokers.version = 1
        marking.brokers.topic("t", 3)
        marking.send("a", ("t", 0))
        await asyncio.sleep(1)
        ((_, request),) = marking.brokers.requests
        assert not hasattr(request.markers[0], "transaction_version") and marking.results == COMPLETE

    with_brokers(scenario)


def test_a_transaction_without_partitions_is_complete_at_once() -> None:
    async def scenario(marking: Marking) -> None:
        marking.send("a")
        assert marking.results == COMPLETE

    with_brokers(scenario)


def test_a_partition_that_does_not_exist_any_more_needs_no_marker() -> None:
    async def scenario(marking: Marking) -> None:
        marking.brokers.topic("t", 1)
        marking.send("a", ("t", 0), ("t", 1), ("gone", 0))
        await asyncio.sleep(1)
        assert marking.brokers.markers(1) == [(7, "t", 0)] and marking.results == COMPLETE
        marking.send("b", ("gone", 0))
        assert marking.results == [*COMPLETE, ("b", None)]

    with_brokers(scenario)


def test_transactions_that_end_together_share_a_request() -> None:
    async def scenario(marking: Marking) -> None:
        marking.brokers.topic("t", 1, 1)
        marking.send("a", ("t", 0), producer=7)
        marking.send("b", ("t", 1), producer=8)
        await asyncio.sleep(1)
        assert len(marking.brokers.requests) == 1
        assert marking.brokers.markers(1) == [(7, "t", 0), (8, "t", 1)]
        assert marking.results == [("a", None), ("b", None)]

    with_brokers(scenario)


def test_one_request_to_a_broker_is_in_flight() -> None:
    """Markers that arrive meanwhile go into the next one. Another broker's are not delayed."""

    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.held[1] = asyncio.Event()
        brokers.topic("t", 1, 2)
        for number, name in enumerate("abc"):
            marking.send(name, ("t", 0), producer=number)
            await asyncio.sleep(0.1)
        marking.send("d", ("t", 1), producer=9)
        await asyncio.sleep(0.1)
        assert brokers.markers(1) == [(0, "t", 0)] and marking.results == [("d", None)]
        brokers.held[1].set()
        await asyncio.sleep(1)
        assert [len(request.markers) for broker, request in brokers.requests if broker == 1] == [1, 2]
        assert sorted(marking.results) == [(name, None) for name in "abcd"]

    with_brokers(scenario)


def test_a_producer_has_one_marker_in_a_request() -> None:
    """A response of Kafka has one result for a producer id and partition."""

    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1, 1)
        brokers.held[1] = asyncio.Event()
        marking.send("before", ("t", 0), producer=1)
        await asyncio.sleep(0.1)
        marking.send("a", ("t", 0))
        marking.send("b", ("t", 1))
        marking.send("c", ("t", 1), producer=8)
        brokers.held[1].set()
        await asyncio.sleep(1)
        sent = [[marker.producer_id for marker in request.markers] for _, request in brokers.requests]
        assert sent == [[1], [7, 8], [7]]
        assert sorted(marking.results) == [(name, None) for name in ("a", "b", "before", "c")]

    with_brokers(scenario)


def test_the_size_of_a_request_is_bounded() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", *[1] * 5_000)
        brokers.held[1] = asyncio.Event()
        for producer in range(10):
            marking.send(f"small-{producer}", *[("t", index) for index in range(400)], producer=producer)
        marking.send("large", *[("t", index) for index in range(5_000)], producer=10)
        await asyncio.sleep(1)  # all of them are queued
        brokers.held[1].set()
        await asyncio.sleep(5)
        sizes = [
            sum(1 + len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
            for _, request in brokers.requests
        ]
        assert max(sizes) <= MAX_ELEMENTS and sum(sizes) > 9_000
        expected = [(producer, "t", index) for producer in range(10) for index in range(400)]
        assert sorted(brokers.markers(1)) == expected + [(10, "t", index) for index in range(5_000)]
        assert len(marking.results) == 11

    with_brokers(scenario)


RETRIED = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


@pytest.mark.parametrize("error", RETRIED, ids=lambda error: error.name)
def test_only_the_partition_with_an_error_gets_its_marker_again(error: ErrorCode) -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1, 1)
        brokers.errors["t", 1] = [error, error]
        marking.send("a", ("t", 0), ("t", 1))
        await asyncio.sleep(1)
        assert brokers.markers(1) == [(7, "t", 0), (7, "t", 1), (7, "t", 1), (7, "t", 1)]
        assert marking.results == COMPLETE

    with_brokers(scenario)


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_partition_that_cannot_have_a_marker_is_skipped_as_in_kafka(error: ErrorCode) -> None:
    async def scenario(marking: Marking) -> None:
        marking.brokers.topic("t", 1)
        marking.brokers.errors["t", 0] = [error]
        marking.send("a", ("t", 0))
        await asyncio.sleep(5)
        assert len(marking.brokers.requests) == 1 and marking.results == COMPLETE

    with_brokers(scenario)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_newer_epoch_ends_the_work(error: ErrorCode) -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1, 2, -1)
        brokers.held[2] = asyncio.Event()
        brokers.errors["t", 0] = [error]
        marking.send("a", ("t", 0), ("t", 1), ("t", 2))
        await asyncio.sleep(1)
        assert marking.results == [("a", error)]
        brokers.held[2].set()
        brokers.topic("t", 1, 2, 3)
        await asyncio.sleep(5)
        assert marking.results == [("a", error)] and not brokers.markers(3)

    with_brokers(scenario)


def test_after_an_election_the_new_leader_gets_the_marker() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1)
        brokers.errors["t", 0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
        marking.send("a", ("t", 0))
        await asyncio.sleep(0.5)
        brokers.errors.clear()
        brokers.topic("t", 2)
        await asyncio.sleep(2)
        assert brokers.markers(2) == [(7, "t", 0)] and marking.results == COMPLETE

    with_brokers(scenario)


def test_a_marker_that_waits_for_its_turn_goes_to_the_leader_elected_meanwhile() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1, 1)
        brokers.held[1] = asyncio.Event()
        marking.send("first", ("t", 0), producer=1)
        await asyncio.sleep(0.1)
        marking.send("a", ("t", 0), ("t", 1))
        brokers.topic("t", 1, 3)
        brokers.held[1].set()
        await asyncio.sleep(1)
        assert brokers.markers(1) == [(1, "t", 0), (7, "t", 0)] and brokers.markers(3) == [(7, "t", 1)]
        assert marking.results == [("first", None), *COMPLETE]

    with_brokers(scenario)


def test_a_partition_without_a_leader_gets_its_marker_once_it_has_one() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", -1)
        brokers.register(2, listener="OTHER")
        brokers.topic("u", 2)
        marking.send("a", ("t", 0), ("u", 0))
        await asyncio.sleep(5)
        assert not brokers.requests and marking.sender.without_leader == 2
        brokers.topic("t", 1)
        brokers.register(2)
        await asyncio.sleep(2)
        assert brokers.markers(1) == [(7, "t", 0)] and brokers.markers(2) == [(7, "u", 0)]
        assert marking.sender.without_leader == 0 and marking.results == COMPLETE

    with_brokers(scenario)


def test_a_topic_deleted_while_its_marker_waits_needs_none() -> None:
    async def scenario(marking: Marking) -> None:
        marking.brokers.topic("t", -1)
        marking.send("a", ("t", 0))
        await asyncio.sleep(1)
        marking.brokers.delete("t")
        await asyncio.sleep(2)
        assert marking.results == COMPLETE and not marking.brokers.requests

    with_brokers(scenario)


@pytest.mark.parametrize("failure", [BROKEN, UNREACHABLE, KafkaError(ErrorCode.REQUEST_TIMED_OUT)])
def test_after_a_failed_request_all_its_markers_are_sent_again(failure: Exception) -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1, 1)
        brokers.failures[1] = [failure]
        marking.send("a", ("t", 0), ("t", 1))
        await asyncio.sleep(1)
        assert brokers.markers(1) == [(7, "t", 0), (7, "t", 1)] * 2 and marking.results == COMPLETE

    with_brokers(scenario)


def test_pauses_between_attempts_grow_to_a_second() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1)
        brokers.failures[1] = [BROKEN] * 20
        marking.send("a", ("t", 0))
        await asyncio.sleep(60)
        pauses = [round(after - before, 2) for before, after in pairwise(brokers.times)]
        assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 15] and marking.results == COMPLETE

    with_brokers(scenario)


def test_a_later_failure_is_not_delayed_by_an_earlier_one() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", -1, 1)
        marking.send("slow", ("t", 0))
        await asyncio.sleep(20)
        brokers.failures[1] = [BROKEN]
        marking.send("a", ("t", 1))
        await asyncio.sleep(0.06)
        assert marking.results == COMPLETE

    with_brokers(scenario)


def test_nothing_is_sent_after_the_coordinator_has_resigned() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1, -1)
        brokers.held[1] = asyncio.Event()
        marking.send("a", ("t", 0), producer=1)
        await asyncio.sleep(0.1)
        marking.send("queued", ("t", 0), producer=2)
        marking.send("leaderless", ("t", 1), producer=3)
        marking.send("other", ("t", 0), producer=4, state_partition=6)
        marking.sender.cancel(5)
        brokers.topic("t", 1, 1)
        brokers.held[1].set()
        await asyncio.sleep(5)
        assert brokers.markers(1) == [(1, "t", 0), (4, "t", 0)] and marking.results == [("other", None)]
        marking.send("again", ("t", 0), coordinator_epoch=12)
        await asyncio.sleep(1)
        assert marking.results == [("other", None), ("again", None)]

    with_brokers(scenario)


def test_the_coordinator_of_no_transaction_may_resign() -> None:
    async def scenario(marking: Marking) -> None:
        marking.sender.cancel(5)
        assert not marking.results

    with_brokers(scenario)


def test_a_marker_that_is_not_written_for_long_is_logged(logged: StringIO) -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1)
        brokers.errors["t", 0] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 100
        marking.send("a", ("t", 0))
        await asyncio.sleep(4)
        assert "transaction marker" not in logged.getvalue()
        await asyncio.sleep(10)
        assert "transaction marker is not written yet" in logged.getvalue()
        assert "NOT_ENOUGH_REPLICAS" in logged.getvalue()

    with_brokers(scenario)


def test_an_error_that_ends_kafkas_broker_is_logged_at_once(logged: StringIO) -> None:
    async def scenario(marking: Marking) -> None:
        marking.brokers.topic("t", 1)
        marking.brokers.errors["t", 0] = [ErrorCode.MESSAGE_TOO_LARGE]
        marking.send("a", ("t", 0))
        await asyncio.sleep(1)
        assert "transaction marker was refused" in logged.getvalue()

    with_brokers(scenario)


def test_an_answer_without_a_result_is_a_failure() -> None:
    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        brokers.topic("t", 1)
        honest = brokers._result
        brokers._result = lambda marker: {"producer_id": 99, "topics": []}  # type: ignore[method-assign]
        marking.send("a", ("t", 0))
        await asyncio.sleep(0.02)
        brokers._result = honest  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert len(brokers.requests) == 2 and marking.results == COMPLETE

    with_brokers(scenario)


def test_a_failing_coordinator_does_not_delay_other_transactions() -> None:
    failures: list[object] = []

    async def scenario(marking: Marking) -> None:
        marking.failing = True
        marking.brokers.topic("t", 1)
        marking.sender._runtime.contained._unforeseen = lambda _, error: failures.append(error)
        marking.send("a", ("t", 0), producer=1)
        marking.send("b", ("t", 0), producer=2)
        await asyncio.sleep(1)
        assert marking.results == [("a", None), ("b", None)] and len(failures) == 2

    with_brokers(scenario)


def test_a_coordinator_that_fails_at_a_deleted_topic_does_not_delay_other_transactions() -> None:
    failures: list[object] = []

    async def scenario(marking: Marking) -> None:
        brokers = marking.brokers
        marking.failing = True
        marking.sender._runtime.contained._unforeseen = lambda _, error: failures.append(error)
        brokers.topic("t", 1)
        brokers.topic("deleted", 1)
        brokers.held[1] = asyncio.Event()
        marking.send("first", ("t", 0), producer=1)
        await asyncio.sleep(0.1)
        marking.send("a", ("t", 0), producer=2)
        marking.send("b", ("deleted", 0), producer=3)
        marking.send("c", ("t", 0), producer=4)
        brokers.delete("deleted")
        brokers.held[1].set()
        await asyncio.sleep(1)
        assert sorted(marking.results) == [("a", None), ("b", None), ("c", None), ("first", None)]
        assert len(failures) == 4

    with_brokers(scenario)
