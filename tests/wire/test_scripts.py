"""Kafka's scripts against a cluster of three brokers: what health checks, tutorials and compose files call."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milena.scripts.server_stop import nodes
from milena.testing.local_cluster import LIMIT, LocalCluster
from milena.up.ports import free
from tests.wire.scripts import printed, script
from tests.wire.waiting import wait_until

Server = tuple[str, str]


@pytest.fixture
def server(cluster: LocalCluster) -> Server:
    return ("--bootstrap-server", cluster.bootstrap)


def make(server: Server, topic: str, *options: str) -> None:
    printed("kafka-topics.sh", *server, "--create", "--topic", topic, *options)


def produce(server: Server, topic: str, text: str, *options: str) -> None:
    printed("kafka-console-producer.sh", *server, "--topic", topic, *options, stdin=text)


def test_a_topic_is_created_described_grown_and_deleted(server: Server, topic: str) -> None:
    named = (*server, "--topic", topic)
    options = ("--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=3600000")
    assert printed("kafka-topics.sh", "--create", *named, *options).endswith(f"Created topic {topic}.\n")
    again = script("kafka-topics.sh", "--create", *named)
    assert again.code == 1
    assert again.out.endswith(f"Error while executing topic command : Topic '{topic}' already exists.\n")
    assert "org.apache.kafka.common.errors.TopicExistsException: " in again.err
    assert "Created" not in printed("kafka-topics.sh", "--create", "--if-not-exists", *named)
    assert topic in printed("kafka-topics.sh", *server, "--list").splitlines()
    head, *partitions = printed("kafka-topics.sh", "--describe", *named).splitlines()
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 3\t"
        r"Configs: min.insync.replicas=2,retention.ms=3600000",
        head,
    )
    for number, line in enumerate(partitions):
        assert re.fullmatch(
            rf"\tTopic: {topic}\tPartition: {number}\tLeader: ([123])\tReplicas: \1,[123],[123]"
            r"\tIsr: [123],[123],[123]\tElr: \tLastKnownElr: ",
            line,
        )
    printed("kafka-topics.sh", "--alter", *named, "--partitions", "3")
    assert "PartitionCount: 3" in printed("kafka-topics.sh", "--describe", *named)
    assert printed("kafka-topics.sh", "--describe", *named, "--unavailable-partitions") == ""
    printed("kafka-topics.sh", "--delete", *named)
    missing = script("kafka-topics.sh", "--describe", *named)
    assert (missing.code, missing.out) == (
        1,
        f"Error while executing topic command : Topic '{topic}' does not exist as expected\n",
    )


def test_replicas_are_placed_as_assigned(server: Server, topic: str) -> None:
    make(server, topic, "--replica-assignment", "1:2:3,3:2:1")
    named = (*server, "--topic", topic)
    printed("kafka-topics.sh", "--alter", *named, "--partitions", "3", "--replica-assignment", "1:2:3,3:2:1,2:1:3")
    described = printed("kafka-topics.sh", "--describe", *named)
    assert re.findall(r"Replicas: (\S+)", described) == ["1,2,3", "3,2,1", "2,1,3"]


def test_the_health_check_of_brokers(server: Server) -> None:
    shown = printed("kafka-broker-api-versions.sh", *server)
    assert shown.count(" isFenced: false) -> (\n") == 3
    assert shown.count("\tFetch(1): 4 to 18 [usable: 18],\n") == 3
    closed = f"127.0.0.1:{free('127.0.0.1', 1)[0]}"
    down = script("kafka-broker-api-versions.sh", "--bootstrap-server", closed)
    assert (down.code, down.out) == (1, "")
    assert down.err.startswith(f"Request METADATA failed on brokers [{closed} (id: -1 rack: null)]\n")


def test_a_script_waits_for_a_broker_as_long_as_its_client_does(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("default.api.timeout.ms=300\n")
    closed = f"127.0.0.1:{free('127.0.0.1', 1)[0]}"
    config = ("--command-config", str(tmp_path / "client.properties"))
    waited = script("kafka-topics.sh", "--list", "--bootstrap-server", closed, *config)
    assert waited.code == 1
    assert waited.out.endswith("Timed out waiting for a node assignment. Call: listTopics\n")
    assert f"cannot connect to {closed}" in waited.err


def test_lines_with_keys_and_headers_are_written_and_read(server: Server, topic: str) -> None:
    make(server, topic, "--partitions", "1")
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    produce(server, topic, "k1:v1\nk2:v2\n", *keys)
    headers = ("--property", "parse.headers=true", "--property", "null.marker=NULL")
    produce(server, topic, "a:1,b:2\tv3\nNULL\tNULL\n", *headers, "--sync", "--compression-codec")
    shown = [f"print.{name}=true" for name in ("key", "headers", "offset", "partition")]
    properties = [word for name in shown for word in ("--formatter-property", name)]
    read = script(
        "kafka-console-consumer.sh", *server, "--topic", topic, "--from-beginning", "--max-messages", "4", *properties
    )
    assert read.code == 0
    assert read.out.splitlines() == [
        "Partition:0\tOffset:0\tNO_HEADERS\tk1\tv1",
        "Partition:0\tOffset:1\tNO_HEADERS\tk2\tv2",
        "Partition:0\tOffset:2\ta:1,b:2\tnull\tv3",
        "Partition:0\tOffset:3\tNO_HEADERS\tnull\tnull",
    ]
    assert read.err == "Processed a total of 4 messages\n"
    one = ("--partition", "0", "--offset", "1", "--max-messages", "1", "--property", "print.timestamp=true")
    timed = printed("kafka-console-consumer.sh", *server, "--topic", topic, *one)
    assert re.fullmatch(r"CreateTime:\d{13}\tv2\n", timed)


def test_a_consumer_ends_after_its_timeout(server: Server, topic: str) -> None:
    make(server, topic)
    ended = script("kafka-console-consumer.sh", *server, "--topic", topic, "--timeout-ms", "100")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == [
        "ERROR Error processing message, terminating consumer process: "
        "org.apache.kafka.common.errors.TimeoutException (org.apache.kafka.tools.consumer.ConsoleConsumer)",
        "Processed a total of 0 messages",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_consumer_which_commits_what_it_has_printed(
    server: Server, topic: str, number: signal.Signals
) -> None:
    make(server, topic, "--partitions", "1")
    produce(server, topic, "1\n")
    group = ("--group", f"group-of-{topic}")
    command = [sys.executable, "-P", "-m", "milena.scripts", "kafka-console-consumer", *server, "--topic", topic]
    consumer = subprocess.Popen(
        [*command, "--from-beginning", *group], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "1\n"
    consumer.send_signal(number)
    out, err = consumer.communicate(timeout=LIMIT)
    assert (consumer.returncode, out, err) == (128 + number, "", "Processed a total of 1 messages\n")
    described = printed("kafka-consumer-groups.sh", *server, "--describe", *group)
    assert described.splitlines()[2].split()[:5] == [group[1], topic, "0", "1", "1"]


def test_records_that_the_broker_rejects_are_logged(server: Server, topic: str) -> None:
    make(server, topic, "--config", "max.message.bytes=100")
    sent = script("kafka-console-producer.sh", *server, "--topic", topic, stdin="x" * 200)
    assert sent.code == 0
    assert f"Error when sending message to topic {topic} with key: null, value: 200 bytes with error" in sent.err
    assert "org.apache.kafka.common.errors.RecordTooLargeException" in sent.err
    assert script("kafka-console-producer.sh", *server, "--topic", topic, "--sync", stdin="x" * 200).code == 1


def test_a_group_is_listed_described_reset_and_deleted(server: Server, topic: str) -> None:
    make(server, topic, "--partitions", "1")
    produce(server, topic, "1\n2\n3\n")
    group, named = f"group-of-{topic}", ("--group", f"group-of-{topic}")
    reading = ("--topic", topic, "--from-beginning", "--max-messages", "2", *named)
    assert printed("kafka-console-consumer.sh", *server, *reading) == "1\n2\n"
    assert group in printed("kafka-consumer-groups.sh", *server, "--list").splitlines()
    states = printed("kafka-consumer-groups.sh", *server, "--list", "--state", "Empty", "--type", "classic")
    assert [group, "Classic", "Empty"] in [line.split() for line in states.splitlines()]
    described = script("kafka-consumer-groups.sh", *server, "--describe", *named)
    empty, header, row = described.out.splitlines()
    assert empty == ""
    assert header.split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert row.split() == [group, topic, "0", "2", "3", "1", "-", "-", "-"]
    assert f"Consumer group '{group}' has no active members." in described.err
    target = ("--topic", topic, "--to-earliest")
    planned = printed("kafka-consumer-groups.sh", *server, "--reset-offsets", *named, *target, "--dry-run")
    assert planned.splitlines()[2].split() == [group, topic, "0", "0"]
    following = ("--topic", topic, "--max-messages", "1", *named)
    assert printed("kafka-console-consumer.sh", *server, *following) == "3\n"
    printed("kafka-consumer-groups.sh", *server, "--reset-offsets", *named, *target, "--execute")
    assert printed("kafka-console-consumer.sh", *server, *following) == "1\n"
    state = printed("kafka-consumer-groups.sh", *server, "--describe", *named, "--state")
    assert state.splitlines()[2].split()[-3:] == ["-", "Empty", "0"]
    assert printed("kafka-consumer-groups.sh", *server, "--delete", *named) == (
        f"Deletion of requested consumer groups ('{group}') was successful.\n"
    )
    gone = script("kafka-consumer-groups.sh", *server, "--describe", *named)
    assert (gone.code, gone.out.strip().rpartition(": ")[2]) == (0, f"Group {group} not found.")


def test_configurations_are_altered_and_described(server: Server, topic: str) -> None:
    make(server, topic)
    one = (*server, "--entity-type", "topics", "--entity-name", topic)
    added = ("--alter", "--add-config", "retention.ms=86400000,cleanup.policy=[delete,compact]")
    assert printed("kafka-configs.sh", *one, *added) == f"Completed updating config for topic {topic}.\n"
    described = printed("kafka-configs.sh", *one, "--describe")
    assert described.startswith(f"Dynamic configs for topic {topic} are:\n")
    assert (
        "\n  cleanup.policy=delete,compact sensitive=false synonyms={"
        "DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete,compact, DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
    ) in described
    printed("kafka-configs.sh", *server, "--topic", topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in printed("kafka-configs.sh", *server, "--topic", topic, "--describe")
    unknown = script("kafka-configs.sh", *one, "--alter", "--add-config", "retention.seconds=1")
    assert unknown.code == 1
    assert "InvalidConfigurationException: Unknown topic config name: retention.seconds" in unknown.err
    broker = printed(
        "kafka-configs.sh", *server, "--entity-type", "brokers", "--entity-name", "2", "--describe", "--all"
    )
    assert "\n  node.id=2 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=2}\n" in broker


def test_offsets_are_listed_and_records_are_deleted(server: Server, topic: str, tmp_path: Path) -> None:
    make(server, topic, "--partitions", "2")
    produce(server, topic, "1\n2\n3\n4\n5\n6\n", "--reader-property", "parse.key=false")
    ends = printed("kafka-get-offsets.sh", *server, "--topic", topic)
    counts = [int(line.rpartition(":")[2]) for line in ends.splitlines()]
    assert [line.rpartition(":")[0] for line in ends.splitlines()] == [f"{topic}:0", f"{topic}:1"]
    assert sum(counts) == 6
    partitions = [{"topic": topic, "partition": 0, "offset": -1}, {"topic": topic, "partition": 1, "offset": 99}]
    (tmp_path / "offsets.json").write_text(json.dumps({"version": 1, "partitions": partitions}))
    deleted = printed("kafka-delete-records.sh", *server, "--offset-json-file", str(tmp_path / "offsets.json"))
    assert f"partition: {topic}-0\tlow_watermark: {counts[0]}\n" in deleted
    assert f"partition: {topic}-1\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException: " in deleted
    starts = printed("kafka-get-offsets.sh", *server, "--topic-partitions", f"{topic}:0", "--time", "earliest")
    assert starts == f"{topic}:0:{counts[0]}\n"


def test_replicas_are_moved(server: Server, topic: str, tmp_path: Path) -> None:
    make(server, topic, "--replica-assignment", "1:2:3")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [3, 2, 1]}]}))
    file = ("--reassignment-json-file", str(plan))
    started = printed("kafka-reassign-partitions.sh", *server, "--execute", *file)
    assert started.endswith(f"Successfully started partition reassignment for {topic}-0\n")
    assert f"Reassignment of partition {topic}-0 is completed.\n" in printed(
        "kafka-reassign-partitions.sh", *server, "--verify", *file, "--preserve-throttles"
    )
    elected = printed(
        "kafka-leader-election.sh", *server, "--election-type", "preferred", "--topic", topic, "--partition", "0"
    )
    assert elected == f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"


def test_a_proposal_has_only_brokers_of_the_cluster(server: Server, topic: str, tmp_path: Path) -> None:
    make(server, topic, "--partitions", "4", "--replication-factor", "1")
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    generate = ("kafka-reassign-partitions.sh", *server, "--generate", "--topics-to-move-json-file", str(file))
    proposed = json.loads(printed(*generate, "--broker-list", "2,7").splitlines()[-1])
    assert [one["replicas"] for one in proposed["partitions"]] == [[2]] * 4
    alone = script(*generate, "--broker-list", "7")
    assert alone.code == 1 and alone.out.startswith("Error: All brokers are currently fenced")


def test_the_cluster_is_described(cluster: LocalCluster, server: Server, topic: str) -> None:
    make(server, topic)
    (endpoint,) = cluster.controller.listeners.values()
    controller = ("--bootstrap-controller", endpoint)
    assert re.fullmatch(r"Cluster ID: \S{22}\n", printed("kafka-cluster.sh", "cluster-id", *server))
    listed = printed("kafka-cluster.sh", "list-endpoints", *controller).splitlines()
    assert listed[1].split() == ["100", *endpoint.split(":"), "null", "controller"]
    for where in (server, controller):
        status = printed("kafka-metadata-quorum.sh", *where, "describe", "--status")
        assert "LeaderId:               100\n" in status
        assert "FinalizedVersionLevel: 4.4-IV2" in printed("kafka-features.sh", *where, "describe")
    rows = printed("kafka-metadata-quorum.sh", *server, "describe", "--replication").splitlines()
    assert [row.split()[-1] for row in rows] == ["Status", "Leader", "Observer", "Observer", "Observer"]
    shown = printed("kafka-log-dirs.sh", *server, "--describe", "--topic-list", topic).splitlines()[-1]
    assert {
        broker["broker"]: [directory["logDir"] for directory in broker["logDirs"]]
        for broker in json.loads(shown)["brokers"]
    } == {node.id: list(node.log_dirs) for node in cluster.brokers}


def test_log_files_are_printed(cluster: LocalCluster, server: Server, topic: str) -> None:
    make(server, topic, "--partitions", "1")
    produce(server, topic, "hello\n", "--request-required-acks", "all")
    file = next(Path(cluster.brokers[0].log_dirs[0]).glob(f"{topic}-0/*.log"))
    shown = printed("kafka-dump-log.sh", "--print-data-log", "--files", str(file))
    assert shown.startswith(f"Dumping {file}\nLog starting offset: 0\n")
    assert "payload: hello" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kafka-topics.sh",), "This tool helps to create, delete, describe, or change a topic."),
        (("kafka-topics.sh", "--create", "SERVER"), 'Missing required argument "[topic]"'),
        (("kafka-topics.sh", "--list", "--zookeeper", "z:2181"), "zookeeper is not a recognized option"),
        (("kafka-topics.sh", "--list"), "--bootstrap-server must be specified"),
        (("kafka-console-producer.sh", "--topic", "t", "--broker-list", "b:1"), "broker-list is not a recognized"),
        (("kafka-storage.sh", "format", "--add-scram", "x"), "--add-scram is not supported"),
        (("kafka-reassign-partitions.sh", "--throttle", "5"), "--throttle is not supported"),
        (
            ("kafka-configs.sh", "SERVER", "--describe", "--entity-type", "users"),
            "--entity-type users is not supported",
        ),
        (("kafka-acls.sh",), "no script kafka-acls.sh"),
    ],
)
def test_errors_name_the_option(server: Server, arguments: tuple[str, ...], said: str) -> None:
    words = [word for one in arguments for word in (server if one == "SERVER" else (one,))]
    ended = script(*words)
    assert ended.code == 1
    assert said in ended.err.splitlines()[0]
    assert ended.out == ""


def test_a_node_is_formatted_and_started_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, controller = free("127.0.0.1", 2)
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\nlog.dirs={tmp_path}/data\n"
        f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "9")  # only Kafka's image reads such variables
    printed("kafka-storage.sh", "format", "--standalone", "-t", "some-cluster", "-c", str(file))
    start = [sys.executable, "-P", "-m", "milena.scripts", "kafka-server-start", "-daemon", str(file)]
    subprocess.run([*start, "--override", "num.partitions=2"], check=True, timeout=LIMIT)
    here = ("--bootstrap-server", f"127.0.0.1:{broker}")
    try:
        assert printed("kafka-topics.sh", *here, "--create", "--topic", "t") == "Created topic t.\n"
        assert "PartitionCount: 2\t" in printed("kafka-topics.sh", *here, "--describe", "--topic", "t")
        assert printed("kafka-cluster.sh", "cluster-id", *here) == "Cluster ID: some-cluster\n"
    finally:
        (started,) = (one for one in nodes() if str(file).encode() in Path(f"/proc/{one}/cmdline").read_bytes())
        os.kill(started, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{started}").exists(), "the node has not ended", LIMIT)
    assert '"node stops"' in (tmp_path / "logs" / "kafkaServer.out").read_text()


def test_a_client_that_asks_for_encryption_is_refused(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    refused = script("kafka-topics.sh", *server, "--list", "--command-config", str(file))
    assert refused.code == 1
    assert "security.protocol=SASL_SSL is not supported: only PLAINTEXT is" in refused.err
