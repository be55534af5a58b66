"""`milena group`: list, describe and delete consumer groups, and reset their offsets."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.membership import Membership
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, explain, partitions_named, run_one_of
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import TopicPartition

RESET = CommandLine(
    "group reset-offsets",
    "Set the committed offsets of a group without members. Shows the new offsets, and commits them "
    "only with --execute,\n"
    "as kafka-consumer-groups does.",
    [
        BOOTSTRAP,
        JSON,
        Option("--to-earliest", "to the first offset of each partition"),
        Option("--to-latest", "to the end of each partition"),
        Option("--to-offset", "to this offset, or the nearest one that the partition has", "N", convert=int),
        Option("--all-topics", "all partitions with committed offsets of the group"),
        Option("--dry-run", "only show the new offsets, the default"),
        Option("--execute", "commit"),
    ],
    [
        Positional("GROUP", "the group's name"),
        Positional("PARTITION", "topics, or partitions as TOPIC:PARTITION", many=True),
    ],
    [
        "milena group reset-offsets billing orders --to-earliest",
        "milena group reset-offsets billing orders:0 --to-offset 1500 --execute",
    ],
)
WITHOUT_MEMBERS = ("Empty", "Dead")
"""The group states in which committed offsets may be set."""


class Reset(NamedTuple):
    """The committed offset of a partition before the reset (None if there is none) and after it."""

    before: int | None
    after: int


async def reset(values: Values, cluster: Cluster) -> int:
    """Set the committed offsets of a group, or show the new ones without --execute. Raises UsageError, UserError,
    KafkaError."""
    check(values)
    group = values.group
    if (state := await state_of(cluster, group)) not in WITHOUT_MEMBERS:
        raise UserError(f"group {group} is {state}: stop its members first")
    committed = await admin.group_offsets(cluster, group)
    partitions = sorted(committed) if values.all_topics else await partitions_named(cluster, values.partition)
    resets = {one: Reset(committed.get(one), await target_of(cluster, one, values)) for one in partitions}
    if values.execute and resets:
        try:
            await Membership(cluster, group, []).commit({one: reset.after for one, reset in resets.items()})
        except KafkaError as error:
            raise UserError(f"group {group}: {explain(error)}") from None
    print_resets(resets, values)
    return 0


def check(values: Values) -> None:
    """Check the options. Raises UsageError for missing or contradictory ones."""
    targets = [values.to_earliest, values.to_latest, values.to_offset is not None]
    if targets.count(True) != 1:
        raise UsageError("milena group reset-offsets needs one of --to-earliest, --to-latest, --to-offset")
    if bool(values.partition) == values.all_topics:
        raise UsageError("milena group reset-offsets needs topics or partitions, or --all-topics")
    if values.execute and values.dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    if (values.to_offset or 0) < 0:
        raise UsageError(f"--to-offset {values.to_offset}: not a number of at least 0")


async def state_of(cluster: Cluster, group: str) -> str:
    """Return the group's state. A group that does not exist counts as Empty."""
    try:
        return (await admin.describe_group(cluster, group)).state
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return WITHOUT_MEMBERS[1]
        raise


async def target_of(cluster: Cluster, partition: TopicPartition, values: Values) -> int:
    """Return the new offset. As in Kafka's tool, an offset outside of the log becomes the nearest one, with a
    warning."""
    if values.to_latest:
        return (await find_offset(cluster, *partition, LATEST)).offset
    start = (await find_offset(cluster, *partition, EARLIEST)).offset
    if values.to_earliest:
        return start
    end = (await find_offset(cluster, *partition, LATEST)).offset
    offset: int = min(max(values.to_offset, start), end)
    if offset != values.to_offset:
        named = f"{partition[0]}-{partition[1]}"
        print(f"warning: {named} begins at {start} and ends before {end}: {offset}", file=sys.stderr)
    return offset


def print_resets(resets: Mapping[TopicPartition, Reset], values: Values) -> None:
    if values.json:
        rows = [
            {"topic": topic, "partition": number, "committed": one.before, "new_offset": one.after}
            for (topic, number), one in resets.items()
        ]
        show_json({"group": values.group, "executed": values.execute, "offsets": rows})
        return
    say(f"  {'topic':<32}{'partition':>10}{'committed':>12}{'new offset':>12}")
    for (topic, number), one in resets.items():
        before = "-" if one.before is None else str(one.before)
        say(f"  {topic:<32}{number:>10}{before:>12}{one.after:>12}")
    if not values.execute:
        say("nothing is committed without --execute")


LIST = CommandLine("group list", "List groups with their states.", [BOOTSTRAP, JSON])
DESCRIBE = CommandLine(
    "group describe",
    "Show members, committed offsets and the group's lag.",
    [BOOTSTRAP, JSON],
    [Positional("GROUP", "the group's name")],
    ["milena group describe billing"],
)
DELETE = CommandLine(
    "group delete",
    "Delete groups without members, including their committed offsets.",
    [BOOTSTRAP, JSON],
    [Positional("GROUP", "names of groups", many=True)],
    ["milena group delete billing"],
)


def main(arguments: Sequence[str]) -> int:
    commands = {
        "list": (LIST, list_groups),
        "describe": (DESCRIBE, describe),
        "delete": (DELETE, delete),
        "reset-offsets": (RESET, reset),
    }
    return run_one_of("group", commands, arguments)


async def list_groups(values: Values, cluster: Cluster) -> int:
    groups = sorted((await admin.list_groups(cluster)).items())
    if values.json:
        show_json([{"group": name, "state": state} for name, state in groups])
        return 0
    for name, state in groups:
        say(f"{name:<40}{state}")
    return 0


async def describe(values: Values, cluster: Cluster) -> int:
    group = await admin.describe_group(cluster, values.group)
    offsets = dict(sorted((await admin.group_offsets(cluster, values.group)).items()))
    ends = {partition: await end_of(cluster, *partition) for partition in offsets}
    if values.json:
        show_json(group_of(group, offsets, ends))
        return 0
    say(f"{group.group}  {group.state}  {group.protocol or '-'}  {len(group.members)} members")
    for member in group.members:
        say(f"  {member.member_id}  {member.client_id}  {member.client_host}")
    if offsets:
        say(f"  {'topic':<32}{'partition':>10}{'committed':>12}{'end':>12}{'lag':>10}")
    for (topic, partition), committed in offsets.items():
        end = ends[topic, partition]
        shown = ("-", "-") if end is None else (str(end), str(end - committed))
        say(f"  {topic:<32}{partition:>10}{committed:>12}{shown[0]:>12}{shown[1]:>10}")
    return 0


def group_of(
    group: admin.GroupView, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int | None]
) -> dict[str, object]:
    """Return a group for JSON. ``offsets``: its committed offsets; ``ends``: the log end offsets, None if not
    available."""
    return {
        "group": group.group,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "partitions": assigned_to(member) if group.protocol_type == PROTOCOL_TYPE else None,
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": topic,
                "partition": partition,
                "committed": committed,
                "log_end_offset": end,
                "lag": None if end is None else end - committed,
            }
            for (topic, partition), committed in offsets.items()
            for end in (ends[topic, partition],)
        ],
    }


def assigned_to(member: admin.GroupMember) -> list[dict[str, object]] | None:
    """Return the partitions assigned to a member; None if the assignment is not that of a consumer."""
    try:
        assignment = decode_assignment(member.assignment)
    except DecodeError:
        return None
    return [
        {"topic": one.topic, "partition": number} for one in assignment.assigned_partitions for number in one.partitions
    ]


async def end_of(cluster: Cluster, topic: str, partition: int) -> int | None:
    """Return the end offset of a partition; None if it is not available, as after the topic's deletion."""
    try:
        return (await find_offset(cluster, topic, partition, LATEST)).offset
    except KafkaError:
        return None


async def delete(values: Values, cluster: Cluster) -> int:
    if not values.group:
        raise UsageError("milena group delete needs the names of groups")
    outcomes = await admin.delete_groups(cluster, values.group)
    if values.json:
        show_json([{"group": name, "error": error.code.name if error else None} for name, error in outcomes.items()])
        return 1 if any(outcomes.values()) else 0
    for name, error in outcomes.items():
        if error is None:
            say(f"{name}: deleted")
    if wrong := [f"group {name}: {refusal(error)}" for name, error in outcomes.items() if error is not None]:
        raise UserError("; ".join(wrong))
    return 0


def refusal(error: KafkaError) -> str:
    if error.code is ErrorCode.NON_EMPTY_GROUP:
        return f"the group has members; stop them first ({error.code.name})"
    return explain(error)
