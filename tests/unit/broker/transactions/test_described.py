"""DescribeTransactions and ListTransactions: the states of ids, and the filters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from milena.broker.apis import describe_transactions, list_transactions
from milena.node.serving.repeats import MAX_REPEATED
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.unit.broker.fixtures import ME, led_by
from tests.unit.broker.transactions.coordinators import TOPIC, Coordinated, one

MINUTE = 60_000


@pytest.fixture
def ids(coordinated: Coordinated) -> Coordinated:
    """The id idle has no transaction; open and ended began one after a minute, and ended commits it."""
    coordinated.init("idle", timeout_ms=5_000)
    coordinated.init("open")
    coordinated.init("x")
    coordinated.bench.clock.advance(MINUTE / 1000)
    coordinated.add(0, 0, 2, transactional_id="open", producer_id=1_001)
    coordinated.add(0, 1, producer_id=1_002)
    coordinated.end(0, version=4, producer_id=1_002)
    return coordinated


def described(coordinated: Coordinated, *transactional_ids: str) -> list[Any]:
    answer = coordinated.ask(
        describe_transactions, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=transactional_ids
    ).response
    return list(answer.transaction_states)


def listing(coordinated: Coordinated, version: int = 2, **filters: Any) -> Any:
    filters = {"state_filters": (), "producer_id_filters": (), **filters}
    return coordinated.ask(list_transactions, ApiKey.LIST_TRANSACTIONS, version, **filters).response


def listed(coordinated: Coordinated, version: int = 2, **filters: Any) -> list[str]:
    answer = listing(coordinated, version, **filters)
    assert answer.error_code == ErrorCode.NONE
    return [one.transactional_id for one in answer.transaction_states]


def test_an_open_transaction_is_described_with_its_partitions(ids: Coordinated) -> None:
    (found,) = described(ids, "open")
    assert (found.error_code, found.transactional_id, found.transaction_state) == (0, "open", "Ongoing")
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout) == (1_001, 0, MINUTE)
    assert found.transaction_start_time == ids.bench.clock.time_ms()
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, (0, 2))]


def test_an_id_without_a_transaction_has_no_start_and_no_partitions(ids: Coordinated) -> None:
    (found,) = described(ids, "idle")
    assert (found.transaction_state, found.transaction_timeout, found.transaction_start_time) == ("Empty", 5_000, -1)
    assert not found.topics


def test_a_prepared_transaction_is_described_until_its_markers_are_written(ids: Coordinated) -> None:
    (prepared,) = described(ids, "x")
    assert (prepared.transaction_state, len(prepared.topics)) == ("PrepareCommit", 1)
    ids.markers.write()
    (complete,) = described(ids, "x")
    assert (complete.transaction_state, len(complete.topics)) == ("CompleteCommit", 0)


def test_each_id_has_its_own_error(ids: Coordinated) -> None:
    found = described(ids, "", "no-such", "idle")
    assert [one.error_code for one in found] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.NONE,
    ]
    assert [one.transactional_id for one in found] == ["", "no-such", "idle"]
    assert [one.transaction_start_time for one in found] == [0, 0, -1]
    ids.transactions.resigned(0)
    assert described(ids, "idle")[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_request_that_repeats_an_id_too_often_is_refused(ids: Coordinated) -> None:
    ids.bench.topic("wide", *[led_by(ME)] * 99)
    ids.add_batch(one("idle", 1_000, 0, *range(99), topic="wide"))
    most = 1 + MAX_REPEATED // 100  # an id and its partitions count, except in the first description
    assert {found.error_code for found in described(ids, *["idle"] * most)} == {ErrorCode.NONE}
    refused = [found.error_code for found in described(ids, *["idle"] * (most + 1))]
    assert refused == [ErrorCode.INVALID_REQUEST] * (most + 1)


def test_other_work_runs_between_long_ids(ids: Coordinated) -> None:
    request = SimpleNamespace(transactional_ids=[str(number).rjust(32_000, "x") for number in range(4)])
    node, ctx, asked = cast("Any", (ids, None, request))
    assert sum(1 for _ in describe_transactions.handle(node, ctx, asked)) == 4


def test_all_ids_are_listed_with_their_states(ids: Coordinated) -> None:
    for version in range(3):
        answer = listing(ids, version)
        assert [
            (one.transactional_id, one.producer_id, one.transaction_state) for one in answer.transaction_states
        ] == [
            ("idle", 1_000, "Empty"),
            ("open", 1_001, "Ongoing"),
            ("x", 1_002, "PrepareCommit"),
        ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"state_filters": ["Ongoing"]}, ["open"]),
        ({"state_filters": ["Ongoing", "Empty"]}, ["idle", "open"]),
        ({"state_filters": ["Dead"]}, []),
        ({"producer_id_filters": [1_002, 7]}, ["x"]),
        ({"state_filters": ["Ongoing"], "producer_id_filters": [1_002]}, []),
        ({"duration_filter": -1}, ["idle", "open", "x"]),
        ({"duration_filter": 0}, ["idle"]),
        ({"transactional_id_pattern": ""}, ["idle", "open", "x"]),
        ({"transactional_id_pattern": "[io].*"}, ["idle", "open"]),
        ({"transactional_id_pattern": "pe"}, []),
        ({"transactional_id_pattern": ".*", "state_filters": ["PrepareCommit"]}, ["x"]),
    ],
)
def test_filters_are_combined(ids: Coordinated, filters: dict[str, Any], expected: list[str]) -> None:
    assert listed(ids, **filters) == expected


def test_a_duration_lists_what_began_longer_ago(ids: Coordinated) -> None:
    ids.bench.clock.advance(0.5)
    assert listed(ids, duration_filter=499) == ["idle", "open", "x"]
    assert listed(ids, duration_filter=500) == ["idle"]


def test_unknown_states_are_reported_and_match_nothing(ids: Coordinated) -> None:
    answer = listing(ids, state_filters=["ongoing", "Sleeping", "ongoing"])
    assert (list(answer.unknown_state_filters), list(answer.transaction_states)) == (["ongoing", "Sleeping"], [])


def test_an_invalid_pattern_is_an_error(ids: Coordinated) -> None:
    assert listing(ids, transactional_id_pattern="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_nothing_is_listed_while_a_partition_is_loading(ids: Coordinated) -> None:
    ids.elect()
    assert listing(ids).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ids.tasks.run()
    assert listed(ids) == ["idle", "open", "x"]
