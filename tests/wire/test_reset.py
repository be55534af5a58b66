"""Reset of a running cluster: a client sees a new one, on the same ports and in the same processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigResource

from milena.command_line.errors import UserError
from milena.testing.local_cluster import LocalCluster, Node
from tests.wire.admin import alter_broker, create_topic
from tests.wire.command import milena, refused
from tests.wire.lab import SESSION, log_of, write
from tests.wire.tiers import TIERED, logs, settings
from tests.wire.waiting import wait_until

REMOTE_TOPIC = "__remote_log_metadata"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers, which each test may leave in any state: the next one resets it."""
    with LocalCluster.start(tmp_path_factory.mktemp("reset"), brokers=3, overrides=SESSION, lab=True) as running:
        yield running


def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def consume_as_group(cluster: LocalCluster, group: str, topic: str) -> Consumer:
    """Read a record and commit its offset; the member stays."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    assert consumer.consume(1, 30)
    consumer.commit(asynchronous=False)
    return consumer


def places(nodes: dict[int, Node]) -> dict[int, tuple[int | None, dict[str, str]]]:
    return {node.id: (node.pid, dict(node.listeners)) for node in nodes.values()}


def test_topics_groups_and_configurations_are_gone(lab: LocalCluster) -> None:
    lab.reset()
    before = places(lab.nodes)
    client = admin(lab)
    create_topic(lab.bootstrap, "orders", partitions=20, replicas=3, config={"retention.ms": "1000000"})
    write(lab, "orders", "before")
    member = consume_as_group(lab, "readers", "orders")
    assert alter_broker(lab.bootstrap, 1, AlterConfigOpType.SET, "log.cleaner.threads", "2") is None

    lab.reset()

    assert places(lab.nodes) == before
    assert not client.list_topics(timeout=20).topics
    assert not client.list_consumer_groups().result(20).valid
    member.close()
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    assert client.describe_configs([broker])[broker].result(20)["log.cleaner.threads"].value == "1"
    create_topic(lab.bootstrap, "orders", partitions=1, replicas=3)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    assert client.describe_configs([topic])[topic].result(20)["retention.ms"].value == "604800000"


def test_the_same_names_start_empty(lab: LocalCluster) -> None:
    lab.reset()
    for number in range(3):
        create_topic(lab.bootstrap, "orders", partitions=1, replicas=3)
        write(lab, "orders", f"round {number}")
        consume_as_group(lab, "readers", "orders").close()
        held = [log_of(lab, broker.id, "orders") for broker in lab.brokers]
        assert held == [[f"round {number}"]] * 3
        lab.reset()


def test_faults_are_gone_and_every_node_serves(lab: LocalCluster) -> None:
    lab.reset()
    controller = lab.lab_commands(lab.controller.id)
    create_topic(lab.bootstrap, "orders", partitions=6, replicas=3)
    with ThreadPoolExecutor() as threads:
        held = lab.lab_commands(2).call("hold", api="METADATA", peer="held-client")["rule"]
        waiting = threads.submit(
            AdminClient({"bootstrap.servers": lab.nodes[2].listeners["PLAINTEXT"], "client.id": "held-client"})
            .list_topics,
            timeout=60,
        )  # fmt: skip
        lab.lab_commands(2).call("wait", rule=held, hits=1)
        lab.lab_commands(2).call("jump_clock", ms=3_600_000)
        lab.lab_commands(2).call("slow_disk", ms=500)
        lab.lab_commands(2).call("fail_disk", path=lab.nodes[2].log_dirs[0])
        lab.lab_commands(3).call("cut", peer=lab.controller.id)
        wait_until(lambda: controller.call("brokers")["3"]["fenced"], "broker 3 to be fenced")
        lab.pause(3)
        lab.kill(1)

        lab.reset()

        waiting.result()
    assert not admin(lab).list_topics(timeout=20).topics
    for broker in lab.brokers:
        commands = lab.lab_commands(broker.id)
        assert commands.call("rules") == []
        assert commands.call("links") == []
        assert abs(commands.call("troubles")["wall_ms"] - lab.lab_commands(100).call("troubles")["wall_ms"]) < 60_000
    assert not any(broker["fenced"] for broker in controller.call("brokers").values())
    create_topic(lab.bootstrap, "orders", partitions=6, replicas=3)
    assert all(len(one["isr"]) == 3 for one in controller.call("partitions", topic="orders").values())


def test_a_request_of_an_ended_client_that_was_held_is_not_handled_after_the_reset(lab: LocalCluster) -> None:
    lab.reset()
    code = (
        "from confluent_kafka.admin import AdminClient, NewTopic\n"
        f"client = AdminClient({{'bootstrap.servers': '{lab.nodes[1].listeners['PLAINTEXT']}'}})\n"
        "client.create_topics([NewTopic('late', 1, 3)])['late'].result(60)"
    )
    for broker in lab.brokers:
        lab.lab_commands(broker.id).call("hold", api="CREATE_TOPICS")
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as client:
        wait_until(lambda: any(held_by(lab, broker.id) for broker in lab.brokers), "the request to be held")
        client.kill()

    lab.reset()

    write(lab, "after", "one")
    assert set(admin(lab).list_topics(timeout=20).topics) == {"after"}


def held_by(cluster: LocalCluster, broker: int) -> bool:
    return any(rule["held"] for rule in cluster.lab_commands(broker).call("rules"))


def test_a_broker_that_was_killed_just_now_or_starts_is_part_of_the_reset(lab: LocalCluster) -> None:
    lab.reset()
    create_topic(lab.bootstrap, "orders", partitions=1, replicas=3)
    pid = lab.nodes[2].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    lab.reset()
    assert not admin(lab).list_topics(timeout=20).topics
    lab.kill(2)
    lab.start_node(2, wait=False)
    lab.reset()
    assert all(lab.lab_commands(node).call("ready")["ready"] for node in lab.nodes)


@pytest.mark.slow
def test_the_tier_is_empty_and_can_be_used_again(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    overrides = settings(tier) | {"default.replication.factor": "2"}
    with LocalCluster.start(tmp_path / "cluster", brokers=2, overrides=overrides, lab=True) as cluster:
        remote = tier / "kafka-tiered-storage"
        for number in range(2):
            create_topic(cluster.bootstrap, "orders", partitions=2, config=TIERED)
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
            for _ in range(30):
                producer.produce("orders", b"%-1000d" % number, partition=0)
                producer.flush(10)
            wait_until(lambda: len(logs(remote, "orders-0-*")) >= 3, "segments in the tier")
            consumer = Consumer(
                {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["orders"])
            found = [message.value() for message in consumer.consume(30, 30)]
            consumer.close()
            assert found == [b"%-1000d" % number] * 30

            cluster.reset()

            assert not list(remote.glob("*/*"))
            assert REMOTE_TOPIC not in admin(cluster).list_topics(timeout=20).topics


def test_a_cluster_without_lab_commands_is_not_reset(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, topics=["orders:1:1"]) as cluster:
        with pytest.raises(UserError, match="can be reset only if it was started with --lab"):
            cluster.reset()
        assert "orders" in admin(cluster).list_topics(timeout=20).topics


def test_the_command_resets_a_cluster_in_the_background(tmp_path: Path) -> None:
    at = ("--dir", str(tmp_path / "cluster"))
    ready = milena("up", *at, "--brokers", "1", "--port", "0", "--lab", "--topic", "orders:3:1", "--detach").out
    try:
        address = ready.strip().removeprefix("ready bootstrap=")
        assert milena("reset", *at).out == ""
        assert milena("topic", "list", "-b", address).out == ""
    finally:
        milena("down", *at)
    assert refused("reset", *at) == f"no cluster runs in {tmp_path / 'cluster'}"
    assert refused("reset", "--dir", str(tmp_path)) == f"{tmp_path} holds no cluster (--dir names another directory)"
