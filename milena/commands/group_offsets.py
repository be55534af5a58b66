"""`milena group reset-offsets`: set the committed offsets of a group without members."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.membership import Membership
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, TopicPartition, explain, partitions_named
from milena.protocol.errors import ErrorCode, KafkaError

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
"""The states of a group in which its offsets may be set."""


class Reset(NamedTuple):
    """A partition's committed offset before (None: none) and after."""

    before: int | None
    after: int


async def reset(values: Values, cluster: Cluster) -> int:
    """Raises UsageError, UserError, KafkaError."""
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
    """Raises UsageError for contradictory options."""
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
