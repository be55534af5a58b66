"""The comparison of requests and responses with those that a scenario expects."""

from __future__ import annotations

from typing import Any

import pytest

from milena.lab.scenarios.exchanges import differences, mismatch, renumbered

FOUND: dict[str, Any] = {
    "api": "OFFSET_FOR_LEADER_EPOCH",
    "version": 4,
    "request": {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 7}]}]},
    "response": {
        "topics": [{"partitions": [{"error_code": "NONE", "leader_epoch": 5, "end_offset": 21}], "topic": "t"}]
    },
}


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"version": 4},
        {"request": {"leader_epoch": 7}},
        {"response": {"error_code": "NONE", "leader_epoch": 5, "end_offset": 21}},
        {"response": {"partitions": {"end_offset": 21}}},
        {"request": {"topics": [{"partitions": [{"leader_epoch": 7}]}]}},
    ],
)
def test_expected_fields_are_found_at_any_depth(expected: dict[str, Any]) -> None:
    assert mismatch(expected, FOUND) is None


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"version": 3}, ".version: expected 3, found 4"),
        ({"request": {"leader_epoch": 5}}, ".request.leader_epoch: expected 5, found 7"),
        ({"response": {"throttle_time_ms": 0}}, ".response.throttle_time_ms: missing"),
        ({"request": {"topics": []}}, ".request.topics: expected"),
        ({"request": {"partitions": {"partition": [0, 1]}}}, ".request.partitions.partition: expected [0, 1]"),
    ],
)
def test_a_mismatch_is_reported_with_its_path(expected: dict[str, Any], said: str) -> None:
    assert (mismatch(expected, FOUND) or "").startswith(said)


def test_a_field_that_occurs_twice_matches_if_either_value_does() -> None:
    two = [{"broker_id": 1, "broker_epoch": 8}, {"broker_id": 2, "broker_epoch": 9}]
    assert mismatch({"broker_epoch": 9}, two) is None
    assert mismatch({"broker_epoch": 10}, two) is not None


def test_lists_are_compared_item_by_item() -> None:
    assert mismatch([1, 2], [1, 2]) is None
    assert mismatch([1, 2], [2, 1]) is not None
    assert mismatch([1], [1, 2]) is not None


def test_null_matches_only_null() -> None:
    assert mismatch({"log_end_offset": None}, {"log_end_offset": None}) is None
    assert mismatch({"log_end_offset": None}, {"log_end_offset": 3}) is not None


def test_leader_epochs_get_the_documents_numbers_and_other_epochs_do_not() -> None:
    found = {
        "leader_epoch": 5,
        "diverging_epoch": {"epoch": 7, "end_offset": 5},
        "partitions": [{"leader_epoch": -1, "partition_epoch": 5}],
        "broker_epoch": 7,
    }
    assert renumbered(found, {5: 1, 7: 2}) == {
        "leader_epoch": 1,
        "diverging_epoch": {"epoch": 2, "end_offset": 5},
        "partitions": [{"leader_epoch": -1, "partition_epoch": 5}],
        "broker_epoch": 7,
    }
    assert renumbered(found, None) == found


def test_an_epoch_without_records_has_no_number() -> None:
    assert mismatch({"leader_epoch": 1}, renumbered({"leader_epoch": 6}, {5: 1})) is not None


def test_a_trace_with_too_few_or_too_many_exchanges_differs() -> None:
    assert differences([{"version": 4}], [FOUND]) == []
    assert differences([], []) == []
    assert len(differences([{"version": 4}], [FOUND, FOUND])) == 1
    assert len(differences([{"version": 4}, {}], [FOUND])) == 1


def test_each_differing_exchange_is_reported() -> None:
    assert [
        text.split(":")[0] for text in differences([{"version": 3}, {"version": 4}, {"version": 5}], [FOUND] * 3)
    ] == [
        "exchange 1",
        "exchange 3",
    ]
