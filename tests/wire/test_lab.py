"""`milena up --lab`: tests control real processes through the nodes' sockets."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from milena.command_line.errors import UserError
from milena.node.serving.lab_catalog import CATALOG
from milena.testing.local_cluster import LocalCluster
from milena.up import channel, nodes_file
from milena.up.layout import ClusterDir
from tests.wire.admin import create_topic
from tests.wire.command import milena, refused
from tests.wire.lab import SESSION, leader_of, log_of, write
from tests.wire.waiting import wait_until


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers. Each test leaves all of them running and in sync."""
    with LocalCluster.start(tmp_path_factory.mktemp("lab"), brokers=3, overrides=SESSION, lab=True) as running:
        yield running


def fenced(lab: LocalCluster) -> list[int]:
    brokers = lab.lab_commands(lab.controller.id).call("brokers")
    return [int(number) for number, broker in brokers.items() if broker["fenced"]]


def test_a_held_produce_request_waits_for_its_release(lab: LocalCluster, topic: str) -> None:
    create_topic(lab.bootstrap, topic, partitions=1, replicas=3)
    leader = lab.lab_commands(leader_of(lab, topic))
    rule = leader.call("hold", api="PRODUCE", topic=topic)["rule"]
    with ThreadPoolExecutor() as threads:
        writing = threads.submit(write, lab, topic, "late")
        assert leader.call("wait", rule=rule, hits=1, seconds=20)["hits"] == 1
        assert leader.call("describe_partition", topic=topic, partition=0)["log_end_offset"] == 0
        assert not writing.done()
        assert leader.call("release", rule=rule) == {"hits": 1, "released": 1}
        writing.result()
    assert log_of(lab, leader_of(lab, topic), topic) == ["late"]


def test_a_consumer_continues_with_the_partitions_that_no_rule_refuses(lab: LocalCluster, topic: str) -> None:
    create_topic(lab.bootstrap, topic, partitions=4, replicas=1)
    producer = Producer({"bootstrap.servers": lab.bootstrap})
    for partition in range(4):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    refusing = {"api": "FETCH", "topic": topic, "partition": 0, "error": "NOT_LEADER_OR_FOLLOWER"}
    rules = {broker.id: lab.lab_commands(broker.id).call("fail", **refusing)["rule"] for broker in lab.brokers}
    consumer = KafkaConsumer(bootstrap_servers=lab.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, partition) for partition in range(4)])
    read: list[int] = []

    def reads(*expected: int) -> bool:
        read.extend(one.partition for records in consumer.poll(100).values() for one in records)
        return sorted(read) == list(expected)

    wait_until(lambda: reads(1, 2, 3), "the other partitions")
    wait_until(
        lambda: reads(1, 2, 3) and sum(lab.lab_commands(node).call("rules")[0]["hits"] for node in rules) > 1,
        "refusals",
    )
    for node, rule in rules.items():
        lab.lab_commands(node).call("release", rule=rule)
    wait_until(lambda: reads(0, 1, 2, 3), "the refused partition")
    consumer.close()


def test_a_broker_that_is_cut_off_from_the_controller_is_fenced_until_it_is_healed(lab: LocalCluster) -> None:
    controller = lab.lab_commands(lab.controller.id)
    lab.lab_commands(1).call("cut", peer=lab.controller.id)
    try:
        wait_until(lambda: fenced(lab) == [1], "broker 1 to be fenced")
        assert lab.lab_commands(1).call("links")[0]["connections"] >= 2
    finally:
        lab.lab_commands(1).call("heal")
    wait_until(lambda: fenced(lab) == [], "broker 1 to come back")
    controller.call("cut", peer=2, direction="in")
    try:
        wait_until(lambda: fenced(lab) == [2], "broker 2 to be fenced")
    finally:
        controller.call("heal", peer=2)
    wait_until(lambda: fenced(lab) == [], "broker 2 to come back")


def test_records_lost_in_a_power_loss_are_copied_from_the_other_replicas(lab: LocalCluster, topic: str) -> None:
    create_topic(lab.bootstrap, topic, partitions=1, replicas=3)
    for number in range(5):
        write(lab, topic, str(number))
    leader = leader_of(lab, topic)
    follower = next(broker.id for broker in lab.brokers if broker.id != leader)
    wait_until(lambda: len(log_of(lab, follower, topic)) == 5, "the follower to have all")
    data = next(iter(lab.nodes[follower].log_dirs))
    segment = f"{data}/{topic}-0/00000000000000000000.log"
    lab.power_off(follower)
    assert not _size(segment), "no fsync has passed over these records"
    lab.start_node(follower)
    wait_until(lambda: log_of(lab, follower, topic) == list("01234"), "the follower to have all again")


def test_kill_9_loses_nothing_from_the_page_cache(lab: LocalCluster, topic: str) -> None:
    create_topic(lab.bootstrap, topic, partitions=1, replicas=3)
    write(lab, topic, "x")
    leader = leader_of(lab, topic)
    segment = f"{next(iter(lab.nodes[leader].log_dirs))}/{topic}-0/00000000000000000000.log"
    lab.kill(leader)
    assert _size(segment)
    lab.start_node(leader)
    wait_until(lambda: fenced(lab) == [], "the broker to come back")


def test_a_node_that_has_stopped_starts_again_at_once(lab: LocalCluster) -> None:
    for _ in range(3):
        lab.stop_node(2)
        lab.start_node(2)


def test_a_paused_broker_is_fenced_and_a_wiped_broker_copies_all_records(lab: LocalCluster, topic: str) -> None:
    create_topic(lab.bootstrap, topic, partitions=1, replicas=3)
    write(lab, topic, "x")
    lab.pause(3)
    wait_until(lambda: fenced(lab) == [3], "broker 3 to be fenced")
    lab.resume(3)
    wait_until(lambda: fenced(lab) == [], "broker 3 to come back")
    with pytest.raises(UserError, match="broker-3 is running: stop it before wiping its disk"):
        lab.wipe(3)
    lab.stop_node(3)
    lab.wipe(3)
    lab.start_node(3)
    wait_until(lambda: log_of(lab, 3, topic) == ["x"], "broker 3 to have all")


def test_nodes_are_controlled_from_the_shell(lab: LocalCluster) -> None:
    at = ("--dir", lab.directory)
    said = json.loads(milena("lab", "broker-2", "drop", "api=FETCH", "peer=absent", "count=1", *at).out)
    assert json.loads(milena("lab", "2", "release", f"rule={said['rule']}", *at).out) == {"hits": 0, "released": 0}
    assert "describe_partition" in json.loads(milena("lab", "2", "help", *at).out)
    milena("lab", "2", "pause", *at)
    assert refused("lab", "2", "fetchers", *at).startswith(
        "broker-2 is paused; `milena lab broker-2 resume` resumes it"
    )
    assert refused("lab", "2", "power_off", *at).startswith(
        "broker-2 is paused; `milena lab broker-2 resume` resumes it"
    )
    milena("lab", "2", "resume", *at)
    assert refused("lab", "2", "start", *at) == "broker-2 is already running"
    assert refused("lab", "2", "hodl", *at).startswith("no command 'hodl' (did you mean hold?); there are ")
    assert refused("lab", "2", "fail_disk", "path=/elsewhere", *at).startswith(
        "/elsewhere is not one of the log directories"
    )
    assert refused("lab", "2", "kill", "now=1", *at, code=2) == "kill takes no arguments"
    assert refused("lab", "7", "kill", *at) == f"{lab.directory} has no node 7"
    assert refused("lab", "2", "hold", "PRODUCE", *at, code=2) == "PRODUCE: write it as argument=value, as in peer=1"


def test_without_lab_processes_can_be_controlled_but_nodes_cannot(milena_start: Callable[..., LocalCluster]) -> None:
    cluster = milena_start()
    with pytest.raises(UserError, match="it is down, or was started without --lab"):
        cluster.lab_commands(1).call("rules")
    at = ("--dir", cluster.directory)
    for command in ("rules", "power_off"):
        assert refused("lab", "1", command, *at) == (
            f"no node listens at {cluster.directory}/broker-1.sock: it is down, or was started without --lab"
        )
    said = refused("lab", "1", "wip", *at)
    assert said.startswith("no command 'wip' (did you mean wipe?); there are break_tier, brokers, ")
    cluster.kill(1)
    cluster.start_node(1)
    assert cluster.nodes[1].pid is not None


def test_the_command_knows_every_command_of_the_nodes(lab: LocalCluster) -> None:
    for node, kind in ((1, "broker"), (lab.controller.id, "controller")):
        described = lab.lab_commands(node).call("help")
        in_catalog = [one for one in CATALOG.values() if kind in one.nodes]
        assert described == {
            one.name: one.as_json() for one in in_catalog if not one.of_process or one.name == "power_off"
        }


def test_a_node_that_is_shutting_down_can_be_started(milena_start: Callable[..., LocalCluster]) -> None:
    cluster = milena_start()
    pid = cluster.nodes[1].pid
    assert pid is not None
    folder = ClusterDir(cluster.directory)
    nodes_file.mark_down(folder.nodes, 1, pid)  # a node announces its end before its process has ended
    channel.notify_supervisor(folder, 1, channel.START)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.nodes[1].pid not in (None, pid), "the node to be started")


def _size(path: str) -> int:
    """Return the size in bytes; 0 if there is no file, because the power loss may remove the directory entry too."""
    return os.path.getsize(path) if os.path.exists(path) else 0
