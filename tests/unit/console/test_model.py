"""The model's deltas, applied to a former state, give the present state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from milena.console import model as module
from milena.console.model import NO_TRANSACTIONS, REPLICAS, Model

LEADER = ["L", 0, 0, 5, 5, 7, -1, 700, [0, 0], 0, "", [2, 7, 12], [], []]
FOLLOWER = ["F", 0, 0, 5, 5, 7, -1, 700, [0, 0], 0, "Fetching", [], [], []]
REGISTERED = [1, 0, 0, [1, 2], [1, 2], [], [], [], 0]
NODE = {"state": "up", "pid": 1, "epoch": 3, "fenced": False}


def with_one_partition() -> Model:
    model = Model(lambda: 1000)
    model.set_node("broker-1", NODE)
    model.set_topic("t", "id", 1, internal=False)
    model.set_registration(("t", 0), REGISTERED)
    model.set_replica(("t", 0), "1", LEADER)
    model.set_replica(("t", 0), "2", FOLLOWER)
    return model


def state_of(model: Model) -> Any:
    model.publish()
    return json.loads(model.full())


def apply(state: Any, delta: Any) -> None:
    """Apply a delta as docs/http.md describes it."""
    state["seq"] = delta["seq"]
    for key in ("nodes", "groups", "rules"):
        for name, value in delta.get(key, {}).items():
            state[key][name] = value
            if not value:
                del state[key][name]
    for node, block in delta.get("transactions", {}).items():
        known = state["transactions"].setdefault(node, {"ids": {}})
        ids = {name: row for name, row in (known["ids"] | block["ids"]).items() if row is not None}
        state["transactions"][node] = {**block, "ids": ids}
        if not (block["counts"] or block["loading"] or ids):
            del state["transactions"][node]
    for name, topic in delta.get("topics", {}).items():
        if topic is None:
            del state["topics"][name]
        else:
            known = state["topics"].setdefault(name, {"partitions": []})
            known |= {"id": topic["id"], "internal": topic["internal"]}
            known["partitions"] += [None] * (topic["count"] - len(known["partitions"]))
    for name, number, row, replicas in delta.get("parts", ()):
        partitions = state["topics"][name]["partitions"]
        if row is not None:
            former = {} if partitions[number] is None else partitions[number][REPLICAS]
            partitions[number] = [*row[:REPLICAS], former, *row[REPLICAS:]]
        for broker, replica in replicas.items():
            partitions[number][REPLICAS][broker] = replica
            if replica is None:
                del partitions[number][REPLICAS][broker]


def test_a_new_partition_is_in_the_state_with_its_replicas_between_its_fields() -> None:
    state = state_of(with_one_partition())
    assert state["topics"]["t"]["partitions"] == [
        [1, 0, 0, [1, 2], [1, 2], [], [], [], {"1": LEADER, "2": FOLLOWER}, 0]
    ]


def test_deltas_lead_from_one_state_to_the_next() -> None:
    model = with_one_partition()
    state = state_of(model)
    model.set_registration(("t", 0), [2, 1, 1, [1, 2], [2], [], [], [], 0])
    model.set_replica(("t", 0), "2", LEADER)
    model.remove_replica(("t", 0), "1")
    model.set_topic("u", "id-u", 2, internal=True)
    model.set_registration(("u", 1), REGISTERED)
    model.set_group("g", {"state": "Stable", "members": []})
    model.set_rules("broker-1", [{"rule": 1, "command": "hold"}])
    model.set_node("broker-1", None)
    delta = model.publish()
    assert delta is not None
    apply(state, json.loads(delta.data))
    now = state_of(model)
    assert {**state, "events": []} == {**now, "events": []}


def coordinating(**ids: Any) -> Any:
    return {"counts": {"Empty": len(ids)}, "total": len(ids), "loading": 0, "ids": ids}


def test_a_delta_has_the_changed_transactional_ids_only() -> None:
    model = with_one_partition()
    model.set_transactions("broker-1", coordinating(a=1, b=2, c=3))
    model.publish()
    model.set_transactions("broker-1", coordinating(a=1, b=4))
    delta = model.publish()
    assert delta is not None
    assert json.loads(delta.data)["transactions"]["broker-1"]["ids"] == {"b": 4, "c": None}


@pytest.mark.parametrize("publishes", [False, True])
def test_transactional_ids_that_were_gone_meanwhile_are_those_of_the_last_state(publishes: bool) -> None:
    model = with_one_partition()
    model.set_transactions("broker-1", coordinating(a=1, b=2))
    state = state_of(model)
    for block in (coordinating(c=1), NO_TRANSACTIONS, coordinating(a=5)):
        model.set_transactions("broker-1", block)
        delta = model.publish() if publishes or block["ids"] == {"a": 5} else None
        if delta is not None:
            apply(state, json.loads(delta.data))
    assert state["transactions"] == state_of(model)["transactions"] == {"broker-1": coordinating(a=5)}


def test_a_broker_without_transactional_ids_is_left_out() -> None:
    model = with_one_partition()
    model.set_transactions("broker-1", coordinating(a=1))
    state = state_of(model)
    model.set_transactions("broker-1", NO_TRANSACTIONS)
    delta = model.publish()
    assert delta is not None
    apply(state, json.loads(delta.data))
    assert state["transactions"] == state_of(model)["transactions"] == {}


def test_a_deleted_topic_is_gone_from_state_and_delta() -> None:
    model = with_one_partition()
    state = state_of(model)
    model.remove_partition(("t", 0))
    delta = model.publish()
    assert delta is not None
    apply(state, json.loads(delta.data))
    assert state["topics"] == state_of(model)["topics"] == {}


def test_a_topic_that_was_created_again_has_its_partitions_in_the_delta_even_if_they_are_the_same() -> None:
    model = with_one_partition()
    model.publish()
    model.set_topic("t", "another id", 1, internal=False)
    model.set_registration(("t", 0), list(REGISTERED))
    delta = model.publish()
    assert delta is not None
    assert json.loads(delta.data)["parts"] == [["t", 0, REGISTERED, {"1": LEADER, "2": FOLLOWER}]]


def test_a_name_that_utf_8_does_not_have_is_escaped() -> None:
    model = with_one_partition()
    model.set_rules("broker-1", [{"rule": 1, "command": "trace", "client_id": "\udcff"}])
    delta = model.publish()
    assert delta is not None
    assert json.loads(delta.data)["rules"] == state_of(model)["rules"]
    assert state_of(model)["rules"]["broker-1"][0]["client_id"] == "\udcff"


def test_without_a_change_nothing_is_published() -> None:
    model = with_one_partition()
    assert model.publish() is not None
    model.set_registration(("t", 0), list(REGISTERED))
    model.set_replica(("t", 0), "1", list(LEADER))
    assert model.publish() is None


def test_a_delta_has_the_changed_replicas_only() -> None:
    model = with_one_partition()
    model.publish()
    model.set_replica(("t", 0), "2", [*FOLLOWER[:5], 9, *FOLLOWER[6:]])
    delta = model.publish()
    assert delta is not None
    assert json.loads(delta.data)["parts"] == [["t", 0, None, {"2": [*FOLLOWER[:5], 9, *FOLLOWER[6:]]}]]


def changed(model: Model, times: int) -> None:
    for end in range(times):
        model.set_replica(("t", 0), "2", [*FOLLOWER[:5], 100 + end, *FOLLOWER[6:]])
        model.publish()


def test_a_client_that_connects_again_gets_the_deltas_that_it_missed() -> None:
    model = with_one_partition()
    model.publish()
    changed(model, 3)
    found = model.since(model.stream, 2)
    assert found is not None
    assert [delta.number for delta in found] == [3, 4]
    assert model.since(model.stream, 4) == []


def test_deltas_that_are_no_longer_kept_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_DELTAS", 2)
    model = with_one_partition()
    model.publish()
    changed(model, 3)
    assert model.since(model.stream, 1) is None
    assert model.since(model.stream, 2) is not None
    assert model.since("another", 4) is None
    assert model.since(model.stream, 5) is None
