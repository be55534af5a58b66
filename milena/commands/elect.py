"""`milena elect`: elect leaders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from milena.client.cluster import Cluster
from milena.client.replicas import Outcomes, elect_leaders
from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, await_controller, outcome_of, partitions_named, print_outcomes, run
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition

NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED

ELECT = CommandLine(
    "elect",
    "Elect the preferred replica of each partition, which is its first replica.",
    [
        BOOTSTRAP,
        JSON,
        Option("--unclean", "elect any replica for partitions without a leader; records that it lacks are lost"),
        Option("--all", "all partitions of the cluster"),
    ],
    [Positional("PARTITION", "topics, or partitions as TOPIC:PARTITION", many=True)],
    ["milena elect orders", "milena elect --all", "milena elect --unclean orders:3"],
)


def main(arguments: Sequence[str]) -> int:
    values = ELECT.parse(arguments)
    if values.help:
        say(ELECT.help())
        return 0
    if bool(values.partition) == values.all:
        raise UsageError("milena elect needs partitions, or --all")
    return run(values.bootstrap_server, partial(elect, values))


async def elect(values: Values, cluster: Cluster) -> int:
    """Elect leaders. Partitions that need no election are printed, but are not errors."""
    named = None if values.all else await partitions_named(cluster, values.partition)
    await await_controller(cluster)
    outcomes: Outcomes = dict(sorted((await elect_leaders(cluster, named, unclean=values.unclean)).items()))
    if values.json:
        show_json([election_of(partition, error) for partition, error in outcomes.items()])
        return 1 if any(error and error.code is not NOT_NEEDED for error in outcomes.values()) else 0
    at_rest = [one for one, error in outcomes.items() if error and error.code is NOT_NEEDED]
    for topic, number in at_rest:
        why = "there is a leader" if values.unclean else "the preferred replica leads"
        say(f"{topic}-{number}: no election needed, {why}")
        del outcomes[topic, number]
    if not outcomes and not at_rest:
        say("no election needed")

    def elected(_: TopicPartition) -> str:
        return "leader elected" if values.unclean else "the preferred replica leads now"

    return print_outcomes(outcomes, elected, as_json=False)


def election_of(partition: TopicPartition, error: KafkaError | None) -> dict[str, object]:
    """Return the result of a partition for JSON. An election that was not needed is not an error."""
    needed = error is None or error.code is not NOT_NEEDED
    return outcome_of(partition, error if needed else None) | {"elected": error is None}
