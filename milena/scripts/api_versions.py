"""``kafka-broker-api-versions``: the versions that each broker serves (Kafka's BrokerApiVersionsCommand).

It is often a health check: unlike the other scripts it fails at once if no broker answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from milena.client import replicas
from milena.client.cluster import Cluster
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.schemas.registry import REGISTRY, Role, VersionRange
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, text_of
from milena.scripts.common.options import Option, Parser

ANSWER_WITHIN: Final = 5.0
"""Seconds for each request, Kafka's default of this tool."""
PARSER: Final = Parser(
    "This tool helps to retrieve broker version information.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("bootstrap-controller", missing="ask a broker", value="controllers"),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    found.require(SERVER)
    client = client_of(found)
    client = replace(client, waits=False, request_timeout=min(client.request_timeout, ANSWER_WITHIN))
    try:
        return run(client, show_all)
    except ScriptError as error:
        servers = ", ".join(
            f"{host}:{port} (id: -{index} rack: null)" for index, (host, port) in enumerate(client.addresses, 1)
        )
        raise ScriptError(f"Request METADATA failed on brokers [{servers}]\nCaused by: {error.full}") from None


async def show_all(cluster: Cluster) -> int:
    while not (brokers := (await cluster.metadata([])).brokers):
        await cluster.pause(0)
    for broker in brokers.values():
        node = f"{broker.host}:{broker.port} (id: {broker.id} rack: {broker.rack or 'null'} isFenced: false)"
        try:
            answer = await replicas.api_versions(cluster.to(broker.host, broker.port))
        except (KafkaError, ChannelError) as error:
            print(f"{node} -> ERROR: {text_of(error) if isinstance(error, KafkaError) else error}")
        else:
            print(f"{node} -> {text_of_versions(answer.keys)}")
    return 0


def text_of_versions(served: Mapping[int, VersionRange]) -> str:
    """Return the ranges, each with the version that this client would use."""
    ours = {int(key): entry.kafka for key, entry in REGISTRY.items()}
    expected = {int(key) for key, entry in REGISTRY.items() if Role.BROKER in entry.listeners}
    lines = []
    for key in sorted({*served, *expected}):
        name = label(key)
        theirs = served.get(key)
        if theirs is None:
            lines.append(f"{name}({key}): UNSUPPORTED")
            continue
        versions = str(theirs.min) if theirs.min == theirs.max else f"{theirs.min} to {theirs.max}"
        own = ours.get(key)
        if own is None:
            lines.append(f"UNKNOWN({key}): {versions}")
        elif max(theirs.min, own.min) > min(theirs.max, own.max):
            lines.append(f"{name}({key}): {versions} [unusable: node too {'old' if theirs.max < own.min else 'new'}]")
        else:
            lines.append(f"{name}({key}): {versions} [usable: {min(theirs.max, own.max)}]")
    return "(\n\t" + ",\n\t".join(lines) + "\n)"


def label(key: int) -> str:
    """Return Kafka's name of an API, such as ``InitProducerId``."""
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return "UNKNOWN"
