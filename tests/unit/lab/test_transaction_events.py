"""Requests of transactions as a run shows them."""

from __future__ import annotations

from typing import Any

import pytest

from milena.lab.scenarios.exchange_events import ExchangeEvents

PLACES = [{"name": "t", "partitions": [0, 1]}]


def shown(api: str, request: dict[str, Any], response: dict[str, Any], client: str = "P") -> list[str]:
    exchange = {"api": api, "client_id": client, "request": request, "response": response}
    return [event.line for event in ExchangeEvents({}).of("B", 0.0, exchange, str)]


def added(code: int) -> list[dict[str, Any]]:
    """The results of the partitions; with an error of the first, the second is not attempted."""
    codes = (code, 55 if code else 0)
    results = [{"partition_index": at, "partition_error_code": one} for at, one in enumerate(codes)]
    return [{"name": "t", "results_by_partition": results}]


def test_init_producer_id_shows_the_epoch_that_it_continues() -> None:
    request = {"transactional_id": "app", "producer_epoch": -1}
    answer = {"error_code": "NONE", "producer_epoch": 3}
    assert shown("INIT_PRODUCER_ID", request, answer) == ["P -> B InitProducerId app: epoch 3"]
    continued = request | {"producer_epoch": 2}
    assert shown("INIT_PRODUCER_ID", continued, answer) == ["P -> B InitProducerId app, epoch 2: epoch 3"]
    refused = {"error_code": "PRODUCER_FENCED", "producer_epoch": -1}
    assert shown("INIT_PRODUCER_ID", continued, refused) == ["P -> B InitProducerId app, epoch 2: PRODUCER_FENCED"]


@pytest.mark.parametrize(("code", "result"), [(0, "added"), (90, "PRODUCER_FENCED")])
def test_add_partitions_of_a_client_shows_the_error_of_its_partitions(code: int, result: str) -> None:
    prefix = "v3_and_below_"
    request = {f"{prefix}transactional_id": "app", f"{prefix}producer_epoch": 0, f"{prefix}topics": PLACES}
    lines = shown("ADD_PARTITIONS_TO_TXN", request, {"results_by_topic_v3_and_below": added(code)})
    assert lines == [f"P -> B AddPartitionsToTxn app, epoch 0, [t-0, t-1]: {result}"]


@pytest.mark.parametrize(
    ("verify_only", "code", "end"),
    [(True, 0, ", verify only: verified"), (False, 0, ": added"), (True, 120, ", verify only: TRANSACTION_ABORTABLE")],
)
def test_add_partitions_of_a_broker_has_one_event_for_each_transaction(verify_only: bool, code: int, end: str) -> None:
    one = {"transactional_id": "app", "producer_epoch": 0, "verify_only": verify_only, "topics": PLACES}
    other = one | {"transactional_id": "other"}
    answer = {
        "error_code": "NONE",
        "results_by_transaction": [
            {"transactional_id": name, "topic_results": added(code)} for name in ("app", "other")
        ],
    }
    lines = shown("ADD_PARTITIONS_TO_TXN", {"transactions": [one, other]}, answer, "broker-1-verification")
    text = "epoch 0, [t-0, t-1]"
    assert lines == [f"A -> B AddPartitionsToTxn {name}, {text}{end}" for name in ("app", "other")]


def test_offsets_in_a_transaction_show_the_member() -> None:
    topics = [{"name": "in", "partitions": [{"partition_index": 0, "committed_offset": 2}]}]
    request = {"transactional_id": "app", "producer_epoch": 0, "group_id": "g", "generation_id": 1, "topics": topics}
    answer = {"topics": [{"name": "in", "partitions": [{"partition_index": 0, "error_code": "UNKNOWN_MEMBER_ID"}]}]}
    (line,) = shown("TXN_OFFSET_COMMIT", request, answer)
    assert line == "P -> B TxnOffsetCommit app, epoch 0, group g, generation 1, in-0 2: UNKNOWN_MEMBER_ID"
    (line,) = shown("TXN_OFFSET_COMMIT", request | {"generation_id": -1}, answer)
    assert ", no member, in-0 2: " in line
    (line,) = shown("ADD_OFFSETS_TO_TXN", request, {"error_code": "NONE"})
    assert line == "P -> B AddOffsetsToTxn app, epoch 0, group g: added"


def test_end_txn_shows_the_outcome_and_the_next_epoch() -> None:
    request = {"transactional_id": "app", "producer_epoch": 0, "committed": True}
    answer = {"error_code": "NONE"}
    assert shown("END_TXN", request, answer | {"producer_epoch": 1}) == [
        "P -> B EndTxn app, commit, epoch 0: next epoch 1"
    ]
    assert shown("END_TXN", request | {"committed": False}, answer) == ["P -> B EndTxn app, abort, epoch 0: accepted"]


def test_markers_have_one_event_for_each_transaction() -> None:
    topics = [{"name": "t", "partition_indexes": [0]}]
    marker = {"producer_epoch": 1, "coordinator_epoch": 0, "topics": topics}
    markers = [marker | {"producer_id": 5, "transaction_result": True}]
    markers += [marker | {"producer_id": 6, "transaction_result": False}]
    codes = {5: "NONE", 6: "TRANSACTION_COORDINATOR_FENCED"}
    results = [
        {"producer_id": one, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code}]}]}
        for one, code in codes.items()
    ]
    assert shown("WRITE_TXN_MARKERS", {"markers": markers}, {"markers": results}, "broker-3-markers") == [
        "C -> B WriteTxnMarkers COMMIT, epoch 1, coordinator epoch 0, [t-0]: written",
        "C -> B WriteTxnMarkers ABORT, epoch 1, coordinator epoch 0, [t-0]: TRANSACTION_COORDINATOR_FENCED",
    ]
