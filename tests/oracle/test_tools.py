"""Kafka's tools for topics, configurations, offsets and the cluster, against Milena."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.oracle.tools import (
    ACLS,
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    DELETE_RECORDS,
    FEATURES,
    LOG_DIRS,
    OFFSETS,
    QUORUM,
    TOPICS,
    TRANSACTIONS,
    Tools,
)

Server = tuple[str, str]


def produce(bootstrap: str, topic: str, partition: int, timestamps: list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for timestamp in timestamps:
        producer.produce(topic, value=b"x" * 100, partition=partition, timestamp=timestamp)
    assert producer.flush(20) == 0


# -- topics


def test_a_topic_is_created_described_grown_and_deleted(tools: Tools, server: Server, topic: str) -> None:
    one = ("--topic", topic)
    made = tools(
        TOPICS, *server, "--create", *one, "--partitions", "3", "--replication-factor", "2",
        "--config", "segment.bytes=1048576",
    )  # fmt: skip
    assert f"Created topic {topic}." in made
    assert f"Topic '{topic}' already exists" in tools.refusal(TOPICS, *server, "--create", *one)
    tools(TOPICS, *server, "--create", "--if-not-exists", *one)
    described = tools(TOPICS, *server, "--describe", *one)
    assert re.search(r"TopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 2\t", described)
    assert "Configs: min.insync.replicas=2,segment.bytes=1048576" in described
    assert len(re.findall(r"Leader: ([123])\tReplicas: (\1,[123])\tIsr: \2\t", described)) == 3
    tools(TOPICS, *server, "--alter", *one, "--partitions", "5")
    assert "PartitionCount: 5" in tools(TOPICS, *server, "--describe", *one)
    assert "5 partition(s)" in tools.refusal(TOPICS, *server, "--alter", *one, "--partitions", "4")
    assert topic in tools(TOPICS, *server, "--list").split()
    tools(TOPICS, *server, "--delete", *one)
    assert topic not in tools(TOPICS, *server, "--list").split()
    assert "does not exist" in tools.refusal(TOPICS, *server, "--describe", *one)


def test_replicas_are_placed_as_assigned(tools: Tools, server: Server, topic: str) -> None:
    one = ("--topic", topic)
    few = ("--config", "min.insync.replicas=1")
    tools(TOPICS, *server, "--create", *one, "--replica-assignment", "1:2,2:3,3:1", *few)
    tools(TOPICS, *server, "--alter", *one, "--partitions", "4", "--replica-assignment", "1:2,2:3,3:1,2:1")
    described = tools(TOPICS, *server, "--describe", *one)
    assert re.findall(r"Replicas: (\S+)", described) == ["1,2", "2,3", "3,1", "2,1"]
    assert re.findall(r"Isr: (\S+)", described) == ["1,2", "2,3", "3,1", "2,1"]
    for kind in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        assert topic not in tools(TOPICS, *server, "--describe", f"--{kind}-partitions")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--topic", "not a name"], "InvalidTopicException"),
        (["--topic", "wide", "--replication-factor", "4"], "InvalidReplicationFactorException"),
        (["--topic", "none", "--partitions", "0"], "greater than 0"),
        (["--topic", "doubled", "--replica-assignment", "1:1"], "Partition replica lists may not contain duplicate"),
        (["--topic", "nowhere", "--replica-assignment", "9"], "InvalidReplicaAssignmentException"),
        (["--topic", "configured", "--config", "segment.byte=1"], "Unknown topic config name: segment.byte"),
        (["--topic", "configured", "--config", "cleanup.policy=shrink"], "must be one of"),
    ],
)
def test_invalid_topics_are_refused(tools: Tools, server: Server, arguments: list[str], error: str) -> None:
    assert error in tools.refusal(TOPICS, *server, "--create", *arguments)


def test_names_that_collide_as_metrics_are_refused(tools: Tools, server: Server) -> None:
    tools(TOPICS, *server, "--create", "--topic", "a.collision")
    assert "'a_collision' collides" in tools.refusal(TOPICS, *server, "--create", "--topic", "a_collision")


# -- configurations


def test_topic_configurations(tools: Tools, server: Server, topic: str) -> None:
    tools(TOPICS, *server, "--create", "--topic", topic)
    one = ("--entity-type", "topics", "--entity-name", topic)
    added = ("--add-config", "retention.ms=86400000,cleanup.policy=[delete,compact]")
    tools(CONFIGS, *server, *one, "--alter", *added)
    described = tools(CONFIGS, *server, *one, "--describe")
    assert "retention.ms=86400000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=86400000}" in described
    assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete,compact, DEFAULT_CONFIG:log.cleanup.policy=delete" in described
    tools(CONFIGS, *server, *one, "--alter", "--delete-config", "retention.ms")
    everything = tools(CONFIGS, *server, *one, "--describe", "--all")
    assert "retention.ms=604800000 sensitive=false synonyms={}" in everything
    assert len(everything.splitlines()) == 38
    for wrong, error in {
        "retention.ms=soon": "Invalid value soon for configuration retention.ms",
        "retention.seconds=5": "Unknown topic config name: retention.seconds",
        "min.insync.replicas=0": "InvalidConfigurationException",
    }.items():
        assert error in tools.refusal(CONFIGS, *server, *one, "--alter", "--add-config", wrong)
    missing = tools(CONFIGS, *server, "--entity-type", "topics", "--entity-name", "no-such-topic", "--describe")
    assert "doesn't exist" in missing


def test_broker_configurations(tools: Tools, server: Server) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "2")
    default = ("--entity-type", "brokers", "--entity-default")
    tools(CONFIGS, *server, *default, "--alter", "--add-config", "log.retention.ms=2000000000")
    tools(CONFIGS, *server, *one, "--alter", "--add-config", "log.retention.ms=1000000000")
    assert "log.retention.ms=2000000000" in tools(CONFIGS, *server, *default, "--describe")
    assert (
        "log.retention.ms=1000000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=1000000000, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=2000000000, DEFAULT_CONFIG:log.retention.hours=168}"
    ) in tools(CONFIGS, *server, *one, "--describe")
    for entity in (one, default):
        tools(CONFIGS, *server, *entity, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in tools(CONFIGS, *server, *one, "--describe")
    everything = tools(CONFIGS, *server, *one, "--describe", "--all")
    assert "log.segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:" in everything
    assert re.search(r"node\.id=2 sensitive=false synonyms=\{STATIC_BROKER_CONFIG:node\.id=2", everything)
    refused = tools.refusal(CONFIGS, *server, *one, "--alter", "--add-config", "process.roles=controller")
    assert "Cannot update these configs dynamically: [process.roles]" in refused


def test_levels_of_loggers(tools: Tools, server: Server) -> None:
    loggers = (*server, "--entity-type", "broker-loggers", "--entity-name", "2")
    tools(CONFIGS, *loggers, "--alter", "--add-config", "isr=DEBUG")
    described = tools(CONFIGS, *loggers, "--describe")
    assert "isr=DEBUG " in described and "root=INFO " in described
    tools(CONFIGS, *loggers, "--alter", "--delete-config", "isr")
    assert "isr=INFO " in tools(CONFIGS, *loggers, "--describe")
    assert "InvalidConfigurationException" in tools.refusal(CONFIGS, *loggers, "--alter", "--add-config", "isr=LOUD")


@pytest.mark.parametrize(
    ("kind", "name", "setting"),
    [
        ("groups", "some-group", "consumer.session.timeout.ms=50000"),
        ("client-metrics", "some-subscription", "interval.ms=1000"),
        ("users", "ann", "producer_byte_rate=1000"),
        ("clients", "app", "request_percentage=12.5"),
        ("ips", "10.0.0.1", "connection_creation_rate=3"),
    ],
)
def test_configurations_of_other_entity_types_are_stored(
    tools: Tools, server: Server, kind: str, name: str, setting: str
) -> None:
    one = ("--entity-type", kind, "--entity-name", name)
    tools(CONFIGS, *server, *one, "--alter", "--add-config", setting)
    assert setting in tools(CONFIGS, *server, *one, "--describe")
    tools(CONFIGS, *server, *one, "--alter", "--delete-config", setting.partition("=")[0])
    assert f" {setting}" not in tools(CONFIGS, *server, *one, "--describe")


def test_without_an_authorizer_there_are_no_acls(tools: Tools, server: Server) -> None:
    assert "SecurityDisabledException" in tools.refusal(ACLS, *server, "--list")
    added = ("--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "t")
    assert "SecurityDisabledException" in tools.refusal(ACLS, *server, *added)


# -- offsets and files


def test_every_kind_of_offset(tools: Tools, server: Server, cluster: LocalCluster, topic: str) -> None:
    tools(TOPICS, *server, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=-1")
    produce(cluster.bootstrap, topic, 0, [1_000, 5_000, 3_000])
    produce(cluster.bootstrap, topic, 1, [4_000])
    for time, found in {
        "latest": "0:3 1:1",
        "-1": "0:3 1:1",
        "earliest": "0:0 1:0",
        "max-timestamp": "0:1 1:0",
        "earliest-local": "0:0 1:0",
        "-4": "0:0 1:0",
        # No segment is in the tier, none waits to be copied.
        "latest-tiered": "0:-1 1:-1",
        "earliest-pending-upload": "0:-1 1:-1",
        "0": "0:0 1:0",
        "2000": "0:1 1:0",
        "4500": "0:1 1:-1",
        "6000": "0:-1 1:-1",
    }.items():
        # A partition without such an offset is not listed.
        lines = [f"{topic}:{one}" for one in found.split() if not one.endswith(":-1")]
        assert tools(OFFSETS, *server, "--topic", topic, "--time", time).split() == lines, time
    assert tools(OFFSETS, *server, "--topic-partitions", f"{topic}:1").split() == [f"{topic}:1:1"]


def test_records_are_deleted(tools: Tools, server: Server, cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    tools(TOPICS, *server, "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=-1")
    for partition in range(3):
        produce(cluster.bootstrap, topic, partition, list(range(30)))
    partitions = [{"topic": topic, "partition": index, "offset": (12, -1, 31)[index]} for index in range(3)]
    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    shown = tools(DELETE_RECORDS, *server, "--offset-json-file", str(plan))
    assert f"partition: {topic}-0\tlow_watermark: 12" in shown
    assert f"partition: {topic}-1\tlow_watermark: 30" in shown
    assert f"partition: {topic}-2\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException" in shown
    earliest = tools(OFFSETS, *server, "--topic", topic, "--time", "earliest").split()
    assert earliest == [f"{topic}:0:12", f"{topic}:1:30", f"{topic}:2:0"]


def test_log_directories(tools: Tools, server: Server, cluster: LocalCluster, topic: str) -> None:
    tools(TOPICS, *server, "--create", "--topic", topic, "--partitions", "3")
    produce(cluster.bootstrap, topic, 0, [0])
    shown = tools(LOG_DIRS, *server, "--describe", "--topic-list", topic)
    brokers = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))["brokers"]
    found = {broker["broker"]: [one["logDir"] for one in broker["logDirs"]] for broker in brokers}
    assert found == {node.id: list(node.log_dirs) for node in cluster.brokers}
    partitions = {
        one["partition"]: (one["size"] > 0, one["offsetLag"], one["isFuture"])
        for broker in brokers
        for directory in broker["logDirs"]
        for one in directory["partitions"]
    }
    assert partitions == {f"{topic}-{index}": (index == 0, 0, False) for index in range(3)}


def test_producers_of_a_partition(tools: Tools, server: Server, cluster: LocalCluster, topic: str) -> None:
    tools(TOPICS, *server, "--create", "--topic", topic, "--config", "retention.ms=-1")
    produce(cluster.bootstrap, topic, 0, [1_000, 2_000, 3_000])
    shown = tools(TRANSACTIONS, *server, "describe-producers", "--topic", topic, "--partition", "0")
    header, producer = shown.splitlines()
    assert header.split("\t")[1].strip() == "ProducerEpoch"
    assert [word.strip() for word in producer.split("\t")][1:6] == ["0", "-1", "2", "3000", "None"]


# -- the cluster


def test_the_cluster_and_its_endpoints(tools: Tools, server: Server, cluster: LocalCluster) -> None:
    match = re.search(r"Cluster ID: (\S{22})", tools(CLUSTER, "cluster-id", *server))
    assert match is not None
    for fenced in ((), ("--include-fenced-brokers",)):
        endpoints = tools(CLUSTER, "list-endpoints", *server, *fenced)
        listed = [line.split() for line in endpoints.splitlines()[1:]]
        assert sorted((int(one[0]), f"{one[1]}:{one[2]}", one[4]) for one in listed) == [
            (node.id, node.listeners["PLAINTEXT"], "unfenced") for node in cluster.brokers
        ]
    assert f"ClusterId:              {match[1]}" in tools(QUORUM, *server, "describe", "--status")


def test_the_quorum(tools: Tools, server: Server, cluster: LocalCluster) -> None:
    status = tools(QUORUM, *server, "describe", "--status")
    assert f"LeaderId:               {cluster.controller.id}" in status
    (endpoint,) = cluster.controller.listeners.values()
    voters = re.search(r"CurrentVoters: +(\[.*\])", status)
    observers = re.search(r"CurrentObservers: +(\[.*\])", status)
    assert voters is not None and observers is not None
    assert json.loads(voters[1]) == [{"id": cluster.controller.id, "endpoints": [f"CONTROLLER://{endpoint}"]}]
    assert {one["id"] for one in json.loads(observers[1])} == {node.id for node in cluster.brokers}
    replication = [line.split() for line in tools(QUORUM, *server, "describe", "--replication").splitlines()[1:]]
    assert [(one[0], one[-1]) for one in replication] == [
        ("100", "Leader"), ("1", "Observer"), ("2", "Observer"), ("3", "Observer")
    ]  # fmt: skip
    assert len({one[2] for one in replication}) <= 2, "followers are at most one batch behind"


def test_tools_connect_directly_to_the_controller(tools: Tools, cluster: LocalCluster) -> None:
    (endpoint,) = cluster.controller.listeners.values()
    controller = ("--bootstrap-controller", endpoint)
    assert "LeaderId:               100" in tools(QUORUM, *controller, "describe", "--status")
    assert re.search(r"metadata\.version\s.*Level: 4\.4-IV2", tools(FEATURES, *controller, "describe"))
    listed = tools(CLUSTER, "list-endpoints", *controller).splitlines()[1:]
    assert [line.split() for line in listed] == [["100", *endpoint.split(":"), "null", "controller"]]
    node = ("--entity-type", "brokers", "--entity-name", "100")
    assert "process.roles=controller" in tools(CONFIGS, *controller, *node, "--describe", "--all")
    default = ("--entity-type", "brokers", "--entity-default", "--alter")
    tools(CONFIGS, *controller, *default, "--add-config", "log.cleaner.backoff.ms=14000")
    tools(CONFIGS, *controller, *default, "--delete-config", "log.cleaner.backoff.ms")


def test_controllers_that_cannot_be_unregistered(tools: Tools, server: Server, cluster: LocalCluster) -> None:
    (endpoint,) = cluster.controller.listeners.values()
    active = str(cluster.controller.id)
    for address in (server, ("--bootstrap-controller", endpoint)):
        unregister = (CLUSTER, "unregister-controller", *address, "--id")
        assert "Controller ID 77 is not currently registered." in tools.refusal(*unregister, "77")
        assert "Controller cannot unregister itself while it is active." in tools.refusal(*unregister, active)
        assert "UnregisterController(94): 0 [usable: 0]" in tools(CLUSTER, "api-versions", *address)


def test_every_api_and_version(tools: Tools, server: Server) -> None:
    shown = tools(API_VERSIONS, *server)
    assert shown.count("(id: ") == 3
    for line in (
        "Produce(0): 0 to 13 [usable: 13]",
        "Fetch(1): 4 to 18 [usable: 18]",
        "EndTxn(26): 0 to 5 [usable: 5]",
        "ShareFetch(78): UNSUPPORTED",
    ):
        assert shown.count(line) == 3
    assert "UNKNOWN(" not in shown


def test_features(tools: Tools, server: Server) -> None:
    described = tools(FEATURES, *server, "describe")
    assert re.search(r"metadata\.version\s.*FinalizedVersionLevel: 4\.4-IV2", described)
    levels = dict(re.findall(r"Feature: (\S+) .*FinalizedVersionLevel: (\S+)", described))
    assert {name for name, level in levels.items() if level != "0"} == {"metadata.version", "transaction.version"}
    assert re.search(r"kraft\.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+Final\S+ 0", described)
    unchanged = tools(FEATURES, *server, "upgrade", "--metadata", "4.4-IV2", "--dry-run")
    assert "metadata.version can be upgraded to 33." in unchanged
    refused = tools.refusal(FEATURES, *server, "upgrade", "--feature", "group.version=1")
    assert re.search(r"group\.version cannot be set to level 1: Broker [123] does not support it", refused)
