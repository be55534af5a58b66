"""``kafka-consumer-groups``: list, describe and delete groups, and their offsets (Kafka's ConsumerGroupCommand)."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from milena.client import admin
from milena.client.admin import GroupListing, GroupMember, GroupView
from milena.client.cluster import Cluster
from milena.client.membership import coordinator_of
from milena.client.offsets import LATEST
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import TopicPartition
from milena.runtime.printable import printable
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, failure_of, kind_of
from milena.scripts.common.options import Found, Option, Parser, UsageError, number
from milena.scripts.reset_offsets import SCENARIOS, offset_at, partitions_of, reset

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
NONE: Final = "-"
STATES: Final = (
    "Stable", "PreparingRebalance", "CompletingRebalance", "Dead", "Empty", "Assigning", "Reconciling",
)  # fmt: skip
KINDS: Final = ("Classic", "Consumer")
REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
PARSER: Final = Parser(
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", "List all consumer groups."),
        Option("describe", "Show offsets and lag, or members or states, of groups."),
        Option("delete", "Delete groups."),
        Option("reset-offsets", "Reset the committed offsets of groups without members; shows them without --execute."),
        Option("delete-offsets", "Delete committed offsets of topics."),
        Option("group", "The group to act on; may be repeated.", "group"),
        Option("all-groups", "Apply to all groups."),
        Option("topic", "A topic, or partitions of it as topic:0,1; may be repeated.", "topic"),
        Option("all-topics", "Reset all topics for which the group has committed offsets."),
        Option("members", "With --describe: the members."),
        Option("offsets", "With --describe: the offsets, which is the default."),
        Option(
            "state", "With --describe: the state. With --list: states, or the groups in these.", "states", optional=True
        ),
        Option("type", "With --list: types, or the groups of these.", "types", optional=True),
        Option("verbose", "With --describe: more information."),
        Option("timeout", "The time in ms in which the groups must answer.", "ms", convert=number),
        Option("dry-run", "Only show the new offsets."),
        Option("execute", "Commit the new offsets."),
        Option("export", "Print the new offsets as CSV."),
        Option("to-offset", "To this offset.", "offset", convert=number),
        Option("to-datetime", "To the first record since a time, as YYYY-MM-DDTHH:mm:SS.sss.", "datetime"),
        Option("by-duration", "To the first record since a duration ago, as PnDTnHnMnS.", "duration"),
        Option("to-earliest", "To the earliest offset."),
        Option("to-latest", "To the latest offset."),
        Option("to-current", "To the current offset."),
        Option("shift-by", "By a number of records, which may be negative.", "number", convert=number),
        Option("from-file", "To the offsets in a CSV file.", "file"),
        Option("validate-regex", missing="there are no groups of KIP-848 yet", value="regex"),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    check(found)
    bodies: dict[str, Callable[[Found, Cluster], Awaitable[int]]] = {
        "list": list_groups,
        "describe": describe,
        "delete": delete,
        "reset-offsets": reset,
        "delete-offsets": delete_offsets,
    }
    if sum(found.has(action) for action in ACTIONS) != 1:
        raise found.wrong(f"Command must include exactly one action: {', '.join(f'--{one}' for one in ACTIONS)}")
    action = next(one for one in ACTIONS if found.has(one))

    async def act(cluster: Cluster) -> int:
        return await bodies[action](found, cluster)

    try:
        return run(client_of(found), act, "listGroups" if action == "list" else "describeGroups")
    except UsageError:
        raise
    except ScriptError as error:
        print_error(f"Executing consumer group command failed due to {error.message}")
        print(error.full, file=sys.stderr)
        return 0  # as Kafka's tool


def print_error(message: str) -> None:
    """Print an error as the tool does: to standard output."""
    print(f"\nError: {message}", flush=True)


def check(found: Found) -> None:
    """Check the options. Raises UsageError."""
    found.require(SERVER)
    for option, actions in (
        ("members", ("describe",)),
        ("verbose", ("describe",)),
        ("offsets", ("describe",)),
        ("state", ("describe", "list")),
        ("type", ("list",)),
    ):
        if found.has(option) and not found.has(*actions):
            raise found.wrong(f"Option(s) [{option}] are unavailable given other options on the command line")
    for action in ("describe", "delete", "reset-offsets"):
        if found.has(action) and not found.has("group", "all-groups"):
            raise found.wrong(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if found.has("describe"):
        if sum(found.has(one) for one in ("members", "offsets", "state")) > 1:
            raise found.wrong("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if found.has("state") and found.one("state") is not None:
            raise found.wrong("Option [describe] does not take a value for [state]")
    if found.has("delete") and found.has("topic"):
        raise found.wrong("The consumer does not support topic-specific offset deletion from a consumer group.")
    if found.has("delete-offsets") and not (found.has("group") and found.has("topic")):
        raise found.wrong("Option [delete-offsets] takes the following options: [topic], [group]")
    if found.has("reset-offsets"):
        if found.has("dry-run") and found.has("execute"):
            raise found.wrong("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not found.has("dry-run", "execute"):
            print(
                "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command "
                "will require either --dry-run or --execute to be specified. You should add the --dry-run option "
                "explicitly if you are scripting this command and want to keep the current default behavior without "
                "prompting.",
                file=sys.stderr,
            )
        for scenario in SCENARIOS:
            found.exclude(scenario, SCENARIOS)
    found.exclude("group", ("all-groups", "list"))
    found.exclude("topic", ("list", "describe"))


async def list_groups(found: Found, cluster: Cluster) -> int:
    groups = await consumer_groups(cluster)
    if not found.has("state", "type"):
        print("".join(f"{printable(name)}\n" for name in groups), end="")
        return 0
    states, kinds = allowed(found, "state", STATES), allowed(found, "type", KINDS)
    rows = [
        (name, one.kind.capitalize() or "Unknown", one.state or "Unknown")
        for name, one in groups.items()
        if one.state in states and one.kind.capitalize() in kinds
    ]
    shown = [index for index, column in enumerate(("group", "type", "state")) if index == 0 or found.has(column)]
    width = max([15, *(len(name) for name, _, _ in rows)]) + 10
    for row in (("GROUP", "TYPE", "STATE"), *rows):
        print(" ".join(f"{printable(row[index]):<{20 if index else width}}" for index in shown))
    return 0


async def consumer_groups(cluster: Cluster) -> dict[str, GroupListing]:
    """Return the groups of consumers, and those that only have committed offsets."""
    listed = await admin.group_listings(cluster)
    return {name: one for name, one in listed.items() if one.protocol_type in (PROTOCOL_TYPE, "")}


def allowed(found: Found, option: str, valid: Sequence[str]) -> set[str]:
    """Return the states or types that an option names, by default all. Raises ScriptError."""
    text = found.one(option)
    if not text:
        return {*valid, "", "Unknown"}
    known = {one.lower(): one for one in valid}
    words = [word.strip().lower() for word in text.split(",")]
    if not {*words} <= known.keys():
        what = "state" if option == "state" else "types"
        raise found.wrong(f"Invalid {what} list '{text}'. Valid {option}s are: {', '.join(sorted(valid))}")
    return {known[word] for word in words}


async def named(found: Found, cluster: Cluster) -> list[str]:
    """Return the groups to act on."""
    return list(await consumer_groups(cluster)) if found.has("all-groups") else found.all("group")


async def describe(found: Found, cluster: Cluster) -> int:
    names = sorted(dict.fromkeys(await named(found, cluster)))
    groups = {name: await view_of(cluster, name) for name in names}
    for name, group in groups.items():
        if found.has("members"):
            print_members(name, group, verbose=found.has("verbose"))
        elif found.has("state"):
            await print_state(name, group, cluster, verbose=found.has("verbose"))
        else:
            await print_offsets(name, group, cluster, verbose=found.has("verbose"))
    return 0


async def view_of(cluster: Cluster, name: str) -> GroupView:
    """Return a group. Raises ScriptError if it does not exist or is no group of consumers."""
    try:
        group = await admin.describe_group(cluster, name)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        group = None
    if group is None or group.state == "Dead":
        kind = kind_of(ErrorCode.GROUP_ID_NOT_FOUND)
        raise ScriptError(f"{kind}: Group {name} not found.", "java.util.concurrent.ExecutionException")
    if group.protocol_type not in (PROTOCOL_TYPE, ""):
        raise ScriptError(f"GroupId {name} is not a consumer group ({group.protocol_type}).")
    return group


def print_remark(group: GroupView) -> None:
    """Print what is remarkable about the group's state."""
    sys.stdout.flush()
    if group.state == "Empty":
        print(f"\nConsumer group '{group.group}' has no active members.", file=sys.stderr)
    elif group.state in REBALANCING:
        print(f"\nWarning: Consumer group '{group.group}' is rebalancing.", file=sys.stderr)


def assigned_to(member: GroupMember) -> list[TopicPartition]:
    """Return the partitions that are assigned to a member."""
    try:
        assignment = decode_assignment(member.assignment)
    except DecodeError:
        return []
    return [(one.topic, number) for one in assignment.assigned_partitions for number in one.partitions]


class Row(NamedTuple):
    """A line of --describe: texts."""

    group: str
    topic: str
    partition: str
    epoch: str
    committed: str
    end: str
    lag: str
    member: str
    host: str
    client: str


HEADER: Final = Row(
    "GROUP",
    "TOPIC",
    "PARTITION",
    "LEADER-EPOCH",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


async def print_offsets(name: str, group: GroupView, cluster: Cluster, *, verbose: bool) -> None:
    committed = await admin.group_offsets(cluster, name)
    rows: list[Row] = []
    left = dict(committed)
    for member in sorted(group.members, key=lambda one: -len(assigned_to(one))):
        owner = (member.member_id, member.client_host, member.client_id)
        for partition in sorted(assigned_to(member)):
            left.pop(partition, None)
            rows.append(await row_of(name, partition, committed.get(partition), cluster, owner))
    for partition in sorted(left):
        rows.append(await row_of(name, partition, committed[partition], cluster, (NONE, NONE, NONE)))
    print_remark(group)
    if rows:
        widths = [15, 15, 10, 15, 15, 15, 15, 15, 15, 0]
        for column in (0, 1, 7, 8):
            widths[column] = max(15, *(len(row[column]) for row in rows))
        shown = [column for column in range(len(HEADER)) if verbose or column != 3]
        print_table(
            [[row[column] for column in shown] for row in (HEADER, *rows)], [widths[column] for column in shown]
        )


def print_table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Print rows, each after a line break, with columns of these widths."""
    for row in rows:
        print("\n" + " ".join(f"{printable(text):<{width}}" for text, width in zip(row, widths, strict=True)), end="")
    print()


async def row_of(
    group: str, partition: TopicPartition, committed: int | None, cluster: Cluster, owner: tuple[str, str, str]
) -> Row:
    end = await offset_at(cluster, partition, LATEST)
    shown = NONE if committed is None else str(committed)
    lag = NONE if committed is None else str(end - committed)
    return Row(group, partition[0], str(partition[1]), NONE, shown, str(end), lag, *owner)


def print_members(name: str, group: GroupView, *, verbose: bool) -> None:
    print_remark(group)
    columns: list[tuple[str, int, Callable[[GroupMember], str]]] = [
        ("GROUP", 15, lambda member: name),
        ("CONSUMER-ID", 15, lambda member: member.member_id),
        ("GROUP-INSTANCE-ID", 17, lambda member: member.instance_id or ""),
        ("HOST", 15, lambda member: member.client_host),
        ("CLIENT-ID", 15, lambda member: member.client_id),
        ("#PARTITIONS", 15, lambda member: str(len(assigned_to(member)))),
        ("CURRENT-EPOCH", 15, lambda member: NONE),
        ("CURRENT-ASSIGNMENT", 20, assignment_text),
        ("TARGET-EPOCH", 15, lambda member: NONE),
        ("TARGET-ASSIGNMENT", 20, lambda member: NONE),
    ]
    columns = columns[: 10 if verbose else 6]
    if not any(member.instance_id for member in group.members):
        del columns[2]
    rows = [[title for title, _, _ in columns], *([text(one) for _, _, text in columns] for one in group.members)]
    widths = [max(least, *(len(row[index]) for row in rows)) for index, (_, least, _) in enumerate(columns)]
    print()
    for row in rows:
        line = " ".join(f"{printable(text):<{width}}" for text, width in zip(row, widths, strict=True))
        print(line if verbose else f"{line} ")


def assignment_text(member: GroupMember) -> str:
    """Return the assigned partitions as text."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in assigned_to(member):
        by_topic.setdefault(topic, []).append(partition)
    texts = (f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in sorted(by_topic.items()))
    return ";".join(texts) or NONE


async def print_state(name: str, group: GroupView, cluster: Cluster, *, verbose: bool) -> None:
    print_remark(group)
    found = await coordinator_of(cluster, name)
    coordinator = f"{found.host}:{found.port}  ({found.id})"
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    row = [name, coordinator, group.protocol or NONE, group.state, str(len(group.members))]
    widths = [max(15, len(name)), max(25, len(coordinator)), 20, 20, 0]
    if verbose:
        header[4:4], row[4:4], widths[4:4] = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"], [NONE, NONE], [15, 25]
    print_table([header, row], widths)


async def delete(found: Found, cluster: Cluster) -> int:
    outcomes = await admin.delete_groups(cluster, await named(found, cluster))
    deleted = [name for name, error in outcomes.items() if error is None]
    if len(deleted) == len(outcomes):
        print(f"Deletion of requested consumer groups ({quoted(deleted)}) was successful.")
        return 0
    print_error("Deletion of some consumer groups failed:")
    for name, error in outcomes.items():
        if error is not None:
            print(f"* Group '{name}' could not be deleted due to: {plain(error).full}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {quoted(deleted)}")
    return 0


def quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{printable(name)}'" for name in names)


def plain(error: KafkaError) -> ScriptError:
    """Return the error with Kafka's text for its code."""
    return failure_of(KafkaError(error.code, None))


async def delete_offsets(found: Found, cluster: Cluster) -> int:
    group, words = found.one("group"), found.all("topic")
    partitions, missing = await partitions_of(found, words, cluster)
    outcomes: dict[TopicPartition, KafkaError | None] = dict(missing)
    overall: KafkaError | None = None
    try:
        outcomes |= await admin.delete_group_offsets(cluster, group, partitions)
    except KafkaError as error:
        overall = error
        outcomes |= dict.fromkeys(partitions, error)
    report_deletion(group, overall, outcomes)
    rows = [("TOPIC", "PARTITION", "STATUS")]
    for (topic, partition), outcome in sorted(outcomes.items(), key=lambda one: f"{one[0][0]}{one[0][1]}"):
        status = f"Error: {plain(outcome).full}" if outcome else "Successful"
        rows.append((topic, str(partition) if partition >= 0 else NONE, status))
    print_table(rows, [max(15, *(len(topic) for topic, _ in outcomes)), 10, 15])
    return 0


def report_deletion(
    group: str, overall: KafkaError | None, outcomes: Mapping[TopicPartition, KafkaError | None]
) -> None:
    """Print the result of the deletion as a whole."""
    if overall is not None:
        print_error(plain(overall).message)
    elif any(outcomes.values()):
        print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"Request succeeded for deleting offsets from group {group}.")
