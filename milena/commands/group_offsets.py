"""`milena group reset-offsets`: a group without members reads on from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, TopicPartition, explain, partitions_named
from milena.node.client import admin
from milena.node.client.cluster import Cluster
from milena.node.client.membership import Membership
from milena.node.client.offsets import EARLIEST, LATEST, find_offset
from milena.protocol.errors import ErrorCode, KafkaError

RESET = CommandLine(
    "group reset-offsets",
    "Set the committed offsets of a group without members. It shows what would be committed, and commits only with\n"
    "--execute, as kafka-consumer-groups does.",
    [
        BOOTSTRAP,
        JSON,
        Option("--to-earliest", "to the first offset of each partition"),
        Option("--to-latest", "to the end of each partition"),
        Option("--to-offset", "to this one, or the nearest that a partition has", "N", convert=int),
        Option("--all-topics", "all partitions that the group has committed offsets of"),
        Option("--dry-run", "show and commit nothing, as without --execute"),
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
"""States of a group whose offsets anybody may set."""


class Reset(NamedTuple):
    """A partition's committed offset before, None for none, and after."""

    before: int | None
    after: int


async def reset(values: Values, cluster: Cluster) -> int:
    """Raises UsageError, UserError, KafkaError."""
    check(values)
    group = values.group
    if (state := await state_of(cluster, group)) not in WITHOUT_MEMBERS:
        raise UserError(f"group {group} is {state}: stop its members first; offsets are reset without any")
    committed = await admin.group_offsets(cluster, group)
    partitions = sorted(committed) if values.all_topics else await partitions_named(cluster, values.partition)
    resets = {one: Reset(committed.get(one), await target_of(cluster, one, values)) for one in partitions}
    if values.execute and resets:
        try:
            await Membership(cluster, group, []).commit({one: reset.after for one, reset in resets.items()})
        except KafkaError as error:
            raise UserError(f"group {group}: {explain(error)}") from None
    tell(resets, values)
    return 0


def check(values: Values) -> None:
    """Raises UsageError for options that contradict each other."""
    targets = [values.to_earliest, values.to_latest, values.to_offset is not None]
    if targets.count(True) != 1:
        raise UsageError("milena group reset-offsets needs one of --to-earliest, --to-latest, --to-offset")
    if bool(values.partition) == values.all_topics:
        raise UsageError("milena group reset-offsets needs topics or partitions, or --all-topics")
    if values.execute and values.dry_run:
        raise UsageError("--execute goes without --dry-run")
    if (values.to_offset or 0) < 0:
        raise UsageError(f"--to-offset {values.to_offset}: not a number from 0 on")


async def state_of(cluster: Cluster, group: str) -> str:
    """A group that does not exist is one without members."""
    try:
        return (await admin.describe_group(cluster, group)).state
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return WITHOUT_MEMBERS[1]
        raise


async def target_of(cluster: Cluster, partition: TopicPartition, values: Values) -> int:
    """As in Kafka's tool an offset that a partition does not have becomes the nearest one, with a warning."""
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


def tell(resets: Mapping[TopicPartition, Reset], values: Values) -> None:
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
