"""Brokers of several releases of Kafka beside one of Milena's with Milena's controller, and the upgrade to 4.4."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from milena.releases import RELEASES
from milena.testing.local_cluster import LocalCluster
from tests.oracle import kafka
from tests.oracle.joining import LIMIT, JoiningKafka, joined_kafka
from tests.oracle.release_tables import VERSIONS
from tests.oracle.tools import FEATURES, Tools
from tests.wire.admin import Places, coordinator_of, place_topic
from tests.wire.load import PARTITIONS, Load, read_all
from tests.wire.waiting import wait_until

MILENA, OLDER, NEWER = 1, 3, 4
TOPIC = "mixed"
OVERRIDES = {
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


def require_jars(version: str) -> None:
    """Skip the test if a version of Kafka cannot be run."""
    try:
        kafka.jars(version)
    except kafka.NoKafka as reason:
        pytest.skip(f"no jars of Kafka {version}: {reason}")


@contextmanager
def mixed_cluster(folder: Path) -> Iterator[tuple[LocalCluster, dict[int, JoiningKafka]]]:
    """A cluster at metadata.version 4.3 with a broker of each kind."""
    require_jars(kafka.TEST_VERSION)
    options = ["--release-version", "4.3"]
    with LocalCluster.start(folder / "milena", overrides=OVERRIDES, options=options) as cluster:
        older = joined_kafka(cluster, folder / "older", OVERRIDES, node_id=OLDER, version=kafka.TEST_VERSION)
        newer = joined_kafka(cluster, folder / "newer", OVERRIDES, node_id=NEWER)
        with older as first, newer as second:
            yield cluster, {OLDER: first, NEWER: second}


def commit_and_read_back(bootstrap: str, coordinator: int) -> None:
    """Let a group whose coordinator is this broker read the topic and commit; another member continues there."""
    names = (f"group-{number}" for number in range(1000))
    group = next(name for name in names if coordinator_of(bootstrap, name) == coordinator)
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    for _ in range(2):
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe([TOPIC])
        message = consumer.poll(LIMIT)
        assert message is not None and message.error() is None, group
        consumer.commit(message=message, asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(TOPIC, message.partition() or 0)], timeout=LIMIT)
        assert committed.offset == (message.offset() or 0) + 1
        consumer.close()


def test_brokers_of_two_releases_and_milenas_replicate_lead_and_coordinate(tmp_path: Path) -> None:
    with mixed_cluster(tmp_path) as (cluster, kafkas):
        everyone = {MILENA, OLDER, NEWER}
        place_topic(cluster.bootstrap, TOPIC, [[MILENA, OLDER, NEWER]] * PARTITIONS, {"min.insync.replicas": "2"})
        places = Places(cluster.bootstrap, TOPIC)

        with Load(cluster.bootstrap, TOPIC) as load:
            places.wait_until_led(MILENA, everyone)
            load.wait_for(1000)
            cluster.kill(MILENA)
            places.wait_until_led(OLDER, {OLDER, NEWER})
            load.wait_for(1000)
            cluster.restart(MILENA)
            places.wait_until_led(OLDER, everyone)
            kafkas[OLDER].kill()
            places.wait_until_led(MILENA, {MILENA, NEWER})
            load.wait_for(1000)
            kafkas[OLDER].start()
            places.wait_until_led(MILENA, everyone)
            kafkas[NEWER].kill()
            places.wait_until_led(MILENA, {MILENA, OLDER})
            load.wait_for(1000)
            kafkas[NEWER].start()
            places.wait_until_led(MILENA, everyone)
        assert load.errors == []
        assert read_all(cluster.bootstrap, TOPIC) == Counter(load.acknowledged)
        for broker in everyone:
            commit_and_read_back(cluster.bootstrap, broker)
    for partition in range(PARTITIONS):
        folders = [Path(cluster.brokers[0].log_dirs[0]), *(one.data for one in kafkas.values())]
        first, *others = (
            {file.name: file.read_bytes() for file in folder.glob(f"{TOPIC}-{partition}/*.log")} for folder in folders
        )
        assert any(first.values()) and all(other == first for other in others), f"logs of {TOPIC}-{partition} differ"


def test_the_metadata_version_is_raised_once_the_older_broker_is_replaced(tools: Tools, tmp_path: Path) -> None:
    with mixed_cluster(tmp_path) as (cluster, kafkas):
        server = ("--bootstrap-server", cluster.bootstrap)
        to_newest = (*server, "upgrade", "--feature", "metadata.version=33")
        assert f"Broker {OLDER} supports 7 to 30" in tools.refusal(FEATURES, *to_newest)
        kafkas[OLDER].stop()
        kafkas[OLDER].version = kafka.VERSION
        kafkas[OLDER].start()
        tools(FEATURES, *server, "upgrade", "--feature", "metadata.version=31")
        tools(FEATURES, *server, "downgrade", "--feature", "metadata.version=30")
        # With --release-version the tool raises all features at once, also those that Milena does not have.
        assert "No feature was changed" in tools.refusal(FEATURES, *server, "upgrade", "--release-version", "4.4")
        tools(FEATURES, *to_newest)
        described = tools(FEATURES, *server, "describe").splitlines()
        (line,) = (line for line in described if "metadata.version" in line)
        assert "FinalizedVersionLevel: 4.4-IV2" in line
        assert "might be lost" in tools.refusal(FEATURES, *server, "downgrade", "--feature", "metadata.version=30")


def test_a_broker_of_the_oldest_release_joins_a_cluster_that_behaves_like_it(
    kafka_answers: None, tmp_path: Path
) -> None:
    release = RELEASES[0]
    version = VERSIONS[release]
    require_jars(version)
    with (
        LocalCluster.start(tmp_path / "milena", overrides=OVERRIDES, options=["--kafka-version", release]) as cluster,
        joined_kafka(cluster, tmp_path / "kafka", OVERRIDES, node_id=OLDER, version=version) as kin,
    ):
        place_topic(cluster.bootstrap, TOPIC, [[MILENA, OLDER], [OLDER, MILENA], [MILENA, OLDER]])
        places = Places(cluster.bootstrap, TOPIC)
        with Load(cluster.bootstrap, TOPIC) as load:
            wait_until(lambda: len(load.acknowledged) > 1000, "1000 writes")
            cluster.kill(MILENA)
            wait_until(lambda: all(place.leader == OLDER for place in places.now()), "Kafka's broker to lead")
            cluster.restart(MILENA)
            wait_until(lambda: all(place.isr == {MILENA, OLDER} for place in places.now()), "both to be in sync")
            kin.kill()
            wait_until(lambda: all(place.leader == MILENA for place in places.now()), "Milena's broker to lead")
            enough = len(load.acknowledged) + 1000
            wait_until(lambda: len(load.acknowledged) > enough, "1000 more writes")
            kin.start()
        assert load.errors == []
        assert read_all(cluster.bootstrap, TOPIC) == Counter(load.acknowledged)


def test_a_broker_of_the_older_release_cannot_join_at_a_newer_level(kafka_answers: None, tmp_path: Path) -> None:
    """It ends as under Kafka's controller."""
    with LocalCluster.start(tmp_path / "milena") as cluster:
        quick = {"initial.broker.registration.timeout.ms": "3000"}
        older = JoiningKafka(cluster, tmp_path / "older", quick, node_id=OLDER, version=kafka.TEST_VERSION)
        try:
            said = older.refusal()
        finally:
            older.kill()
        log = Path(cluster.directory, "logs", f"controller-{cluster.controller.id}.log").read_text()
    assert f"Unable to register broker {OLDER} because the controller returned error UNSUPPORTED_VERSION" in said
    rejected = [
        event for line in log.splitlines() if (event := json.loads(line))["event"] == "broker registration rejected"
    ]
    assert {event["broker"] for event in rejected} == {OLDER}
    assert {event["reason"] for event in rejected} == {
        "metadata.version is finalized at 33, but the broker supports 7 to 30."
    }
