"""A Kafka broker beside two Milena brokers with Milena's controller: it follows and leads them, all logs are equal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.oracle.joining import KAFKA, LIMIT, JoiningKafka, joined_kafka
from tests.oracle.tools import TOPICS, Tools
from tests.wire.admin import Places, place_topic
from tests.wire.load import PARTITIONS, Load, read_all

TOPIC = "kin"


def same_logs(cluster: LocalCluster, kin: JoiningKafka) -> None:
    """Compare the logs of all brokers, which must have stopped."""
    for partition in range(PARTITIONS):
        folders = [
            folder / f"{TOPIC}-{partition}" for folder in (*(Path(b.log_dirs[0]) for b in cluster.brokers), kin.data)
        ]
        first, *others = ({file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))} for folder in folders)
        assert any(first.values()) and all(other == first for other in others), f"logs of {TOPIC}-{partition} differ"


def test_kafka_follows_and_leads_milena_brokers(tools: Tools, tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path / "milena", brokers=2) as cluster:
        with joined_kafka(cluster, tmp_path / "kafka") as kin:
            server = ("--bootstrap-server", cluster.bootstrap)
            plan = ("--replica-assignment", "1:2:3,2:3:1,3:1:2", "--config", "min.insync.replicas=3")
            tools(TOPICS, *server, "--create", "--topic", TOPIC, *plan)
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
            for number in range(3000):
                producer.produce(TOPIC, f"record {number}", partition=number % PARTITIONS)
            assert producer.flush(LIMIT) == 0
            assert TOPIC not in tools(TOPICS, *server, "--describe", "--under-replicated-partitions")
        cluster.stop()
        same_logs(cluster, kin)


def test_kafka_becomes_leader_after_milena_and_milena_after_kafka(tmp_path: Path) -> None:
    overrides = {"auto.leader.rebalance.enable": "false"}
    with LocalCluster.start(tmp_path / "milena", brokers=2, overrides=overrides) as cluster:
        with joined_kafka(cluster, tmp_path / "kafka") as kin:
            place_topic(cluster.bootstrap, TOPIC, [[1, KAFKA, 2]] * PARTITIONS, {"min.insync.replicas": "2"})
            places = Places(cluster.bootstrap, TOPIC)

            with Load(cluster.bootstrap, TOPIC) as load:
                places.wait_until_led(1, {1, 2, KAFKA})
                load.wait_for(2000)
                cluster.kill(1)
                places.wait_until_led(KAFKA, {2, KAFKA})
                load.wait_for(2000)
                cluster.restart(1)
                places.wait_until_led(KAFKA, {1, 2, KAFKA})
                load.wait_for(2000)
                kin.kill()
                places.wait_until_led(1, {1, 2})
                load.wait_for(2000)
                kin.start()
                places.wait_until_led(1, {1, 2, KAFKA})
                load.wait_for(2000)
            assert load.errors == []
            assert read_all(cluster.bootstrap, TOPIC) == Counter(load.acknowledged)
        cluster.stop()
        same_logs(cluster, kin)
