"""`milena group`: list, describe and delete consumer groups, and reset their offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.offsets import LATEST, find_offset
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, TopicPartition, explain, run_one_of
from milena.commands.group_offsets import RESET, reset
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from milena.protocol.schemas.undecodable import DecodeError

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
    """A group for JSON."""
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
    """Return the assigned partitions; None if the protocol type is not ``consumer``."""
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
