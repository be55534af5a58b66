"""``kafka-get-offsets``: offsets of partitions (Kafka's GetOffsetShell)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from milena.client import offsets
from milena.client.cluster import Cluster
from milena.client.offsets import find_offset
from milena.protocol.errors import KafkaError
from milena.runtime.numbers import whole
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.options import Found, Option, Parser
from milena.scripts.topics import pattern_of

TIMES: Final = {
    "latest": offsets.LATEST,
    "earliest": offsets.EARLIEST,
    "max-timestamp": offsets.MAX_TIMESTAMP,
    "earliest-local": offsets.EARLIEST_LOCAL,
    "latest-tiered": offsets.LATEST_TIERED,
    "earliest-pending-upload": offsets.EARLIEST_PENDING_UPLOAD,
}
RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
"""One pattern of --topic-partitions: a topic, and a partition or a range of them."""
PARSER: Final = Parser(
    "An interactive shell for getting topic-partition offsets.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("topic", "The topic, as a regular expression; all by default.", "topic"),
        Option("partitions", "Partitions, separated by commas; all by default.", "partitions"),
        Option("topic-partitions", "Patterns such as topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3.", "patterns"),
        Option("time", f"A time in ms, or one of {', '.join(TIMES)} (-1 to -6).", "time"),
        Option("exclude-internal-topics", "Leave out internal topics."),
    ],
)

Wanted = Callable[[str, int], bool]


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    found.require(SERVER)
    try:
        return run(client_of(found, client_id="GetOffsetShell"), partial(show, time_of(found), filter_of(found), found))
    except ScriptError as error:
        if type(error) is not ScriptError:
            raise
        print(f"Error occurred: {error.message}", file=sys.stderr)
        return 1


def time_of(found: Found) -> int:
    """Return the time to look for. Raises ScriptError."""
    text = found.one("time", "latest")
    time = TIMES.get(text, whole(text))
    if time is None:
        raise ScriptError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or "
            "earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"
        )
    return time


def filter_of(found: Found) -> Wanted:
    """Return whether a partition is wanted. Raises ScriptError."""
    if not found.has("topic-partitions"):
        pattern = pattern_of(found.one("topic"))
        numbers = partitions_of(found.one("partitions", ""))
        return lambda topic, number: bool(pattern.fullmatch(topic)) and (not numbers or number in numbers)
    if found.has("topic", "partitions"):
        raise ScriptError("--topic-partitions cannot be used with --topic or --partitions")
    rules = [rule_of(text) for text in found.one("topic-partitions").split(",")]
    return lambda topic, number: any(rule(topic, number) for rule in rules)


def partitions_of(text: str) -> set[int]:
    """Parse --partitions. Raises ScriptError."""
    try:
        return {int(word) for word in text.split(",")} if text else set()
    except ValueError:
        raise ScriptError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {text}"
        ) from None


def rule_of(text: str) -> Wanted:
    """Return the filter of one pattern. Raises ScriptError."""
    match = RULE.fullmatch(text)
    if match is None:
        raise ScriptError(f"Invalid rule specification: {text}")
    pattern = pattern_of(match[1] or None)
    if match[2]:
        first, end = int(match[2]), int(match[2]) + 1
    else:
        first, end = int(match[3] or 0), int(match[4] or 2**31 - 1)
    return lambda topic, number: bool(pattern.fullmatch(topic)) and first <= number < end


async def show(time: int, wanted: Wanted, found: Found, cluster: Cluster) -> int:
    view = await cluster.metadata()
    partitions = [
        (name, number)
        for name, topic in view.topics.items()
        if not (topic.internal and found.has("exclude-internal-topics"))
        for number in topic.partitions
        if wanted(name, number)
    ]
    if not partitions:
        raise ScriptError("Could not match any topic-partitions with the specified filters")
    for topic, number in sorted(partitions, key=lambda one: f"{one[0]}-{one[1]}"):
        try:
            offset = (await find_offset(cluster, topic, number, time)).offset
        except KafkaError as error:
            text = failure_of(error).full
            print(f"Skip getting offsets for topic-partition {topic}-{number} due to error: {text}", file=sys.stderr)
        else:
            if offset >= 0:
                print(f"{topic}:{number}:{offset}")
    return 0
