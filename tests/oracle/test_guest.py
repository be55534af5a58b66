"""A Milena broker beside a Kafka broker with Kafka's controller: each becomes leader after the other."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.up.ports import free
from tests.oracle.differential.conftest import FEATURES
from tests.oracle.differential.sides import Line, Side
from tests.oracle.kafka import TEST_VERSION, VERSION
from tests.oracle.kafka_cluster import HOST, running_kafka_cluster, write_properties
from tests.oracle.milena_node import running_milena
from tests.oracle.tier_settings import tier_settings
from tests.wire.admin import Places, place_topic
from tests.wire.listed_versions import listed
from tests.wire.load import PARTITIONS, Load, read_all

KAFKA, OURS = 1, 2
TOPIC = "guest"
SESSIONS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
"""Kafka's controller notices only by the session timeout that a broker has ended, and refuses to register it before."""
OVERRIDES = SESSIONS | {"auto.leader.rebalance.enable": "false", "offsets.topic.replication.factor": "2"}

VISIBLE_MS = "10000"
"""Longer than the time that a slow machine needs."""


@pytest.mark.parametrize("version", [VERSION, TEST_VERSION])
def test_milena_follows_kafka_and_becomes_leader_under_kafkas_controller(
    kafka_answers: None, tmp_path: Path, version: str
) -> None:
    """Milena's broker registers with a feature that neither Kafka's controller nor its broker has."""
    cluster = running_kafka_cluster(
        tmp_path / "kafka", features=FEATURES, overrides=OVERRIDES, brokers=1, version=version
    )
    with cluster as theirs, ExitStack() as ours:
        port = free(HOST, 1)[0]
        file = tmp_path / "milena" / "milena.properties"
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{port}", "node.id": str(OURS)}
        own |= tier_settings(tmp_path / "tier") | {"remote.log.compaction.enable": "true"}
        write_properties(file, own | {"log.dirs": str(tmp_path / "milena" / "data"), **theirs.quorum, **OVERRIDES})
        process = ours.enter_context(running_milena(file))
        bootstrap = f"{theirs.bootstrap},{HOST}:{port}"
        assert (ApiKey.UNREGISTER_CONTROLLER in listed(f"{HOST}:{port}").keys) is (version == VERSION)
        place_topic(bootstrap, TOPIC, [[KAFKA, OURS]] * PARTITIONS)
        places = Places(bootstrap, TOPIC)

        with Load(bootstrap, TOPIC) as load:
            places.wait_until_led(KAFKA, {KAFKA, OURS})
            load.wait_for(2000)
            theirs.kill(KAFKA)
            places.wait_until_led(OURS, {OURS})
            load.wait_for(2000)
            theirs.start(KAFKA)
            places.wait_until_led(OURS, {KAFKA, OURS})
            load.wait_for(2000)
            process.kill()
            places.wait_until_led(KAFKA, {KAFKA})
            load.wait_for(2000)
            ours.enter_context(running_milena(file))
            places.wait_until_led(KAFKA, {KAFKA, OURS})
            load.wait_for(2000)
        assert load.errors == []
        assert read_all(bootstrap, TOPIC) == Counter(load.acknowledged)
    for partition in range(PARTITIONS):
        (their_folder,) = (found for one in theirs.log_dirs(KAFKA) for found in one.glob(f"{TOPIC}-{partition}"))
        our_folder = tmp_path / "milena" / "data" / f"{TOPIC}-{partition}"
        first, second = (
            {path.name: path.read_bytes() for path in folder.glob("*.log")} for folder in (their_folder, our_folder)
        )
        assert any(first.values()) and first == second, f"logs of {TOPIC}-{partition} differ"


def test_a_change_through_milenas_broker_is_visible_there_under_kafkas_controller(
    kafka_answers: None, tmp_path: Path
) -> None:
    """Milena's broker waits for the high watermark after a change, which Kafka's controller sends, too."""
    cluster = running_kafka_cluster(tmp_path / "kafka", features=FEATURES, overrides=OVERRIDES, brokers=1)
    with cluster as theirs, ExitStack() as ours:
        port = free(HOST, 1)[0]
        file = tmp_path / "milena" / "milena.properties"
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{port}", "node.id": str(OURS)}
        own |= {"forwarded.request.visible.timeout.ms": VISIBLE_MS}
        write_properties(file, own | {"log.dirs": str(tmp_path / "milena" / "data"), **theirs.quorum, **OVERRIDES})
        ours.enter_context(running_milena(file))
        place_topic(f"{HOST}:{port}", TOPIC, [[OURS]])
        line = Line(Side("Milena", HOST, port, OURS))
        ours.callback(line.close)
        wanted, found = [str(number) for number in range(1, 51)], []
        topic = {"resource_type": 2, "resource_name": TOPIC}
        for value in wanted:
            change = {"name": "flush.ms", "config_operation": 0, "value": value}
            resources = [{**topic, "configs": [change]}]
            alter = messages.encode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
            line.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter)
            assert line.receive(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)["responses"][0]["error_code"] == 0
            asked = [{**topic, "configuration_keys": ["flush.ms"]}]
            line.send(ApiKey.DESCRIBE_CONFIGS, 4, messages.encode_request(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked))
            found.append(line.receive(ApiKey.DESCRIBE_CONFIGS, 4)["results"][0]["configs"][0]["value"])
    assert found == wanted
