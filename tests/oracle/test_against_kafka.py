"""Milena's observer and client against a Kafka node, which must understand their requests."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from milena.client import admin
from milena.client.cluster import Cluster, TopicView
from milena.client.consumer import Consumer
from milena.client.group_consumer import GroupConsumer
from milena.client.producer import Producer
from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.node.links.outgoing import Channel
from milena.node.metadata.fetch_response import Quorum
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.node.metadata.loader import MetadataLoader
from milena.node.metadata.observer import Observer, ObserverOptions
from milena.node.metadata.snapshot_fetch import fetch_snapshot
from milena.node.metadata.snapshot_keeper import SnapshotKeeper, SnapshotPolicy
from milena.node.metadata.snapshots import SnapshotStore, load_image, parse_file_name
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import Codec
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID, NodeId
from milena.runtime.process import real_runtime
from milena.storage.log.loading import open_alone
from milena.storage.log.unified_log import UnifiedLog
from tests.oracle.kafka_node import CLUSTER_ID, KafkaNode, running_kafka
from tests.wire.command import milena, refused


@pytest.fixture(scope="module")
def kafka_node(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    folder = tmp_path_factory.mktemp("kafka")
    with running_kafka(folder, metadata_log_max_record_bytes_between_snapshots=2000) as node:
        yield node


@contextlib.asynccontextmanager
async def client_of(node: KafkaNode) -> AsyncIterator[Cluster]:
    cluster = Cluster(real_runtime(), [node.broker], "milena-test")
    try:
        yield cluster
    finally:
        cluster.close()


@contextlib.asynccontextmanager
async def observing(node: KafkaNode, folder: Path) -> AsyncIterator[tuple[MetadataLoader, Observer, UnifiedLog]]:
    runtime = real_runtime()
    snapshots = SnapshotStore(runtime.disk, str(folder))
    snapshots.open()
    config = TopicConfig.effective(NodeConfig.of(), {})
    log = open_alone(runtime.disk, runtime.clock, str(folder), METADATA_TOPIC, 0, METADATA_TOPIC_ID, config)
    loader = MetadataLoader(log, snapshots, runtime.contained)
    options = ObserverOptions(node_id=NodeId(77), cluster_id=CLUSTER_ID, voters={}, bootstrap=[node.controller])
    keeper = SnapshotKeeper(runtime, loader, log, snapshots, SnapshotPolicy(), node_id=77)
    observer = Observer(runtime, options, log, snapshots, loader, keeper)
    tasks = runtime.new_tasks("observer")
    tasks.spawn(observer.run(), name="run")
    try:
        yield loader, observer, log
    finally:
        await tasks.stop()
        log.close()


async def eventually(loader: MetadataLoader, name: str) -> None:
    """Wait until the image has the topic with its partitions."""
    found = asyncio.Event()

    def look(*_: object) -> None:
        if name in loader.image.topics and loader.image.topics[name].partitions:
            found.set()

    loader.subscribe(look)
    look()
    async with asyncio.timeout(20):
        await found.wait()


async def known(client: Cluster, name: str) -> TopicView:
    """Return a topic from Kafka's broker, which may apply it later than the observer does."""
    for attempt in itertools.count():
        with contextlib.suppress(KafkaError):
            return await client.topic(name, fresh=True)
        await client.pause(attempt)
    raise AssertionError


def check_copy(ours: Path, theirs: Path) -> None:
    """Compare the metadata logs byte by byte. The observer's begins at the end of Kafka's snapshot, if any."""
    (log,) = ours.glob("*.log")
    copied = log.read_bytes()
    assert copied and copied in (theirs / "00000000000000000000.log").read_bytes()


async def test_the_observer_follows_a_kafka_controller(kafka_node: KafkaNode, tmp_path: Path) -> None:
    async with client_of(kafka_node) as client, observing(kafka_node, tmp_path) as (loader, observer, log):
        created = await admin.create_topics(client, [admin.NewTopic("seen", 3, 1, configs={"retention.ms": "9876"})])
        assert created == {"seen": None}
        await eventually(loader, "seen")
        view = await known(client, "seen")
        image = loader.image
        assert image.topics["seen"].id == view.id
        assert {n: (p.leader, p.isr) for n, p in image.topics["seen"].partitions.items()} == {
            n: (p.leader, p.isr) for n, p in view.partitions.items()
        }
        assert image.config(TOPIC_RESOURCE, "seen") == {"retention.ms": "9876"}
        assert image.metadata_version == 33 and not image.brokers[1].fenced
        assert observer.quorum.leader == 1 and observer.leader_address == kafka_node.controller
        await admin.delete_topics(client, ["seen"])
        await admin.create_topics(client, [admin.NewTopic("later", 1, 1)])
        await eventually(loader, "later")
        assert "seen" not in image.topics
    check_copy(tmp_path, kafka_node.log_dir / f"{METADATA_TOPIC}-0")
    async with observing(kafka_node, tmp_path) as (loader, _, log):
        await eventually(loader, "later")
        assert log.log_end_offset > 0


async def test_the_observer_fetches_and_reads_kafkas_snapshots(kafka_node: KafkaNode, tmp_path: Path) -> None:
    folder = kafka_node.log_dir / f"{METADATA_TOPIC}-0"
    async with client_of(kafka_node) as client:
        await admin.create_topics(client, [admin.NewTopic(f"many-{n}", 5, 1) for n in range(30)])

        def taken() -> list[str]:
            names = sorted(path.name for path in folder.glob("*.checkpoint"))
            return [name for name in names if (found := parse_file_name(name)) is not None and found.end_offset > 150]

        async with asyncio.timeout(30):
            while not taken():  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # there is no event for a snapshot that Kafka has written
    snapshot = parse_file_name(taken()[0])
    assert snapshot is not None
    runtime = real_runtime()
    store = SnapshotStore(runtime.disk, str(tmp_path))
    store.open()
    channel = Channel(runtime, *kafka_node.controller, "observer")
    quorum = Quorum(NodeId(1), snapshot.epoch)
    problem = await fetch_snapshot(channel, store, snapshot, quorum, node_id=NodeId(77), cluster_id=CLUSTER_ID)
    channel.close()
    assert problem is None
    assert store.read(snapshot) == (folder / snapshot.file_name).read_bytes()
    assert len([name for name in load_image(store, snapshot).topics if name.startswith("many-")]) >= 20


@pytest.mark.parametrize("codec", list(Codec))
async def test_the_client_writes_and_reads(kafka_node: KafkaNode, codec: Codec) -> None:
    topic = f"client-{codec.name.lower()}"
    async with client_of(kafka_node) as client:
        assert await admin.create_topics(client, [admin.NewTopic(topic, 3, 1)]) == {topic: None}
        producer = Producer(client, codec=codec)
        futures = [
            await producer.enqueue(topic, b"%d" % n, key=b"%d" % n, headers=[("n", b"%d" % n)]) for n in range(300)
        ]
        await producer.close()
        assert {future.result().offset >= 0 for future in futures} == {True}
        consumer = Consumer(client)
        consumer.assign({(topic, n): None for n in range(3)})
        values: list[int] = []
        async with asyncio.timeout(20):
            while len(values) < 300:
                values += [int(record.value or b"") for record in await consumer.poll(1)]
        await consumer.close()
        assert sorted(values) == list(range(300))


async def test_the_client_joins_groups(kafka_node: KafkaNode) -> None:
    async with client_of(kafka_node) as client:
        await admin.create_topics(client, [admin.NewTopic("grouped", 2, 1)])
        producer = Producer(client)
        for number in range(10):
            await producer.send("grouped", b"%d" % number, partition=number % 2)
        await producer.close()
        member = GroupConsumer(client, "milena", ["grouped"], session_timeout_ms=6000)
        values: list[int] = []
        async with asyncio.timeout(30):
            while len(values) < 10:
                values += [int(record.value or b"") for record in await member.poll(1)]
        assert sorted(values) == list(range(10))
        assert (await admin.describe_group(client, "milena")).state == "Stable"
        assert (await admin.list_groups(client))["milena"] == "Stable"
        await member.close()
        assert await admin.group_offsets(client, "milena") == {("grouped", 0): 5, ("grouped", 1): 5}
        assert await admin.delete_groups(client, ["milena"]) == {"milena": None}


async def _retention(client: Cluster, topic: str) -> tuple[str | None, int] | None:
    """Return None as long as Kafka's broker has not applied the topic."""
    try:
        described = {entry.name: entry for entry in await admin.describe_configs(client, TOPIC_RESOURCE, topic)}
    except KafkaError as error:
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None
    return described["retention.ms"].value, described["retention.ms"].source


async def test_the_client_changes_and_describes_topics_and_configurations(kafka_node: KafkaNode) -> None:
    async with client_of(kafka_node) as client:
        await admin.create_topics(client, [admin.NewTopic("admin", 1, 1)])
        again = (await admin.create_topics(client, [admin.NewTopic("admin", 1, 1)]))["admin"]
        assert again is not None and again.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.alter_configs(client, TOPIC_RESOURCE, "admin", {"retention.ms": "1234"})
        async with asyncio.timeout(30):  # Kafka's broker applies the change after its controller has answered
            while await _retention(client, "admin") != ("1234", 1):
                pass
        assert await admin.create_partitions(client, {"admin": 2}) == {"admin": None}
        producer = Producer(client)
        for _ in range(3):
            await producer.send("admin", b"v", partition=0)
        await producer.close()
        assert await admin.delete_records(client, {("admin", 0): 2}) == {("admin", 0): 2}
        broker = {entry.name: entry.value for entry in await admin.describe_configs(client, 4, "1")}
        assert broker["node.id"] == "1"


def test_the_command_milena_works_with_kafka_brokers(kafka_node: KafkaNode) -> None:
    host, port = kafka_node.broker
    to = ("-b", f"{host}:{port}")
    milena("topic", "create", "commands", "--partitions", "2", *to)
    _, columns, *rows = milena("topic", "describe", "commands", *to).out.splitlines()
    assert columns.split() == ["partition", "leader", "epoch", "replicas", "isr", "elr"]
    node = rows[0].split()[1]
    assert [row.split() for row in rows] == [[str(number), node, "0", node, node, "-"] for number in range(2)]
    assert milena("elect", "commands:1", *to).out == "commands-1: no election needed, the preferred replica leads\n"
    assert milena("elect", "--unclean", "--all", *to).out == "no election needed\n"
    assert milena("reassign", "list", *to).out == "no ongoing reassignments\n"
    assert milena("reassign", "start", f"commands:0={node}", *to).out == f"commands-0: moves to {node}\n"
    assert refused("reassign", "start", "commands:0=77", *to).startswith("commands-0: ")
    assert refused("reassign", "cancel", "commands:0", *to).startswith("commands-0: ")
    _, row = milena("broker", "list", *to).out.splitlines()
    assert row.split()[:3] == [node, "active", f"{host}:{port}"]
    assert refused("broker", "unregister", "77", *to).startswith("broker 77: ")
