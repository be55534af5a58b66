"""``kafka-topics``: create, list, describe, alter and delete topics (Kafka's TopicCommand)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from milena.client import admin, replicas
from milena.client.cluster import Cluster, TopicView
from milena.client.replicas import PartitionDescription, Reassignment
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.uuids import to_text
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.options import Found, Option, Parser, UsageError, integer, number

ACTIONS: Final = ("alter", "create", "describe", "list", "delete")
REPORTS: Final = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
FAILED: Final = "org.apache.kafka.tools.AdminCommandFailedException"
ILLEGAL: Final = "java.lang.IllegalArgumentException"
PARSER: Final = Parser(
    "This tool helps to create, delete, describe, or change a topic.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", "List all available topics."),
        Option("create", "Create a new topic."),
        Option("delete", "Delete a topic."),
        Option("alter", "Increase the number of partitions."),
        Option("describe", "List details for the given topics."),
        Option(
            "topic",
            "The topic to create, alter, describe or delete; a regular expression, except for --create.",
            "topic",
        ),
        Option("topic-id", "The id of the topic to describe.", "topic-id"),
        Option("config", "A configuration of the topic to create.", "name=value"),
        Option("delete-config", "This option is no longer supported and has been deprecated since 4.0.", "name"),
        Option("partitions", "The number of partitions of the topic to create or alter.", "number", convert=integer),
        Option("replication-factor", "The number of replicas of the topic to create.", "number", convert=integer),
        Option("replica-assignment", "The brokers of each partition, as 1:2,2:3.", "brokers"),
        Option("under-replicated-partitions", "Describe only under-replicated partitions."),
        Option("unavailable-partitions", "Describe only partitions whose leader is not available."),
        Option("under-min-isr-partitions", "Describe only partitions with fewer in-sync replicas than the minimum."),
        Option("at-min-isr-partitions", "Describe only partitions with as many in-sync replicas as the minimum."),
        Option("topics-with-overrides", "Describe only topics that have configurations of their own."),
        Option("if-exists", "Do nothing if the topic does not exist."),
        Option("if-not-exists", "Do nothing if the topic exists."),
        Option("exclude-internal", "List or describe no internal topics."),
        Option("partition-size-limit-per-response", "Has no effect.", "number", convert=number),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    check(found)
    client = client_of(found)
    body = {"create": create, "alter": alter, "list": list_topics, "describe": describe, "delete": delete}
    action = next(one for one in ACTIONS if found.has(one))

    async def act(cluster: Cluster) -> int:
        try:
            return await body[action](found, cluster)
        except (KafkaError, ScriptError) as error:
            if isinstance(error, UsageError):
                raise
            return report(failure_of(error))

    try:
        return run(client, act, "createTopics" if action == "create" else "listTopics")
    except UsageError:
        raise
    except ScriptError as error:
        return report(error)


def report(error: ScriptError) -> int:
    """Print an error as the tool does, and return the exit code."""
    print(f"Error while executing topic command : {error.message}", flush=True)
    print(f"ERROR {error.full} (org.apache.kafka.tools.TopicCommand)", file=sys.stderr)
    return 1


def check(found: Found) -> None:
    """Check the options. Raises UsageError."""
    if sum(found.has(action) for action in ACTIONS) != 1:
        raise found.wrong("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if found.has("delete-config"):
        print("delete-config option is no longer supported and deprecated since version 4.0.", file=sys.stderr)
    if not found.has(SERVER):
        raise ScriptError("--bootstrap-server must be specified", ILLEGAL)
    if found.has("describe") and found.has("if-exists") and not found.has("topic", "topic-id"):
        raise found.wrong("--topic or --topic-id is required to describe a topic")
    if not found.has("list", "describe"):
        found.require("topic")
    if found.has("alter"):
        if found.has("config"):
            raise found.wrong(
                'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]" '
                "(the kafka-configs tool can be used to alter topic configurations)"
            )
        found.require("partitions")
    for option, actions in (
        ("config", ("alter", "create")),
        ("partitions", ("alter", "create")),
        ("replication-factor", ("create",)),
        ("replica-assignment", ("alter", "create")),
        ("if-exists", ("alter", "delete", "describe")),
        ("if-not-exists", ("create",)),
        ("exclude-internal", ("list", "describe")),
        *((report, ("describe",)) for report in (*REPORTS, "topics-with-overrides")),
    ):
        found.exclude(option, (action for action in ACTIONS if action not in actions))
    if found.has("create"):
        found.exclude("replica-assignment", ("partitions", "replication-factor"))
    found.exclude("topics-with-overrides", REPORTS)


async def create(found: Found, cluster: Cluster) -> int:
    name = found.one("topic")
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    partitions, factor = found.one("partitions", -1), found.one("replication-factor", -1)
    if found.has("replication-factor") and not 1 <= factor <= 32767:
        raise ScriptError("The replication factor must be between 1 and 32767 inclusive", ILLEGAL)
    if found.has("partitions") and partitions < 1:
        raise ScriptError("The partitions must be greater than 0", ILLEGAL)
    topic = admin.NewTopic(name, partitions, factor, assignment_of(found), configs_of(found.all("config")))
    error = (await admin.create_topics(cluster, [topic]))[name]
    if error is None:
        print(f"Created topic {name}.")
    elif not (error.code is ErrorCode.TOPIC_ALREADY_EXISTS and found.has("if-not-exists")):
        raise error
    return 0


def configs_of(words: Sequence[str]) -> dict[str, str]:
    """Parse --config. Raises ScriptError."""
    pairs = [re.split(r"\s*=\s*", word) for word in words]
    if any(len(pair) != 2 or not pair[1] for pair in pairs):
        raise ScriptError(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".',
            ILLEGAL,
        )
    return {key.strip(): value.strip() for key, value in pairs}


def assignment_of(found: Found) -> dict[int, list[int]]:
    """Parse --replica-assignment. Raises ScriptError."""
    assignment: dict[int, list[int]] = {}
    for index, text in enumerate(filter(None, found.one("replica-assignment", "").split(","))):
        try:
            brokers = [integer(word) for word in text.split(":")]
        except ValueError:
            raise ScriptError(f'For input string: "{text}"', "java.lang.NumberFormatException") from None
        if len(set(brokers)) < len(brokers):
            twice = ",".join(dict.fromkeys(str(one) for one in brokers if brokers.count(one) > 1))
            raise ScriptError(f"Partition replica lists may not contain duplicate entries: {twice}", FAILED)
        assignment[index] = brokers
        if len(brokers) != len(assignment[0]):
            raise ScriptError(f"Partition {index} has different replication factor: {brokers}")
    return assignment


async def list_topics(found: Found, cluster: Cluster) -> int:
    print("\n".join(sorted(await topics_named(found, cluster))))
    return 0


async def topics_named(found: Found, cluster: Cluster) -> dict[str, TopicView]:
    """Return the topics that the regular expression of --topic matches, or all."""
    pattern = pattern_of(found.one("topic"))
    view = await cluster.metadata()
    return {
        name: topic
        for name, topic in sorted(view.topics.items())
        if pattern.fullmatch(name) and not (topic.internal and found.has("exclude-internal"))
    }


def pattern_of(text: str | None) -> re.Pattern[str]:
    """Return the pattern of a list of topics, as Kafka's IncludeList reads it: ``a,b`` is ``a|b``. Raises
    ScriptError."""
    text = ".*" if text is None else text.strip().replace(",", "|").replace(" ", "")
    try:
        return re.compile(re.sub("^[\"']+|[\"']+$", "", text))
    except re.error:
        raise ScriptError(f"{text} is an invalid regex.", "java.lang.RuntimeException") from None


async def expected(found: Found, cluster: Cluster) -> dict[str, TopicView]:
    """Return the topics that --topic names. Raises ScriptError if there is none, unless --if-exists is set."""
    topics = await topics_named(found, cluster)
    if found.one("topic") and not topics and not found.has("if-exists"):
        raise ScriptError(f"Topic '{found.one('topic')}' does not exist as expected", ILLEGAL)
    return topics


async def delete(found: Found, cluster: Cluster) -> int:
    topics = await expected(found, cluster)
    results = await admin.delete_topics(cluster, list(topics)) if topics else {}
    for error in filter(None, results.values()):
        raise error
    return 0


async def alter(found: Found, cluster: Cluster) -> int:
    topics = await expected(found, cluster)
    assignment = assignment_of(found)
    for name, topic in topics.items():
        added = [brokers for index, brokers in assignment.items() if index >= len(topic.partitions)]
        results = await admin.create_partitions(
            cluster, {name: found.one("partitions")}, {name: added} if assignment else None
        )
        for error in filter(None, results.values()):
            raise error
    return 0


class Described(NamedTuple):
    """What is known of a partition of a topic with ``min_isr``."""

    number: int
    state: PartitionDescription
    move: Reassignment | None
    min_isr: int

    @property
    def factor(self) -> int:
        """The number of replicas without those that a reassignment adds."""
        if self.move is None or not {*self.move.adding, *self.move.removing} & {*self.state.replicas}:
            return len(self.state.replicas)
        return len(self.move.replicas) - len(self.move.adding)

    def has_leader(self, live: set[int]) -> bool:
        return self.state.leader in live

    def is_reported(self, found: Found, live: set[int]) -> bool:
        """Return whether the options ask for this partition."""
        in_sync = len(self.state.isr)
        reports = {
            "under-replicated-partitions": self.factor > in_sync,
            "unavailable-partitions": not self.has_leader(live),
            "under-min-isr-partitions": self.state.leader < 0 or in_sync < self.min_isr,
            "at-min-isr-partitions": in_sync == self.min_isr,
        }
        return not found.has(*REPORTS) or any(found.has(name) and holds for name, holds in reports.items())


async def describe(found: Found, cluster: Cluster) -> int:
    if found.has("topic-id"):
        topics = await topic_with_id(found, cluster)
    else:
        topics = await expected(found, cluster)
    live = {broker.id for broker in await replicas.list_brokers(cluster) if not broker.fenced}
    moves = await replicas.list_reassignments(cluster) if topics else {}
    for name, topic in topics.items():
        entries = await admin.describe_configs(cluster, admin.TOPIC_RESOURCE, name)
        own = {entry.name: entry.value for entry in entries if entry.source != admin.DEFAULT_CONFIG}
        least = next((int(one.value or 1) for one in entries if one.name == "min.insync.replicas"), 1)
        partitions = [
            Described(number, state, moves.get((name, number)), least)
            for number, state in sorted((await replicas.describe_partitions(cluster, name)).items())
        ]
        if not found.has(*REPORTS) and (own or not found.has("topics-with-overrides")):
            print(line_of(topic, partitions, own))
        for one in () if found.has("topics-with-overrides") else partitions:
            if one.is_reported(found, live):
                print(partition_line(name, one))
    return 0


async def topic_with_id(found: Found, cluster: Cluster) -> Mapping[str, TopicView]:
    """Return the topic of --topic-id. Raises ScriptError."""
    view = await cluster.metadata()
    wanted = found.one("topic-id")
    topics = {name: topic for name, topic in view.topics.items() if topic.id and to_text(topic.id) == wanted}
    if not topics and not found.has("if-exists"):
        raise ScriptError(f"TopicId '{wanted}' does not exist as expected", ILLEGAL)
    return topics


def line_of(topic: TopicView, partitions: Sequence[Described], own: Mapping[str, str | None]) -> str:
    """Return the first line of a description."""
    identity = f"\tTopicId: {to_text(topic.id)}" if topic.id else ""
    configs = ",".join(f"{key}={value}" for key, value in own.items())
    return (
        f"Topic: {topic.name}{identity}\tPartitionCount: {len(partitions)}"
        f"\tReplicationFactor: {partitions[0].factor if partitions else 0}\tConfigs: {configs}"
    )


def partition_line(topic: str, one: Described) -> str:
    """Return the line of a partition."""
    state = one.state
    leader = str(state.leader) if state.leader >= 0 else "none"
    moves = ""
    if one.move is not None:
        moves = f"\tAdding Replicas: {joined(one.move.adding)}\tRemoving Replicas: {joined(one.move.removing)}"
    return (
        f"\tTopic: {topic}\tPartition: {one.number}\tLeader: {leader}\tReplicas: {joined(state.replicas)}"
        f"\tIsr: {joined(state.isr)}{moves}\tElr: {joined(state.elr)}\tLastKnownElr: {joined(state.last_known_elr)}"
    )


def joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
