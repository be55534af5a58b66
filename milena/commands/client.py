"""The common parts of the client commands: options, connecting to a cluster, and error messages."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from milena.client.cluster import Cluster
from milena.command_line.bootstrap import VARIABLE, parse_addresses
from milena.command_line.errors import UsageError, UserError, reason_of
from milena.command_line.options import CommandLine, Option, Values, chosen
from milena.command_line.table import say, show_json
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime

DEFAULT_BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
"""The bootstrap servers of a `milena up` with default options."""
BOOTSTRAP = Option(
    "--bootstrap-server",
    f"bootstrap servers, or {VARIABLE} in the environment",
    "HOST:PORT,...",
    default=os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP,
    short="-b",
)

CONTROLLER_WAIT = 2.0
"""Seconds that commands wait for the controller before a change."""
METADATA_PARTITION = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]

JSON = Option("--json", "print JSON")

Body = Callable[[Cluster], Coroutine[object, object, int]]
Commands: TypeAlias = Mapping[str, tuple[CommandLine, Callable[[Values, Cluster], Coroutine[object, object, int]]]]


def run_one_of(name: str, commands: Commands, arguments: Sequence[str]) -> int:
    """Run the subcommand that ``arguments`` name, as in `milena NAME COMMAND ...`, and return the exit code. Raises
    UserError."""
    meant = chosen(name, commands, arguments)
    if meant is None:
        return 0
    body, values = meant
    return run(values.bootstrap_server, partial(body, values))


def run(bootstrap: str, body: Body) -> int:
    """Run a command's body with a cluster client. Raises UserError if the cluster does not answer or returns an
    error."""
    addresses = parse_addresses(bootstrap)
    try:
        return asyncio.run(_run(addresses, body))
    except KafkaError as error:
        raise UserError(explain(error)) from None
    except struct.error as error:
        raise UserError(f"a number is outside of the range of its type: {error}") from None
    except BrokenPipeError:
        raise
    except (ChannelError, OSError) as error:
        raise UserError(reason_of(error)) from None


async def _run(addresses: list[tuple[str, int]], body: Body) -> int:
    runtime = real_runtime()
    cluster = Cluster(runtime, addresses, "milena")
    try:
        return await body(cluster)
    finally:
        cluster.close()
        assert isinstance(runtime.disk, RealDisk)
        runtime.disk.close()


def explain(error: KafkaError) -> str:
    """Return the error's name and its message."""
    said = error.message
    return f"{said} ({error.code.name})" if said else error.code.name


async def await_controller(cluster: Cluster) -> None:
    """Return if the active controller answers. Raises UserError after ``CONTROLLER_WAIT`` seconds without an answer: a
    broker would wait much longer for the controller before it answers a change."""
    try:
        await cluster.ask_any(ApiKey.DESCRIBE_QUORUM, timeout=CONTROLLER_WAIT, topics=METADATA_PARTITION)
    except KafkaError as error:
        if error.code is ErrorCode.REQUEST_TIMED_OUT:
            raise UserError(
                f"no controller has answered within {CONTROLLER_WAIT:g} s, so nothing was changed"
            ) from None


async def partitions_named(cluster: Cluster, words: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions that ``words`` name: ``TOPIC`` (all its partitions) or ``TOPIC:PARTITION``. Raises
    UserError if there is no such topic."""
    wanted = [split_partition(word) for word in words]
    view = await cluster.metadata([*dict.fromkeys(topic for topic, _ in wanted)])
    found: dict[TopicPartition, None] = {}
    for topic, number in wanted:
        known = view.topics[topic]
        if known.error:
            raise UserError(f"topic {topic}: {ErrorCode(known.error).name}")
        found.update(dict.fromkeys((topic, one) for one in (known.partitions if number is None else [number])))
    return list(found)


def split_partition(word: str) -> tuple[str, int | None]:
    """Parse ``TOPIC:PARTITION`` or ``TOPIC``; the partition of the latter is None. Raises UsageError."""
    topic, colon, number = word.partition(":")
    if not topic or (colon and not number.isdecimal()):
        raise UsageError(f"{word}: write it as TOPIC or TOPIC:PARTITION")
    return topic, int(number) if colon else None


def outcome_of(partition: TopicPartition, error: KafkaError | None) -> dict[str, object]:
    """Return a partition's result for JSON. ``error`` is Kafka's name of the error, or null."""
    named: dict[str, object] = {"topic": partition[0], "partition": partition[1]}
    return named | {"error": error.code.name if error else None, "message": error.message if error else None}


def print_outcomes(
    outcomes: Mapping[TopicPartition, KafkaError | None], done: Callable[[TopicPartition], str], *, as_json: bool
) -> int:
    """Print a line for each partition that succeeded; ``done`` returns its text. Raises UserError with the errors of
    the other partitions.

    ``as_json``: print one document with all results; the exit code says whether all succeeded.
    """
    if as_json:
        show_json([outcome_of(partition, error) for partition, error in outcomes.items()])
        return 1 if any(error is not None for error in outcomes.values()) else 0
    for partition, error in outcomes.items():
        if error is None:
            say(f"{partition[0]}-{partition[1]}: {done(partition)}")
    wrong = [f"{topic}-{number}: {explain(error)}" for (topic, number), error in outcomes.items() if error is not None]
    if wrong:
        raise UserError("; ".join(wrong))
    return 0
