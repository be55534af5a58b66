"""`milena group`: list and describe consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from milena.command_line.options import CommandLine, Positional, Values
from milena.command_line.table import say
from milena.commands.client import BOOTSTRAP, run_one_of
from milena.node.client import admin
from milena.node.client.cluster import Cluster
from milena.node.client.offsets import LATEST, find_offset
from milena.protocol.errors import KafkaError

LIST = CommandLine("group list", "List groups with their states.", [BOOTSTRAP])
DESCRIBE = CommandLine(
    "group describe",
    "Show members, committed offsets and how far the group is behind.",
    [BOOTSTRAP],
    [Positional("GROUP", "the group's name")],
    ["milena group describe billing"],
)


def main(arguments: Sequence[str]) -> int:
    return run_one_of("group", {"list": (LIST, list_groups), "describe": (DESCRIBE, describe)}, arguments)


async def list_groups(values: Values, cluster: Cluster) -> int:
    for name, state in sorted((await admin.list_groups(cluster)).items()):
        say(f"{name:<40}{state}")
    return 0


async def describe(values: Values, cluster: Cluster) -> int:
    group = await admin.describe_group(cluster, values.group)
    say(f"{group.group}  {group.state}  {group.protocol or '-'}  {len(group.members)} members")
    for member in group.members:
        say(f"  {member.member_id}  {member.client_id}  {member.client_host}")
    offsets = await admin.group_offsets(cluster, values.group)
    if offsets:
        say(f"  {'topic':<32}{'partition':>10}{'committed':>12}{'end':>12}{'behind':>10}")
    for (topic, partition), committed in sorted(offsets.items()):
        end = await end_of(cluster, topic, partition)
        shown = ("-", "-") if end is None else (str(end), str(end - committed))
        say(f"  {topic:<32}{partition:>10}{committed:>12}{shown[0]:>12}{shown[1]:>10}")
    return 0


async def end_of(cluster: Cluster, topic: str, partition: int) -> int | None:
    """The end of a partition; None where it cannot be asked, as after the topic's deletion."""
    try:
        return (await find_offset(cluster, topic, partition, LATEST)).offset
    except KafkaError:
        return None
