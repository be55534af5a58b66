"""``kafka-leader-election``: elects leaders (Kafka's LeaderElectionCommand)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from milena.client.cluster import Cluster
from milena.client.replicas import elect_leaders
from milena.protocol.errors import ErrorCode
from milena.protocol.types import TopicPartition
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, properties_of, run
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.json_files import partitions_in, read_json
from milena.scripts.common.options import Found, Option, Parser, integer

FILE: Final = "path-to-json-file"
SCOPES: Final = ("topic", "all-topic-partitions", FILE)
FAILED: Final = "org.apache.kafka.tools.AdminCommandFailedException"
PARSER: Final = Parser(
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
    "preferred replicas and unclean replicas.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("admin.config", "DEPRECATED: use --command-config.", "file"),
        Option("election-type", "REQUIRED: preferred or unclean.", "type"),
        Option("topic", "A topic, with --partition.", "topic"),
        Option("partition", "A partition of --topic.", "partition", convert=integer),
        Option("all-topic-partitions", "All partitions."),
        Option(FILE, 'A file such as {"partitions": [{"topic": "foo", "partition": 1}]}.', "file"),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    check(found)
    kind = found.one("election-type").upper()
    if kind not in ("PREFERRED", "UNCLEAN"):
        raise ScriptError(f"Cannot parse argument '{found.one('election-type')}' of option election-type")
    properties = properties_of(found.one("admin.config")) if found.has("admin.config") else None
    return run(client_of(found, properties), partial(elect, kind, partitions_of(found)), "electLeaders")


def check(found: Found) -> None:
    """Check the options. Raises ScriptError."""
    if missing := [name for name in (SERVER, "election-type") if not found.has(name)]:
        raise ScriptError(f"Missing required option(s): {', '.join(missing)}", FAILED)
    if sum(found.has(scope) for scope in SCOPES) != 1:
        raise ScriptError(f"One and only one of the following options is required: {', '.join(SCOPES)}", FAILED)
    if found.has("topic") and not found.has("partition"):
        raise ScriptError("Missing required option(s): partition", FAILED)
    if found.has("partition") and not found.has("topic"):
        raise ScriptError("Option partition is only allowed if topic is used", FAILED)


def partitions_of(found: Found) -> list[TopicPartition] | None:
    """Return the partitions, None for all. Raises ScriptError."""
    if found.has("topic"):
        return [(found.one("topic"), found.one("partition"))]
    if not found.has(FILE):
        return None
    content = read_json(found.one(FILE), "Replica election data is empty")
    if "partitions" not in content:
        raise ScriptError('Replica election data is missing "partitions" field')
    partitions = [partition for partition, _ in partitions_in(content)]
    if len(set(partitions)) < len(partitions):
        raise ScriptError(f"Replica election data contains duplicate partitions: {text_of(partitions)}")
    return partitions


def text_of(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in partitions)


async def elect(kind: str, partitions: Sequence[TopicPartition] | None, cluster: Cluster) -> int:
    outcomes = await elect_leaders(cluster, partitions, unclean=kind == "UNCLEAN")
    elected = [one for one, error in outcomes.items() if error is None]
    at_rest = [one for one, error in outcomes.items() if error and error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {one: error for one, error in outcomes.items() if error and one not in at_rest}
    if elected:
        print(f"Successfully completed leader election ({kind}) for partitions {text_of(elected)}")
    if at_rest:
        print(f"Valid replica already elected for partitions {text_of(at_rest)}")
    for (topic, index), error in failed.items():
        text = failure_of(error).full
        print(f"Error completing leader election ({kind}) for partition: {topic}-{index}: {text}")
    if failed:
        raise ScriptError(f"{len(failed)} replica(s) could not be elected", FAILED)
    return 0
