"""``kafka-reassign-partitions``: moves replicas to other brokers (Kafka's ReassignPartitionsCommand)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.replicas import Reassignment, alter_reassignments, describe_log_dirs, list_reassignments
from milena.protocol.errors import KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.numbers import whole
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, text_of
from milena.scripts.common.json_files import partitions_in, read_json
from milena.scripts.common.options import Found, Option, Parser, UsageError, number

FILE: Final = "reassignment-json-file"
TOPICS_FILE: Final = "topics-to-move-json-file"
ACTIONS: Final = {
    "generate": (TOPICS_FILE, "broker-list"),
    "execute": (FILE,),
    "verify": (FILE,),
    "cancel": (FILE,),
    "list": (),
}
"""The actions, and the options that each needs."""
BROKER_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_THROTTLES: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
NO_THROTTLE: Final = "set leader.replication.throttled.rate and the like with kafka-configs"
PARSER: Final = Parser(
    "This tool helps to move topic partitions between replicas.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("bootstrap-controller", value="controllers", missing="use --bootstrap-server"),
        Option("generate", "Print a proposal for the topics of a file."),
        Option("execute", "Start the reassignments of a file."),
        Option("verify", "Print the state of the reassignments of a file."),
        Option("cancel", "Cancel the reassignments of a file."),
        Option("list", "List ongoing reassignments."),
        Option(
            FILE, 'As {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2]}], "version": 1}.', "file"
        ),
        Option(TOPICS_FILE, 'As {"topics": [{"topic": "foo"}], "version": 1}.', "file"),
        Option("broker-list", "The brokers for --generate: 0,1,2.", "brokers"),
        Option("disable-rack-aware", "Has no effect: --generate does not consider racks."),
        Option("additional", "Start them also if others are ongoing."),
        Option("preserve-throttles", "Keep throttles."),
        Option("timeout", "Has no effect.", "ms", convert=number),
        Option("disallow-replication-factor-change", "Refuse other numbers of replicas."),
        Option("throttle", value="rate", missing=NO_THROTTLE),
        Option("replica-alter-log-dirs-throttle", value="rate", missing=NO_THROTTLE),
    ],
)

Assignment = dict[TopicPartition, list[int]]


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    actions = [action for action in ACTIONS if found.has(action)]
    if len(actions) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        raise found.wrong(f"Command must include exactly one action: {names}")
    if not found.has(SERVER):
        raise found.wrong("Please specify either --bootstrap-server or --bootstrap-controller")
    found.require(*ACTIONS[actions[0]])
    bodies: dict[str, Callable[[Found, Cluster], Awaitable[int]]] = {
        "generate": generate,
        "execute": execute,
        "verify": verify,
        "cancel": cancel,
        "list": list_all,
    }

    async def act(cluster: Cluster) -> int:
        return await bodies[actions[0]](found, cluster)

    try:
        return run(client_of(found, client_id="reassign-partitions-tool"), act, "describeCluster")
    except UsageError:
        raise
    except ScriptError as error:
        print(f"Error: {error.message}" if error.kind else error.message)
        return 1


def assignment_in(found: Found) -> Assignment:
    """Return the assignment in the file. Raises ScriptError."""
    content = read_json(found.one(FILE), "The input string is not a valid JSON")
    if content.get("version", 1) != 1:
        raise ScriptError(f"Not supported version field value {content['version']}")
    assignment: Assignment = {}
    for partition, entry in partitions_in(content):
        replicas, name = entry.get("replicas"), named(partition)
        if not isinstance(replicas, list) or not all(isinstance(one, int) for one in replicas):
            raise ScriptError(f"{name} needs a list of replicas")
        if any(directory != "any" for directory in entry.get("log_dirs") or ()):
            raise ScriptError(f"{name}: log_dirs other than any are not supported")
        if not replicas:
            raise ScriptError("Partition replica list cannot be empty")
        if len(set(replicas)) < len(replicas):
            twice = ",".join(dict.fromkeys(str(one) for one in replicas if replicas.count(one) > 1))
            raise ScriptError(
                f"Partition replica lists may not contain duplicate entries: {name} contains multiple entries for "
                f"{twice}"
            )
        if partition in assignment:
            raise ScriptError(f"Partition reassignment contains duplicate topic partitions: {name}")
        assignment[partition] = replicas
    if not assignment:
        raise ScriptError("Partition reassignment list cannot be empty")
    return assignment


async def current(cluster: Cluster, topics: Sequence[str]) -> Assignment:
    """Return the replicas of all partitions of topics. Raises ScriptError if a topic does not exist."""
    view = await cluster.metadata([*dict.fromkeys(topics)])
    assignment: Assignment = {}
    for name, topic in sorted(view.topics.items()):
        if topic.error:
            raise ScriptError(f"Topic {name} not found.", "UnknownTopicOrPartitionException")
        assignment |= {(name, index): list(one.replicas) for index, one in sorted(topic.partitions.items())}
    return assignment


async def directories_of(cluster: Cluster, assignment: Assignment) -> dict[tuple[int, TopicPartition], str]:
    """Return the log directory of each replica, by broker and partition."""
    found: dict[tuple[int, TopicPartition], str] = {}
    known = (await cluster.metadata([])).brokers
    for broker in {one for replicas in assignment.values() for one in replicas} & {*known}:
        for directory in await describe_log_dirs(cluster, broker):
            found |= {(broker, partition): directory.path for partition in directory.replicas}
    return found


def json_of(assignment: Assignment, directories: Mapping[tuple[int, TopicPartition], str] | None = None) -> str:
    """Return an assignment as Kafka writes it."""
    places = directories or {}
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": replicas,
            "log_dirs": [places.get((broker, (topic, index)), "any") for broker in replicas],
        }
        for (topic, index), replicas in assignment.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def named(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def listed(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(map(named, sorted(partitions)))


async def execute(found: Found, cluster: Cluster) -> int:
    proposed = assignment_in(found)
    if await list_reassignments(cluster) and not found.has("additional"):
        raise ScriptError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    brokers = (await cluster.metadata([])).brokers
    for broker in sorted({one for replicas in proposed.values() for one in replicas} - {*brokers}):
        raise ScriptError(f"Unknown broker id {broker}", "AdminCommandFailedException")
    before = {
        one: replicas
        for one, replicas in (await current(cluster, [topic for topic, _ in proposed])).items()
        if one in proposed
    }
    print(
        f"Current partition replica assignment\n\n{json_of(before, await directories_of(cluster, before))}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    strict = found.has("disallow-replication-factor-change")
    outcomes = await alter_reassignments(cluster, proposed, allow_factor_change=not strict)
    raise_errors("Error reassigning partition(s):", outcomes)
    print(f"Successfully started partition reassignment{plural(proposed)} for {listed([*proposed])}")
    return 0


def plural(items: Mapping[TopicPartition, object]) -> str:
    return "" if len(items) == 1 else "s"


def raise_errors(title: str, outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
    """Raise ScriptError with the errors of partitions."""
    errors = [
        f"{named(one)}: {text_of(error)}" for one, error in sorted(outcomes.items(), key=lambda one: one[0]) if error
    ]
    if errors:
        raise ScriptError("\n".join([title, *errors]))


async def verify(found: Found, cluster: Cluster) -> int:
    targets = assignment_in(found)
    moves = await list_reassignments(cluster)
    view = await cluster.metadata([*dict.fromkeys(topic for topic, _ in targets)])
    print("Status of partition reassignment:")
    for (topic, index), target in sorted(targets.items()):
        name = named((topic, index))
        known = view.topics[topic].partitions.get(index)
        replicas = [] if known is None else list(known.replicas)
        if (topic, index) in moves:
            print(f"Reassignment of partition {name} is still in progress.")
        elif replicas == target:
            print(f"Reassignment of partition {name} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {name}, but replica set is {joined(replicas)} rather "
                f"than {joined(target)}."
            )
    print()
    if not moves and not found.has("preserve-throttles"):
        await clear_throttles(cluster, targets)
    return 0


async def clear_throttles(cluster: Cluster, targets: Assignment) -> None:
    """Delete the throttles of brokers and topics."""
    known = (await cluster.metadata([])).brokers
    brokers = sorted({*known, *(one for replicas in targets.values() for one in replicas)})
    topics = sorted({topic for topic, _ in targets})
    print(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {joined(brokers)}")
    for broker in known:
        await admin.alter_configs(cluster, admin.BROKER_RESOURCE, str(broker), {}, BROKER_THROTTLES)
    print(f"Clearing topic-level throttles on topic{'' if len(topics) == 1 else 's'} {','.join(topics)}")
    for topic in topics:
        await admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, {}, TOPIC_THROTTLES)


def joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


async def cancel(found: Found, cluster: Cluster) -> int:
    wanted = assignment_in(found)
    active = {one: None for one in await list_reassignments(cluster) if one in wanted}
    if active:
        outcomes = await alter_reassignments(cluster, active)
        raise_errors(f"Error cancelling partition reassignment{plural(active)} for:", outcomes)
        print(f"Successfully cancelled partition reassignment{plural(active)} for: {listed([*active])}")
    else:
        print("None of the specified partition reassignments are active.")
    print("None of the specified partition moves are active.", end="")  # no line break, as in Kafka
    if not found.has("preserve-throttles"):
        await clear_throttles(cluster, wanted)
    return 0


async def list_all(found: Found, cluster: Cluster) -> int:
    moves = await list_reassignments(cluster)
    if not moves:
        print("No partition reassignments found.")
        return 0
    print("Current partition reassignments:")
    for partition, move in sorted(moves.items()):
        print(move_text(partition, move))
    return 0


def move_text(partition: TopicPartition, move: Reassignment) -> str:
    parts = [f"{named(partition)}: replicas: {joined(move.replicas)}."]
    parts += [f" adding: {joined(move.adding)}."] if move.adding else []
    parts += [f" removing: {joined(move.removing)}."] if move.removing else []
    return "".join(parts)


async def generate(found: Found, cluster: Cluster) -> int:
    brokers = [whole(word) for word in found.one("broker-list").split(",")]
    if None in brokers or len(set(brokers)) < len(brokers):
        raise ScriptError(
            f"Broker list contains duplicate entries: {found.one('broker-list')}", "AdminCommandFailedException"
        )
    content = read_json(found.one(TOPICS_FILE), "The input string is not a valid JSON")
    topics = [entry["topic"] for entry in content.get("topics") or () if isinstance(entry, dict) and "topic" in entry]
    if not topics or not all(isinstance(topic, str) for topic in topics):
        raise ScriptError(f"{found.one(TOPICS_FILE)} names no topics")
    before = await current(cluster, topics)
    chosen = sorted({*(await cluster.metadata([])).brokers} & {*brokers})
    if not chosen:
        raise ScriptError(
            "All brokers are currently fenced, or have all their log directories cordoned.",
            "InvalidReplicationFactorException",
        )
    print(f"Current partition replica assignment\n{json_of(before, await directories_of(cluster, before))}\n")
    print(f"Proposed partition reassignment configuration\n{json_of(spread(cluster, before, chosen))}")
    return 0


def spread(cluster: Cluster, before: Assignment, brokers: Sequence[int]) -> Assignment:
    """Return an assignment that spreads leaders and replicas over the brokers. Raises ScriptError if they are too
    few."""
    proposed: Assignment = {}
    for topic in dict.fromkeys(name for name, _ in before):
        first = cluster.runtime.random.below(len(brokers))
        for (name, index), replicas in before.items():
            if name != topic:
                continue
            if len(replicas) > len(brokers):
                raise ScriptError(
                    f"Replication factor: {len(replicas)} larger than available brokers: {len(brokers)}.",
                    "InvalidReplicationFactorException",
                )
            shift = index // len(brokers)
            places = [
                first + index,
                *(first + index + 1 + (shift + one) % max(len(brokers) - 1, 1) for one in range(len(replicas) - 1)),
            ]
            proposed[name, index] = [brokers[place % len(brokers)] for place in places]
    return proposed
