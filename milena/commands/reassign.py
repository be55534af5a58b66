"""`milena reassign`: move replicas to other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from milena.client.cluster import Cluster
from milena.client.replicas import Reassignment, alter_reassignments, list_reassignments
from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import (
    BOOTSTRAP,
    JSON,
    await_controller,
    partitions_named,
    print_outcomes,
    run_one_of,
    split_partition,
)
from milena.protocol.types import TopicPartition

START = CommandLine(
    "reassign start",
    "Assign new replicas to partitions, the preferred leader first. The partitions stay available.",
    [BOOTSTRAP, JSON],
    [Positional("TARGET", "as TOPIC:PARTITION=BROKER,BROKER,...", many=True)],
    ["milena reassign start orders:0=2,3 orders:1=3,1"],
)
LIST = CommandLine(
    "reassign list",
    "List ongoing reassignments: replicas, and which of them are added and removed.",
    [BOOTSTRAP, JSON],
    [Positional("PARTITION", "topics, or partitions as TOPIC:PARTITION; default: all", many=True)],
)
CANCEL = CommandLine(
    "reassign cancel",
    "Cancel reassignments: return to the former replicas where possible.",
    [BOOTSTRAP, JSON, Option("--all", "all ongoing reassignments")],
    [Positional("PARTITION", "topics, or partitions as TOPIC:PARTITION", many=True)],
    ["milena reassign cancel orders:0", "milena reassign cancel --all"],
)


def main(arguments: Sequence[str]) -> int:
    commands = {"start": (START, start), "list": (LIST, list_moves), "cancel": (CANCEL, cancel)}
    return run_one_of("reassign", commands, arguments)


async def start(values: Values, cluster: Cluster) -> int:
    targets = dict(parse_target(word) for word in values.target)
    if not targets:
        raise UsageError("milena reassign start needs TOPIC:PARTITION=BROKER,BROKER,...")
    await await_controller(cluster)
    outcomes = await alter_reassignments(cluster, targets)
    return print_outcomes(outcomes, lambda partition: f"moves to {_joined(targets[partition])}", as_json=values.json)


def parse_target(word: str) -> tuple[TopicPartition, list[int]]:
    """Parse ``TOPIC:PARTITION=BROKER,BROKER``. Raises UsageError."""
    name, _, brokers = word.partition("=")
    numbers = brokers.split(",")
    if ":" not in name or not all(number.isdecimal() for number in numbers):
        raise UsageError(f"{word}: write it as TOPIC:PARTITION=BROKER,BROKER,...")
    topic, partition = split_partition(name)
    assert partition is not None
    return (topic, partition), [int(number) for number in numbers]


async def list_moves(values: Values, cluster: Cluster) -> int:
    named = await partitions_named(cluster, values.partition) if values.partition else None
    await await_controller(cluster)
    moves = await list_reassignments(cluster, named)
    if values.json:
        show_json([reassignment_of(partition, move) for partition, move in sorted(moves.items())])
        return 0
    if not moves:
        say("no ongoing reassignments")
        return 0
    say(f"  {'partition':<32}  {'replicas':<12}  {'adding':<8}  removing")
    for (topic, number), move in sorted(moves.items()):
        replicas, adding, removing = (_joined(ids) or "-" for ids in (move.replicas, move.adding, move.removing))
        say(f"  {f'{topic}-{number}':<32}  {replicas:<12}  {adding:<8}  {removing}")
    return 0


async def cancel(values: Values, cluster: Cluster) -> int:
    if bool(values.partition) == values.all:
        raise UsageError("milena reassign cancel needs partitions, or --all")
    await await_controller(cluster)
    if values.all:
        named = list(await list_reassignments(cluster))
    else:
        named = await partitions_named(cluster, values.partition)
    if not named and not values.json:
        say("no ongoing reassignments")
        return 0
    outcomes = await alter_reassignments(cluster, dict.fromkeys(named)) if named else {}
    return print_outcomes(outcomes, lambda _: "cancelled", as_json=values.json)


def reassignment_of(partition: TopicPartition, move: Reassignment) -> dict[str, object]:
    """Return a reassignment for JSON."""
    topic, number = partition
    return {"topic": topic, "partition": number, **{name: list(ids) for name, ids in asdict(move).items()}}


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
