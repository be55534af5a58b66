"""Lab commands, fault rules, topics and records over HTTP."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from milena.console.state_types import State
from milena.testing.local_cluster import LocalCluster
from tests.wire.http_client import HttpClient
from tests.wire.waiting import wait_until


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("http"), brokers=3, options=["--http=0"]) as running:
        yield running


@pytest.fixture
def http(lab: LocalCluster) -> HttpClient:
    return HttpClient(lab.directory)


@pytest.fixture
def new_topic(http: HttpClient, topic: str) -> str:
    http.ok("/api/topics", "POST", {"name": topic, "partitions": 2, "replication_factor": 3})
    return topic


def partition_of(http: HttpClient, topic: str, number: int = 0) -> Any:
    return http.ok("/api/state")["topics"][topic]["partitions"][number]


def test_a_held_request_is_seen_waited_for_and_released(http: HttpClient, new_topic: str) -> None:
    """A broker that returns joins the ISR by the leader's AlterPartition, which the controller holds."""
    dead = partition_of(http, new_topic)[0] % 3 + 1
    rule = http.ok("/api/rules", "POST", {"node": "controller-100", "action": "hold", "api": "ALTER_PARTITION"})["ok"]
    http.ok(f"/api/nodes/broker-{dead}/kill", "POST")
    http.ok(f"/api/nodes/{dead}/start", "POST")
    held = http.ok(f"/api/rules/{rule['node']}/{rule['rule']}/wait?hits=1&seconds=60")
    assert held["held"]
    assert dead not in partition_of(http, new_topic)[4]
    assert http.ok(f"/api/rules/{rule['node']}/{rule['rule']}", "DELETE")["ok"]["released"] >= 1
    while dead not in partition_of(http, new_topic)[4]:
        pass
    assert http.ok("/api/rules") == {}


def test_a_rule_without_hits_is_a_time_out(http: HttpClient) -> None:
    rule = http.ok("/api/rules", "POST", {"node": "1", "action": "delay", "ms": 1, "peer": "no-client"})["ok"]
    answer = http.call(f"/api/rules/broker-1/{rule['rule']}/wait?seconds=0")
    assert (answer.status, answer.json["error"]) == (
        408,
        f"rule {rule['rule']} does not have 1 hits after 0 s; ask again",
    )
    assert "broker-1" in http.ok("/api/rules", "DELETE")["ok"]


def test_a_killed_node_starts_again(http: HttpClient, lab: LocalCluster) -> None:
    before = lab.nodes[2].pid
    assert http.ok("/api/nodes/broker-2/kill", "POST")["ok"]["pid"] is None
    assert http.ok("/api/nodes")["broker-2"]["state"] == "down"
    assert http.ok("/api/nodes/broker-2/start", "POST")["ok"]["pid"] not in (None, before)
    events = [(event["kind"], event["node"]) for event in http.ok("/api/state")["events"]]
    assert ("action", "broker-2") in events
    assert ("ended", "broker-2") in events


def test_cut_links_are_in_the_state(http: HttpClient) -> None:
    http.ok("/api/nodes/broker-1/cut", "POST", {"peer": 3, "direction": "out"})
    assert http.ok("/api/nodes")["broker-1"]["links"] == [{"peer": "3", "direction": "out"}]
    http.ok("/api/nodes/broker-1/heal", "POST")
    assert http.ok("/api/nodes")["broker-1"]["links"] == []


def test_faults_of_disk_and_clock_are_in_the_state_until_they_end(http: HttpClient, lab: LocalCluster) -> None:
    (path,) = lab.nodes[1].log_dirs
    for command, given in (("slow_disk", {"ms": 2, "path": path}), ("jump_clock", {"ms": 5000})):
        http.ok(f"/api/nodes/broker-1/{command}", "POST", given)
        assert http.ok("/api/state")["nodes"]["broker-1"]["faults"] == [{"command": command, **given}]
        http.ok(f"/api/nodes/broker-1/{command}", "POST", {"ms": 0})
        assert http.ok("/api/state")["nodes"]["broker-1"]["faults"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/api/nodes/broker-9/kill", {}, 404, "no node 'broker-9'; there are broker-1, broker-2"),
        ("/api/nodes/broker-1/jump_clok", {}, 404, "no command 'jump_clok' (did you mean jump_clock?)"),
        ("/api/nodes/broker-1/brokers", {}, 404, "no command 'brokers'"),
        ("/api/nodes/broker-1/jump_clock", {"ms": "soon"}, 400, "ms=soon is not of type integer"),
        ("/api/nodes/broker-1/jump_clock", [1], 400, "the body must be an object of JSON"),
        ("/api/nodes/broker-1/roll", {"topic": "none", "partition": 0}, 400, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/api/nodes/broker-1/kill", {"hard": True}, 400, "kill: unknown argument 'hard'; it takes no arguments"),
        ("/api/rules", {"node": "1", "action": "held"}, 400, "action: Input should be 'hold', 'delay'"),
        ("/api/rules", {"node": "1", "action": "hold", "apis": 1}, 400, "unknown argument 'apis'; it takes api"),
        ("/api/topics", {"name": "a", "partitions": -7}, 400, "partitions: Input should be greater than or equal to"),
        ("/api/topics", {"name": "a/b"}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("/api/topics/none/records", {"value": "x", "partition": 0}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/api/elect", {"topic": "none", "partition": 0}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/api/nothing", {}, 404, "there is no /api/nothing; /openapi.json lists the paths"),
        ("/api/state", {}, 405, "POST is not possible for /api/state, only GET"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_valid(
    http: HttpClient, path: str, body: object, status: int, said: str
) -> None:
    answer = http.call(path, "POST", body)
    assert said in answer.json["error"]
    assert answer.status == status


def test_each_command_of_a_node_is_described(http: HttpClient) -> None:
    described = http.ok("/api/commands")
    assert {"jump_clock", "hold", "kill", "roll"} <= described["broker-1"]["commands"].keys()
    assert "roll" not in described["controller-100"]["commands"]
    paths = http.ok("/openapi.json")["paths"]
    body = paths["/api/nodes/{name}/jump_clock"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["ms"]["type"] == "integer"
    assert body["required"] == ["ms"]


def test_the_state_is_as_openapi_describes_it(http: HttpClient, lab: LocalCluster, new_topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": lab.bootstrap, "group.id": new_topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([new_topic])
    http.ok(f"/api/topics/{new_topic}/records", "POST", {"value": "x", "partition": 0})
    assert consumer.poll(60) is not None
    consumer.commit(asynchronous=False)
    http.ok("/api/nodes/broker-1/slow_disk", "POST", {"ms": 1})
    http.ok("/api/nodes/broker-1/cut", "POST", {"peer": "no-client"})
    http.ok("/api/rules", "POST", {"node": "2", "action": "fail", "error": "NONE", "api": "PRODUCE"})
    wait_until(lambda: new_topic in http.ok("/api/state")["groups"], "the group is not in the state")
    state = http.ok("/api/state")
    consumer.close()
    for path in ("/api/nodes/1/heal", "/api/nodes/1/slow_disk"):
        http.ok(path, "POST", {"ms": 0} if path.endswith("disk") else {})
    http.ok("/api/rules", "DELETE")
    State.model_validate_json(json.dumps(state), strict=True)
    broker = state["nodes"]["broker-1"]
    assert all((broker["links"], broker["faults"], state["rules"], state["groups"][new_topic]["offsets"]))
    described = http.ok("/openapi.json")
    answer = described["paths"]["/api/state"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/State"}
    assert described["components"]["schemas"]["State"]["properties"].keys() == state.keys()


def test_a_leader_is_elected_and_replicas_are_moved(http: HttpClient, new_topic: str) -> None:
    leader, replicas = (partition_of(http, new_topic)[index] for index in (0, 3))
    assert leader == replicas[0]
    moved = [replicas[1], replicas[0]]
    http.ok("/api/reassign", "POST", {"topic": new_topic, "partition": 0, "replicas": moved})
    while partition_of(http, new_topic)[3] != moved:
        pass
    http.ok("/api/elect", "POST", {"topic": new_topic, "partition": 0})
    assert partition_of(http, new_topic)[0] == moved[0]


def test_records_are_written_and_read(http: HttpClient, new_topic: str) -> None:
    path = f"/api/topics/{new_topic}/records"
    for number in range(5):
        record = {
            "partition": 0,
            "key": f"key-{number % 2}",
            "value": f"value {number}",
            "headers": [["h", "x"], ["n", None]],
        }
        assert http.ok(path, "POST", record)["ok"] == {"partition": 0, "offset": number}
    binary = {"partition": 1, "key_base64": "AP8=", "value_base64": None}
    assert http.ok(path, "POST", binary)["ok"] == {"partition": 1, "offset": 0}

    page = http.ok(f"{path}?partition=0&from=1&limit=2")
    assert [(one["offset"], b64decode(one["value"])) for one in page["records"]] == [(1, b"value 1"), (2, b"value 2")]
    assert page["records"][0]["headers"] == [["h", "eA=="], ["n", None]]
    assert (page["next"], page["high_watermark"]) == ({"0": 3}, {"0": 5})
    found = http.ok(f"{path}?key=key-1")["records"]
    assert [one["offset"] for one in found] == [1, 3]
    assert [one["partition"] for one in http.ok(f"{path}?key_base64=AP8=")["records"]] == [1]
    later = http.ok(f"{path}?time_ms={found[1]['time_ms']}&partition=0")["records"]
    assert [one["offset"] for one in later if one["time_ms"] >= found[1]["time_ms"]][-1] == 4
    assert len(http.ok(path)["records"]) == 6
    assert http.call(f"{path}?partition=0&from=9").json["error"].startswith("OFFSET_OUT_OF_RANGE")
    assert http.call(f"{path}?partition=5").json["error"] == f"{new_topic} has the partitions 0 to 1, not 5"


def test_configs_of_a_topic_are_set_and_removed(http: HttpClient, new_topic: str) -> None:
    path = f"/api/topics/{new_topic}/configs"
    http.ok(path, "POST", {"segment.bytes": "1048577"})
    assert http.ok(path)["segment.bytes"] == "1048577"
    http.ok(path, "POST", {"segment.bytes": None})
    assert http.ok(path)["segment.bytes"] == "1073741824"
    http.ok(f"/api/topics/{new_topic}", "DELETE")
    assert new_topic not in http.ok("/api/state")["topics"]


def test_a_scenario_is_stepped_through(http: HttpClient) -> None:
    assert {"name": "kip405_1", "title": "A new, empty follower"}.items() <= http.ok("/api/scenarios")[0].items()
    run = http.ok("/api/scenarios/kip405_1/runs", "POST", {"step": True})["ok"]
    path = f"/api/runs/{run['run']}"
    assert http.ok(path)["steps"] == []
    titles = [http.ok(f"{path}/next", "POST")["step"]["title"] for _ in range(run["steps"])]
    whole = http.ok(path)
    assert [step["title"] for step in whole["steps"]] == titles
    assert whole["outcome"] == "passed"
    assert http.call(f"{path}/next", "POST").status == 409
    http.ok(path, "DELETE")
    assert http.call(path).status == 404
    assert "kip405_1" in http.call("/api/scenarios/kip405_99/runs", "POST", {}).json["error"]


def test_a_reset_removes_topics_and_rules(http: HttpClient, new_topic: str) -> None:
    http.ok("/api/rules", "POST", {"node": "1", "action": "hold", "peer": "no-client"})
    http.ok("/api/reset", "POST")
    state = http.ok("/api/state")
    assert (state["topics"], state["rules"]) == ({}, {})
