"""Kafka's tools for replicas: describe, elections, reassignments, verification, registrations, files of followers."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.testing.local_cluster import LocalCluster
from tests.oracle import kafka
from tests.oracle.complaints import COMPLAINTS
from tests.oracle.differential.sides import Line, Side
from tests.oracle.tools import CLUSTER, CONFIGS, DUMP, ELECT, REASSIGN, TOPICS, VERIFY_REPLICAS, Tools

SETTINGS = {"auto.leader.rebalance.enable": "false"}
LIMIT = 30.0


@pytest.fixture(scope="module")
def lasting(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("replicas"), brokers=3, overrides=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def own(lasting: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster whose brokers a test may kill. They are restarted after each test."""
    yield lasting
    for node in lasting.brokers:
        if node.pid is None:
            lasting.restart(node.id)


class Topic:
    """A topic with 300 records per partition, described by Kafka's tools."""

    def __init__(self, tools: Tools, cluster: LocalCluster, name: str, plan: str, *, min_isr: int = 1) -> None:
        self._tools = tools
        self.name = name
        self.server = ("--bootstrap-server", cluster.bootstrap)
        config = ("--config", f"min.insync.replicas={min_isr}")
        tools(TOPICS, *self.server, "--create", "--topic", name, "--replica-assignment", plan, *config)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(300 * len(plan.split(","))):
            producer.produce(name, f"record {number}", partition=number % len(plan.split(",")))
        assert producer.flush(20) == 0

    def described(self, *only: str) -> list[tuple[str, str, str]]:
        """Return leader, replicas and sorted ISR of each partition."""
        words = () if only else ("--topic", self.name)
        shown = self._tools(TOPICS, *self.server, "--describe", *only, *words)
        lines = re.findall(rf"Topic: {self.name}\tPartition: .*Leader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)\t", shown)
        return [(leader, replicas, ",".join(sorted(isr.split(",")))) for leader, replicas, isr in lines]

    def until(self, *expected: tuple[str, str, str]) -> None:
        eventually(lambda: self.described() == list(expected), lambda: f"{self.described()}, not {list(expected)}")


def eventually(holds: Callable[[], bool], message: Callable[[], str]) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, message()
        time.sleep(0.1)


def plan(file: Path, topic: str, replicas: Mapping[int, Sequence[int]]) -> tuple[str, str]:
    partitions = [{"topic": topic, "partition": index, "replicas": list(ids)} for index, ids in replicas.items()]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", str(file)


def test_describe_shows_partitions_affected_by_a_killed_broker(tools: Tools, own: LocalCluster, topic: str) -> None:
    made = Topic(tools, own, topic, "1:2,2:3,3:1", min_isr=2)
    made.until(("1", "1,2", "1,2"), ("2", "2,3", "2,3"), ("3", "3,1", "1,3"))
    assert made.described("--at-min-isr-partitions") == made.described()
    own.kill(3)
    left = [("2", "2,3", "2"), ("1", "3,1", "1")]
    made.until(("1", "1,2", "1,2"), *left)
    for kind in ("under-replicated", "under-min-isr"):
        assert made.described(f"--{kind}-partitions") == left
    assert made.described("--unavailable-partitions") == []
    own.restart(3)
    made.until(("1", "1,2", "1,2"), ("2", "2,3", "2,3"), ("1", "3,1", "1,3"))
    assert made.described("--under-replicated-partitions") == []


def test_preferred_and_unclean_elections(tools: Tools, own: LocalCluster, topic: str) -> None:
    made = Topic(tools, own, topic, "1:2")
    one = (*made.server, "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in tools(ELECT, *one, "--election-type", "preferred")
    own.kill(1)
    made.until(("2", "1,2", "2"))
    assert "PreferredLeaderNotAvailable" in tools.refusal(ELECT, *one, "--election-type", "preferred")
    own.restart(1)
    made.until(("2", "1,2", "1,2"))
    shown = tools(ELECT, *one, "--election-type", "preferred")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in shown
    made.until(("1", "1,2", "1,2"))
    own.kill(2)
    made.until(("1", "1,2", "1"))
    own.kill(1)
    own.restart(2)
    made.until(("none", "1,2", "1"))
    assert made.described("--unavailable-partitions") == [("none", "1,2", "1")]
    shown = tools(ELECT, *one, "--election-type", "unclean")
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in shown
    made.until(("2", "1,2", "2"))
    own.restart(1)
    made.until(("2", "1,2", "1,2"))


def endpoints(tools: Tools, own: LocalCluster) -> str:
    """Return the output of Kafka's tool about all brokers, including fenced ones."""
    return tools(CLUSTER, "list-endpoints", "--bootstrap-server", own.bootstrap, "--include-fenced-brokers")


def until_third_is(state: str, tools: Tools, own: LocalCluster) -> None:
    pattern = re.compile(rf"^3 .* {state}", re.MULTILINE)
    eventually(lambda: pattern.search(endpoints(tools, own)) is not None, lambda: endpoints(tools, own))


def kill_third(tools: Tools, own: LocalCluster) -> None:
    """Kill broker 3 and wait for the end of its session, because until then the controller takes it for alive."""
    own.kill(3)
    until_third_is("fenced", tools, own)


def test_replicas_are_reassigned(tools: Tools, own: LocalCluster, topic: str, tmp_path: Path) -> None:
    made = Topic(tools, own, topic, "1:2,2:3")
    file = plan(tmp_path / "plan.json", topic, {0: [3, 1], 1: [1, 2, 3]})
    shown = tools(REASSIGN, *made.server, *file, "--execute", "--throttle", "50000000")
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in shown
    made.until(("1", "3,1", "1,3"), ("2", "1,2,3", "1,2,3"))
    shown = tools(REASSIGN, *made.server, *file, "--verify")
    assert shown.count("is completed.") == 2
    assert "Clearing broker-level throttles" in shown and "Clearing topic-level throttles" in shown
    described = tools(TOPICS, *made.server, "--describe", "--topic", topic)
    assert "throttled" not in described


def test_a_throttle_slows_a_reassignment_down(tools: Tools, own: LocalCluster, topic: str, tmp_path: Path) -> None:
    made = Topic(tools, own, topic, "1")
    producer = Producer({"bootstrap.servers": own.bootstrap, "log_level": 0})
    for _ in range(200):
        producer.produce(topic, b" " * 50_000, partition=0)
    assert producer.flush(20) == 0
    file = plan(tmp_path / "plan.json", topic, {0: [1, 3]})
    tools(REASSIGN, *made.server, *file, "--execute", "--throttle", "200000")  # 10 MB: 50 s
    shown = tools(CONFIGS, *made.server, "--describe", "--entity-type", "brokers", "--entity-name", "3")
    assert "follower.replication.throttled.rate=200000" in shown
    shown = tools(REASSIGN, *made.server, *file, "--verify", "--preserve-throttles")
    assert f"Reassignment of partition {topic}-0 is still in progress." in shown
    shown = tools(REASSIGN, *made.server, *file, "--execute", "--additional", "--throttle", "100000000")
    assert "The inter-broker throttle limit was set to 100000000 B/s" in shown
    made.until(("1", "1,3", "1,3"))
    assert "Clearing topic-level throttles" in tools(REASSIGN, *made.server, *file, "--verify")


def test_a_reassignment_is_listed_and_cancelled(tools: Tools, own: LocalCluster, topic: str, tmp_path: Path) -> None:
    made = Topic(tools, own, topic, "1:2")
    kill_third(tools, own)
    file = plan(tmp_path / "plan.json", topic, {0: [1, 3]})
    # Kafka's tool itself refuses to reassign to a broker that is down.
    assert "Unknown broker id 3" in tools.refusal(REASSIGN, *made.server, *file, "--execute")
    host, _, port = own.brokers[0].listeners["PLAINTEXT"].rpartition(":")
    line = Line(Side("Milena", host, int(port), 1))
    moves = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [1, 3]}]}]
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    line.send(key, 0, messages.encode_request(key, 0, timeout_ms=5000, topics=moves))
    assert line.receive(key, 0)["responses"][0]["partitions"][0]["error_code"] == 0
    line.close()
    listed = tools(REASSIGN, *made.server, "--list")
    assert re.search(rf"{topic}-0: replicas: 1,3,2\. adding: 3\. removing: 2\.", listed), listed
    shown = tools(REASSIGN, *made.server, *file, "--verify", "--preserve-throttles")
    assert f"Reassignment of partition {topic}-0 is still in progress." in shown
    # Without this argument the tool would wait for the broker that is down, to clear its throttle.
    shown = tools(REASSIGN, *made.server, *file, "--cancel", "--preserve-throttles")
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in shown
    made.until(("1", "1,2", "1,2"))
    assert "No partition reassignments found." in tools(REASSIGN, *made.server, "--list")


def test_replicas_are_verified(tools: Tools, own: LocalCluster, topic: str) -> None:
    made = Topic(tools, own, topic, "1:2:3,2:3:1")
    words = ("--broker-list", own.bootstrap, "--topics-include", topic, "--time", "-2", "--report-interval-ms", "300")
    tool = subprocess.Popen(
        kafka.java(VERIFY_REPLICAS, *words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert tool.stdout is not None
        lines = [tool.stdout.readline() for _ in range(6)]
    finally:
        tool.kill()
        tool.communicate()
    assert "verification process is started" in lines[0]
    assert f"max lag is 0 for partition {made.name}-0 at offset 300 among 2 partitions" in lines[-1], lines


def test_a_broker_is_unregistered(tools: Tools, own: LocalCluster) -> None:
    server = ("--bootstrap-server", own.bootstrap)
    kill_third(tools, own)
    assert "Broker 3 is no longer registered." in tools(CLUSTER, "unregister", *server, "--id", "3")
    assert re.search(r"^3 ", endpoints(tools, own), re.MULTILINE) is None
    assert "BrokerIdNotRegistered" in tools.refusal(CLUSTER, "unregister", *server, "--id", "77")
    own.restart(3)
    until_third_is("unfenced", tools, own)


def test_files_of_followers_have_no_damage(tools: Tools, own: LocalCluster, topic: str) -> None:
    Topic(tools, own, topic, "1:2:3", min_isr=3)
    shown = {}
    for node in own.brokers:
        folder = Path(node.log_dirs[0], f"{topic}-0")
        dumped = tools(DUMP, "--files", str(folder / f"{0:020d}.log"), "--print-data-log", "--deep-iteration")
        shown[node.id] = re.sub(r"(?m)^Dumping .*$", "", dumped)
        assert "Exception" not in dumped and "Mismatch" not in dumped and "isvalid: false" not in dumped
    assert shown[1].count("payload: record") == 300
    assert shown[1] == shown[2] == shown[3]


@pytest.mark.parametrize(("records", "entries"), [(700, 341), (3, 0)], ids=["many entries", "none in the files yet"])
def test_indexes_of_active_segments_have_no_damage(
    tools: Tools, own: LocalCluster, topic: str, records: int, entries: int
) -> None:
    """Check the indexes while they are written, at the leader and at followers, up to the entries in the files."""
    server = ("--bootstrap-server", own.bootstrap)
    config = ("--config", "index.interval.bytes=0", "--config", "min.insync.replicas=3")
    tools(TOPICS, *server, "--create", "--topic", topic, "--replica-assignment", "1:2:3", *config)
    producer = Producer({"bootstrap.servers": own.bootstrap, "batch.num.messages": 1, "acks": "all", "log_level": 0})
    now = int(time.time() * 1000)
    for number in range(records):
        producer.produce(topic, f"record {number}", timestamp=now + number)
    assert producer.flush(30) == 0
    for node in own.brokers:
        for suffix in ("index", "timeindex"):
            file = str(Path(node.log_dirs[0], f"{topic}-0", f"{0:020d}.{suffix}"))
            sound = tools(DUMP, "--index-sanity-check", "--files", file)
            assert "passed sanity check" in sound or (not entries and f"{file} is empty." in sound)
            for option in ((), ("--verify-index-only",)):
                ran = tools.run(DUMP, *option, "--files", file)
                assert ran.status == 0 and not any(one in ran.out + ran.err for one in COMPLAINTS), ran
            shown = tools(DUMP, "--files", file)
            assert len(re.findall(r"offset: \d+", shown)) >= entries, shown
