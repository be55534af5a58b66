"""`milena topic`: create, list, describe, delete and alter topics."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

from milena.client import admin, replicas
from milena.client.cluster import Cluster, PartitionInfo, TopicView
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values, key_value, nearest
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, Commands, await_controller, explain, run_one_of, split_partition
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.protocol.uuids import to_text

HIGH_WATERMARK = -1
"""The offset in DeleteRecords that stands for the high watermark."""
DELETE_RECORDS = CommandLine(
    "topic delete-records",
    "Delete the records of partitions before an offset, also in the remote tier; -1: before the high watermark.\n"
    "It cannot be undone.",
    [BOOTSTRAP, JSON],
    [Positional("TARGET", "as TOPIC:PARTITION=OFFSET", many=True)],
    ["milena topic delete-records orders:0=1500 orders:1=-1"],
)


async def delete_records(values: Values, cluster: Cluster) -> int:
    targets = dict(parse_target(word) for word in values.target)
    if not targets:
        raise UsageError("milena topic delete-records needs TOPIC:PARTITION=OFFSET")
    starts: dict[TopicPartition, int] = {}
    for (topic, number), offset in targets.items():
        try:
            starts |= await admin.delete_records(cluster, {(topic, number): offset})
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            begin, end = [(await find_offset(cluster, topic, number, at)).offset for at in (EARLIEST, LATEST)]
            raise UserError(f"{topic}-{number} begins at {begin} and ends before {end}; not {offset}") from None
        if not values.json:
            say(f"{topic}-{number}: begins at offset {starts[topic, number]}")
    if values.json:
        show_json([{"topic": one[0], "partition": one[1], "log_start_offset": at} for one, at in starts.items()])
    return 0


def parse_target(word: str) -> tuple[TopicPartition, int]:
    """Parse ``TOPIC:PARTITION=OFFSET``. Raises UsageError."""
    name, _, text = word.partition("=")
    if ":" not in name or not (text.isdecimal() or text == str(HIGH_WATERMARK)):
        raise UsageError(f"{word}: write it as TOPIC:PARTITION=OFFSET")
    topic, partition = split_partition(name)
    assert partition is not None
    return (topic, partition), int(text)


TOPIC, TOPICS = Positional("TOPIC", "the topic's name"), Positional("TOPIC", "names of topics", many=True)
CONFIG = Option("--config", "a topic configuration, by Kafka's key", "K=V", many=True, convert=key_value)
UNSET = -1
"""The value in CreateTopics that stands for the broker's default."""
LEADER_WAIT = 10.0
"""Seconds that `create` waits for leaders of a new topic's partitions."""

INTERNAL = {
    "__remote_log_metadata": "holds the metadata of the remote tier, which cannot be read without it",
    "__consumer_offsets": "holds the committed offsets of all groups",
    "__transaction_state": "holds the state of all transactions",
    "__share_group_state": "holds the state of all share groups",
}
"""The internal topics, each with the consequence of deleting it. Kafka's tools delete them without a warning."""

CREATE = CommandLine(
    "topic create",
    "Create a topic, and return when its partitions have leaders.",
    options=[
        BOOTSTRAP,
        Option("--partitions", "number of partitions (default: num.partitions of the broker)", "N", convert=int),
        Option("--replicas", "number of replicas (default: default.replication.factor)", "N", convert=int),
        CONFIG,
        JSON,
        Option("--if-not-exists", "an existing topic is not an error"),
        Option("--quiet", "print nothing"),
    ],
    positionals=[TOPIC],
    examples=[
        "milena topic create orders --partitions 6 --replicas 3",
        "milena topic create orders --config retention.ms=86400000 --if-not-exists",
    ],
)
LIST = CommandLine(
    "topic list",
    "List topics with their partitions.",
    [BOOTSTRAP, JSON, Option("--internal", "include internal topics such as __consumer_offsets")],
)
DESCRIBE = CommandLine(
    "topic describe",
    "Show partitions, leaders, in-sync replicas, eligible leader replicas (KIP-966), and configurations.",
    [BOOTSTRAP, JSON],
    [Positional("TOPIC", "names of topics (default: all)", many=True)],
)
DELETE = CommandLine(
    "topic delete",
    "Delete topics with all their data.",
    [
        BOOTSTRAP,
        Option("--if-exists", "a missing topic is not an error"),
        Option("--force", "delete internal topics too, with the state that they hold"),
    ],
    [TOPICS],
)
ALTER = CommandLine(
    "topic alter",
    "Add partitions, set or delete configurations.",
    [
        BOOTSTRAP,
        Option("--partitions", "increase the number of partitions to N", "N", convert=int),
        CONFIG,
        Option("--delete-config", "delete the topic's value of a key", "KEY", many=True),
    ],
    [TOPIC],
    ["milena topic alter orders --partitions 12", "milena topic alter orders --config retention.ms=3600000"],
)


def main(arguments: Sequence[str]) -> int:
    commands: Commands = {
        "create": (CREATE, create),
        "list": (LIST, list_topics),
        "describe": (DESCRIBE, describe),
        "delete": (DELETE, delete),
        "alter": (ALTER, alter),
        "delete-records": (DELETE_RECORDS, delete_records),
    }
    return run_one_of("topic", commands, arguments)


async def create(values: Values, cluster: Cluster) -> int:
    partitions, replicas = (UNSET if count is None else count for count in (values.partitions, values.replicas))
    topic = admin.NewTopic(values.topic, partitions, replicas, configs=dict(values.config))
    await await_controller(cluster)
    error = (await admin.create_topics(cluster, [topic]))[values.topic]
    if error is not None and not (error.code is ErrorCode.TOPIC_ALREADY_EXISTS and values.if_not_exists):
        raise UserError(f"topic {values.topic}: {explain(error)}")
    view = await with_leaders(cluster, values.topic)
    if error is not None:
        warn_of_size(values, view)
    if values.json:
        show_json(topic_of(view))
    elif not values.quiet:
        say(f"{values.topic}: {partitions_of(view)}")
    return 0


def warn_of_size(values: Values, found: TopicView) -> None:
    """Print a warning if an existing topic has other numbers of partitions or replicas than requested."""
    count, copies = len(found.partitions), max((len(one.replicas) for one in found.partitions.values()), default=0)
    if values.partitions not in (None, count):
        print(f"warning: {found.name} has {partitions_of(found)} already, not {values.partitions}", file=sys.stderr)
    if values.replicas not in (None, copies):
        print(f"warning: {found.name} has replication factor {copies} already, not {values.replicas}", file=sys.stderr)


async def with_leaders(cluster: Cluster, name: str) -> TopicView:
    """Wait until the broker knows the topic and a leader of each partition. Return the topic."""
    try:
        async with asyncio.timeout(LEADER_WAIT):
            for attempt in range(1_000_000):
                found = (await cluster.metadata([name])).topics[name]
                if not found.error and all(partition.leader >= 0 for partition in found.partitions.values()):
                    return found
                await cluster.pause(attempt)
    except TimeoutError:
        pass
    raise UserError(f"topic {name} is created, but not all of its partitions have a leader yet")


async def list_topics(values: Values, cluster: Cluster) -> int:
    view = await cluster.metadata()
    topics = [topic for _, topic in sorted(view.topics.items()) if values.internal or not is_internal(topic)]
    if values.json:
        show_json([topic_of(topic) for topic in topics])
        return 0
    for topic in topics:
        say(f"{topic.name:<40}{partitions_of(topic, width=6)}")
    return 0


def is_internal(topic: TopicView) -> bool:
    """Return whether a topic is internal. Neither Milena's nor Kafka's brokers report __remote_log_metadata as
    internal."""
    return topic.internal or topic.name in INTERNAL


def topic_of(topic: TopicView) -> dict[str, object]:
    """Return a topic for JSON, without its partitions."""
    return {
        "name": topic.name,
        "id": to_text(topic.id) if topic.id is not None else None,
        "internal": is_internal(topic),
        "partitions": len(topic.partitions),
        "replicas": max((len(one.replicas) for one in topic.partitions.values()), default=0),
    }


def partitions_of(topic: TopicView, width: int = 0) -> str:
    count = len(topic.partitions)
    return f"{count:>{width}} partition{'' if count == 1 else 's'}"


async def describe(values: Values, cluster: Cluster) -> int:
    view = await cluster.metadata(values.topic or None)
    described = []
    for name, topic in sorted(view.topics.items()):
        if topic.error:
            raise KafkaError(ErrorCode(topic.error), f"topic {name}")
        entries = await admin.describe_configs(cluster, admin.TOPIC_RESOURCE, name)
        own = {entry.name: entry.value for entry in entries if entry.source == admin.TOPIC_CONFIG}
        eligible = await eligible_leaders(cluster, name)
        if values.json:
            partitions = [partition_of(number, one, eligible) for number, one in sorted(topic.partitions.items())]
            described.append(topic_of(topic) | {"configs": own, "partitions": partitions})
        else:
            show(topic, own, eligible)
    if values.json:
        show_json(described)
    return 0


def partition_of(number: int, partition: PartitionInfo, eligible: Mapping[int, Sequence[int]]) -> dict[str, object]:
    """Return a partition for JSON. ``leader`` is null if the partition has no leader."""
    return {
        "partition": number,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(eligible.get(number, ())),
        "offline": list(partition.offline),
    }


def show(topic: TopicView, own: Mapping[str, str | None], eligible: Mapping[int, Sequence[int]]) -> None:
    """Print a topic as lines."""
    identity = to_text(topic.id) if topic.id is not None else "-"
    configs = " ".join(f"{key}={value}" for key, value in own.items())
    say(f"{topic.name}  id {identity}  partitions {len(topic.partitions)}  {configs}".rstrip())
    say(f"  {'partition':>9} {'leader':>7} {'epoch':>6}  replicas  isr       elr")
    for number, partition in sorted(topic.partitions.items()):
        leader = str(partition.leader) if partition.leader >= 0 else "none"
        hosts, isr = ",".join(map(str, partition.replicas)), ",".join(map(str, partition.isr)) or "-"
        elr = ",".join(map(str, eligible.get(number, ()))) or "-"
        say(f"  {number:>9} {leader:>7} {partition.leader_epoch:>6}  {hosts:<8}  {isr:<8}  {elr}")


async def eligible_leaders(cluster: Cluster, topic: str) -> dict[int, tuple[int, ...]]:
    """Return the eligible leader replicas by partition; empty if the broker does not report them (before Kafka 3.7)."""
    try:
        return {number: one.elr for number, one in (await replicas.describe_partitions(cluster, topic)).items()}
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise


async def delete(values: Values, cluster: Cluster) -> int:
    if not values.topic:
        raise UsageError("milena topic delete needs the names of topics")
    for name in values.topic:
        if name in INTERNAL and not values.force:
            raise UserError(f"topic {name} {INTERNAL[name]}; --force deletes it anyway")
    await await_controller(cluster)
    for name, error in (await admin.delete_topics(cluster, values.topic)).items():
        missing = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is not None and not (missing and values.if_exists):
            raise UserError(f"topic {name}: {explain(error)}")
    return 0


async def alter(values: Values, cluster: Cluster) -> int:
    if values.partitions is None and not values.config and not values.delete_config:
        raise UsageError("milena topic alter needs --partitions, --config or --delete-config")
    await await_controller(cluster)
    if values.partitions is not None:
        error = (await admin.create_partitions(cluster, {values.topic: values.partitions}))[values.topic]
        if error is not None:
            raise UserError(f"topic {values.topic}: {explain(error)}")
    if values.config or values.delete_config:
        await alter_configs(values, cluster)
    return 0


async def alter_configs(values: Values, cluster: Cluster) -> None:
    """Set and delete configurations. Brokers ignore the deletion of an unknown key; this command reports it as an
    error."""
    try:
        known = [entry.name for entry in await admin.describe_configs(cluster, admin.TOPIC_RESOURCE, values.topic)]
        for key in values.delete_config:
            if key not in known:
                raise UserError(f"--delete-config {key}: no such topic configuration{nearest(key, known)}")
        await admin.alter_configs(
            cluster, admin.TOPIC_RESOURCE, values.topic, dict(values.config), values.delete_config
        )
    except KafkaError as error:
        raise UserError(f"topic {values.topic}: {explain(error)}") from None
