"""Kafka's command-line tools against Milena."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import Consumer, Producer

from milena.local_cluster import LocalCluster
from tests.oracle.kafka import tool

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"

pytestmark = pytest.mark.timeout(180)


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, key=f"key-{number % 7}", value=f"value {number}")
    assert producer.flush(20) == 0


def test_topic_command_creates_describes_alters_and_deletes(cluster: LocalCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    made = tool(
        TOPIC_COMMAND, *server, "--create", "--topic", "tools", "--partitions", "3", "--replication-factor", "2",
        "--config", "segment.bytes=1048576",
    )  # fmt: skip
    assert "Created topic tools." in made
    described = tool(TOPIC_COMMAND, *server, "--describe", "--topic", "tools")
    assert "PartitionCount: 3" in described and "ReplicationFactor: 2" in described
    assert "segment.bytes=1048576" in described
    assert len(re.findall(r"Leader: [123]\s+Replicas: [123],[123]\s+Isr: [123]", described)) == 3
    tool(TOPIC_COMMAND, *server, "--alter", "--topic", "tools", "--partitions", "5")
    assert "tools" in tool(TOPIC_COMMAND, *server, "--list").split()
    assert "PartitionCount: 5" in tool(TOPIC_COMMAND, *server, "--describe", "--topic", "tools")
    tool(TOPIC_COMMAND, *server, "--delete", "--topic", "tools")
    assert "tools" not in tool(TOPIC_COMMAND, *server, "--list").split()


def test_config_command_reads_and_changes_topics_and_brokers(cluster: LocalCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    tool(TOPIC_COMMAND, *server, "--create", "--topic", "configured")
    topic = ("--entity-type", "topics", "--entity-name", "configured")
    tool(CONFIG_COMMAND, *server, *topic, "--alter", "--add-config", "retention.ms=86400000,cleanup.policy=delete")
    assert "retention.ms=86400000" in tool(CONFIG_COMMAND, *server, *topic, "--describe")
    tool(CONFIG_COMMAND, *server, *topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=86400000" not in tool(CONFIG_COMMAND, *server, *topic, "--describe")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    everything = tool(CONFIG_COMMAND, *server, *broker, "--describe", "--all")
    assert re.search(r"log\.segment\.bytes=1073741824 sensitive=false synonyms=\{", everything)


def test_consumer_group_command_lists_describes_and_resets(cluster: LocalCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    tool(TOPIC_COMMAND, *server, "--create", "--topic", "grouped", "--partitions", "1")
    produce(cluster.bootstrap, "grouped", 50)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["grouped"])
    assert len(consumer.consume(20, timeout=20)) == 20
    consumer.commit(asynchronous=False)
    with_member = tool(GROUP_COMMAND, *server, "--describe", "--group", "readers")
    assert re.search(r"readers\s+grouped\s+0\s+\S*\s+20\s+50\s+30\s+rdkafka-", with_member)
    consumer.close()
    assert "readers" in tool(GROUP_COMMAND, *server, "--list").split()
    reset = ("--reset-offsets", "--group", "readers", "--topic", "grouped", "--to-offset", "5", "--execute")
    assert re.search(r"readers\s+grouped\s+0\s+5", tool(GROUP_COMMAND, *server, *reset))
    state = tool(GROUP_COMMAND, *server, "--describe", "--group", "readers", "--state")
    assert "Empty" in state
    assert "successful" in tool(GROUP_COMMAND, *server, "--delete", "--group", "readers")


def test_get_offset_shell_and_delete_records(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    tool(TOPIC_COMMAND, *server, "--create", "--topic", "offsets", "--partitions", "1")
    produce(cluster.bootstrap, "offsets", 30)
    assert tool(GET_OFFSETS, *server, "--topic", "offsets", "--time", "latest").strip() == "offsets:0:30"
    plan = tmp_path_factory.mktemp("plan") / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "offsets", "partition": 0, "offset": 12}]}))
    assert "low_watermark: 12" in tool(DELETE_RECORDS, *server, "--offset-json-file", str(plan))
    assert tool(GET_OFFSETS, *server, "--topic", "offsets", "--time", "earliest").strip() == "offsets:0:12"


def test_log_dirs_command_shows_every_directory(cluster: LocalCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    shown = tool(LOG_DIRS, *server, "--describe", "--broker-list", "1,2,3")
    report = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    found = {broker["broker"]: [entry["logDir"] for entry in broker["logDirs"]] for broker in report["brokers"]}
    assert found == {node.id: list(node.log_dirs) for node in cluster.brokers}


def test_cluster_tool_and_quorum_command(cluster: LocalCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    cluster_id = re.search(r"Cluster ID: (\S{22})", tool(CLUSTER_TOOL, "cluster-id", *server))
    assert cluster_id is not None
    status = tool(QUORUM, *server, "describe", "--status")
    assert f"ClusterId:              {cluster_id[1]}" in status
    assert f"LeaderId:               {cluster.controller.id}" in status
    replication = tool(QUORUM, *server, "describe", "--replication")
    assert len(re.findall(r"^\d+\s.*Observer", replication, re.MULTILINE)) == 3


def test_broker_api_versions_command_knows_every_api(cluster: LocalCluster) -> None:
    shown = tool(API_VERSIONS, "--bootstrap-server", cluster.bootstrap)
    assert shown.count("(id: ") == 3
    assert "Produce(0): 0 to 13 [usable: 13]" in shown
    assert "Fetch(1): 4 to 18 [usable: 18]" in shown
    assert "UNKNOWN(" not in shown


def test_verifiable_producer_and_consumer(cluster: LocalCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    tool(TOPIC_COMMAND, *server, "--create", "--topic", "verified", "--partitions", "2")
    sent = tool(VERIFIABLE_PRODUCER, *server, "--topic", "verified", "--max-messages", "2000", "--acks", "-1")
    acknowledged = [json.loads(line) for line in sent.splitlines() if '"producer_send_success"' in line]
    assert len(acknowledged) == 2000
    read = tool(
        VERIFIABLE_CONSUMER, *server, "--topic", "verified", "--group-id", "verifiers", "--max-messages", "2000",
        "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in read.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 2000
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
