"""Transactions over HTTP: the state, a search, details, and what ends a transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from milena.console.state_types import State, TransactionDetails
from milena.testing.local_cluster import LocalCluster
from tests.wire.hanging import UNVERIFIED, make_transactions
from tests.wire.http_client import HttpClient
from tests.wire.waiting import wait_until

PATH = "/api/transactions"
OPEN_TRANSACTION = 13
KEPT = UNVERIFIED | {"log.retention.ms": "-1"}
"""The record of a hanging transaction is old, and stays."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("transactions")
    with LocalCluster.start(folder, brokers=2, overrides=KEPT, options=["--http=0"]) as running:
        yield running


@pytest.fixture
def http(lab: LocalCluster) -> HttpClient:
    return HttpClient(lab.directory)


@pytest.fixture
def name(lab: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic with an ended, an ongoing and a hanging transaction, whose ids begin with its name."""
    name = str(request.node.name).replace("_", "-")[:40]
    make_transactions(lab.bootstrap, name)
    return name


def leader(http: HttpClient, topic: str, number: int) -> Any:
    partition = http.ok("/api/state")["topics"][topic]["partitions"][number]
    return partition[8][str(partition[0])]


def rows(state: Any) -> dict[str, Any]:
    return {name: row for block in state["transactions"].values() for name, row in block["ids"].items()}


def test_the_state_has_the_ids_of_each_coordinator_and_the_open_transaction_of_each_leader(
    http: HttpClient, name: str
) -> None:
    state = http.ok("/api/state")
    State.model_validate_json(json.dumps(state), strict=True)
    found = rows(state)
    states = {one: found[f"{name}-{one}"]["state"] for one in ("ended", "ongoing", "hanging")}
    assert states == {"ended": "CompleteCommit", "ongoing": "Ongoing", "hanging": "Empty"}
    assert found[f"{name}-ongoing"]["partitions"] == 1
    assert sum(block["total"] for block in state["transactions"].values()) >= 3
    held = leader(http, name, 1)
    assert held[4] == held[OPEN_TRANSACTION][1] > 0
    assert held[OPEN_TRANSACTION][0] == found[f"{name}-ongoing"]["producer_id"]


def test_ids_are_found_by_text_and_state(http: HttpClient, name: str) -> None:
    found = http.ok(f"{PATH}?text={name}")
    assert [one["transactional_id"] for one in found["ids"]] == [
        f"{name}-ended", f"{name}-hanging", f"{name}-ongoing"
    ]  # fmt: skip
    found = http.ok(f"{PATH}?text={name}&state=Ongoing&state=Empty&limit=1")
    assert (found["total"], [one["state"] for one in found["ids"]]) == (2, ["Empty"])
    assert http.ok(f"{PATH}?text=.")["total"] == 0
    assert http.call(f"{PATH}?state=Open").status == 400


def test_an_id_is_described_with_the_producer_of_each_partition(http: HttpClient, name: str) -> None:
    found = http.ok(f"{PATH}/description?transactional_id={name}-ongoing")
    TransactionDetails.model_validate_json(json.dumps(found), strict=True)
    assert [(one["topic"], one["partition"]) for one in found["producers"]] == [(name, 1)]
    assert found["producers"][0]["producer"]["start_offset"] in (1, 2)  # before or after the marker of the ended one
    known = http.ok(f"{PATH}/producers?topic={name}&partition=1")["producers"]
    assert found["producers"][0]["producer"] in known
    assert http.call(f"{PATH}/description?transactional_id=unknown").status == 404


def test_a_hanging_transaction_is_found_and_aborted(http: HttpClient, name: str) -> None:
    hanging = [one for one in http.ok(f"{PATH}/hanging")["hanging"] if one["topic"] == name]
    assert [(one["partition"], one["start_offset"]) for one in hanging] == [(0, 0)]
    place = {"topic": name, "partition": 0, "start_offset": 0}
    assert http.ok(f"{PATH}/abort", "POST", place)["ok"]["producer_id"] == hanging[0]["producer_id"]
    wait_until(lambda: leader(http, name, 0)[4] == 2, "the last stable offset does not move")
    assert leader(http, name, 0)[OPEN_TRANSACTION] == []
    assert [one for one in http.ok(f"{PATH}/hanging")["hanging"] if one["topic"] == name] == []
    again = http.call(f"{PATH}/abort", "POST", place)
    assert (again.status, again.json["error"]) == (
        409,
        f"no open transaction of {name}-0 begins at offset 0",
    )


def test_a_transaction_that_its_coordinator_will_end_is_aborted_only_by_force(http: HttpClient, name: str) -> None:
    ongoing = http.ok(f"{PATH}/description?transactional_id={name}-ongoing")
    start = ongoing["producers"][0]["producer"]["start_offset"]
    place = {"topic": name, "partition": 1, "start_offset": start}
    refused = http.call(f"{PATH}/abort", "POST", place)
    assert (refused.status, refused.json["error"]) == (
        409,
        f"broker {ongoing['coordinator']} will end the transaction of {name}-ongoing (Ongoing) in {name}-1; "
        "force-terminate ends it at once",
    )
    assert leader(http, name, 1)[OPEN_TRANSACTION][1] == start
    http.ok(f"{PATH}/abort", "POST", place | {"force": True})
    wait_until(lambda: leader(http, name, 1)[OPEN_TRANSACTION] == [], "the transaction is not aborted")


def test_force_terminate_aborts_and_its_transitions_are_events(http: HttpClient, name: str) -> None:
    http.ok("/api/state")
    ended = http.ok(f"{PATH}/force-terminate", "POST", {"transactional_id": f"{name}-ongoing"})
    assert ended["ok"]["aborted"] is True
    wait_until(lambda: leader(http, name, 1)[OPEN_TRANSACTION] == [], "the transaction is not ended")
    events = http.ok("/api/state")["events"]
    kinds = [one["kind"] for one in events if one["text"].startswith(f"{name}-ongoing: ")]
    assert kinds[-3:] == ["producer_fenced", "transaction_completed", "transactional_id"]
    again = http.ok(f"{PATH}/force-terminate", "POST", {"transactional_id": f"{name}-ongoing"})
    assert again["ok"]["aborted"] is False
    assert http.call(f"{PATH}/force-terminate", "POST", {"transactional_id": "unknown"}).status == 404


def read(http: HttpClient, name: str, partition: int, options: str = "") -> list[Any]:
    """The records of a partition: offset, type of a control record, and outcome of the transaction."""
    found = http.ok(f"/api/topics/{name}/records?partition={partition}{options}")["records"]
    return [(one["offset"], one["control"], (one["transaction"] or {}).get("outcome")) for one in found]


def test_records_say_what_became_of_their_transaction(http: HttpClient, name: str) -> None:
    assert read(http, name, 1) == [(0, None, "committed"), (2, None, "open")]
    assert read(http, name, 1, "&markers=true")[1] == (1, "COMMIT", "committed")
    assert read(http, name, 1, "&isolation=read_committed") == [(0, None, "committed")]
    http.ok(f"{PATH}/force-terminate", "POST", {"transactional_id": f"{name}-ongoing"})
    wait_until(lambda: leader(http, name, 1)[4] == 4, "the last stable offset does not move")
    aborted = [(2, None, "aborted"), (3, "ABORT", "aborted")]
    assert read(http, name, 1, "&markers=true")[2:] == aborted
    assert read(http, name, 1, "&isolation=read_committed") == [(0, None, "committed")]
    assert read(http, name, 0) == [(0, None, "open")]
    http.ok(f"/api/topics/{name}/records", "POST", {"value": "plain", "partition": 0})
    assert read(http, name, 0)[1:] == [(1, None, None)]
