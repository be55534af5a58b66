"""``kafka-log-dirs``: sizes of replicas in log directories (Kafka's LogDirsCommand)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Final

from milena.client.cluster import Cluster
from milena.client.replicas import LogDirView, describe_log_dirs
from milena.runtime.numbers import whole
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, kind_of
from milena.scripts.common.options import Found, Option, Parser

PARSER: Final = Parser(
    "This tool helps to query log directory usage on the specified brokers.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("describe", "REQUIRED: Describe log directories."),
        Option("topic-list", "Topics, separated by commas; all by default.", "topics"),
        Option("broker-list", "Ids of brokers, separated by commas; all by default.", "brokers"),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    found.require(SERVER, "describe")
    return run(client_of(found, client_id="log-dirs-tool"), partial(describe, found), "listNodes")


async def describe(found: Found, cluster: Cluster) -> int:
    topics = {*filter(None, found.one("topic-list", "").split(","))}
    existing = sorted((await cluster.metadata([])).brokers)
    brokers = brokers_of(found.one("broker-list", "")) or existing
    if missing := [broker for broker in brokers if broker not in existing]:
        raise ScriptError(
            f"ERROR: The given brokers do not exist from --broker-list: {joined(missing)}. Current existent brokers: "
            f"{joined(existing)}"
        )
    print("Querying brokers for log directories information")
    described = [
        {"broker": broker, "logDirs": [directory_of(one, topics) for one in await describe_log_dirs(cluster, broker)]}
        for broker in brokers
    ]
    print(f"Received log directory information from brokers {joined(brokers)}")
    print(json.dumps({"brokers": described, "version": 1}, separators=(",", ":")))
    return 0


def brokers_of(text: str) -> list[int]:
    """Parse --broker-list. Raises ScriptError."""
    numbers = [whole(word) for word in text.split(",") if word]
    if None in numbers:
        raise ScriptError(f'For input string: "{text}"', "java.lang.NumberFormatException")
    return [number for number in dict.fromkeys(numbers) if number is not None]


def directory_of(directory: LogDirView, topics: set[str]) -> dict[str, object]:
    """Return a log directory for JSON."""
    partitions = [
        {"partition": f"{topic}-{number}", "size": one.size, "offsetLag": one.lag, "isFuture": one.future}
        for (topic, number), one in directory.replicas.items()
        if not topics or topic in topics
    ]
    error = None if directory.error is None else kind_of(directory.error.code)
    return {"partitions": partitions, "error": error, "logDir": directory.path}


def joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
