"""The connection of a script to the cluster: options, properties files, waiting for the brokers.

As in Kafka, a script waits up to a minute (``default.api.timeout.ms``) until a node answers: compose files use that to
wait for their broker.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Final

from milena.client.cluster import Cluster
from milena.config.sources import from_properties
from milena.config.values import ConfigError
from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.errors import KafkaError
from milena.runtime.files import RealDisk
from milena.runtime.numbers import whole
from milena.runtime.process import real_runtime
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.options import Found, Option

SERVER: Final = "bootstrap-server"
CONTROLLER: Final = "bootstrap-controller"
CONFIG: Final = "command-config"
BOOTSTRAP: Final = Option(SERVER, "REQUIRED: the brokers to connect to, as HOST1:PORT1,HOST2:PORT2.", "servers")
BOOTSTRAP_CONTROLLER: Final = Option(CONTROLLER, "The controllers to connect to, instead of brokers.", "controllers")
COMMAND_CONFIG: Final = Option(CONFIG, "A properties file with settings of the client.", "file")
PAUSE: Final = 0.1
"""Seconds between two attempts to connect."""

Body = Callable[[Cluster], Coroutine[object, object, int]]


@dataclass(frozen=True, slots=True)
class Client:
    """The settings of a script's client. Timeouts are in seconds."""

    addresses: list[tuple[str, int]]
    client_id: str
    timeout: float = 60.0
    request_timeout: float = 30.0
    waits: bool = True
    """Whether it waits for nodes that do not answer yet."""


def client_of(found: Found, properties: Mapping[str, str] | None = None, client_id: str = "adminclient-1") -> Client:
    """Return the client that the options describe; ``properties`` replaces those of --command-config. Raises
    ScriptError."""
    if found.has(SERVER) and found.has(CONTROLLER):
        raise found.wrong("You cannot specify both --bootstrap-controller and --bootstrap-server.")
    if not found.has(SERVER) and not found.has(CONTROLLER):
        raise found.wrong("You must specify either --bootstrap-controller or --bootstrap-server.")
    if properties is None:
        properties = properties_of(found.one(CONFIG)) if found.has(CONFIG) else {}
    check_protocol(properties)
    addresses = parse_addresses(found.one(SERVER if found.has(SERVER) else CONTROLLER))
    client = Client(addresses, properties.get("client.id") or client_id)
    timeout, request_timeout = (
        _milliseconds(properties, key) for key in ("default.api.timeout.ms", "request.timeout.ms")
    )
    if timeout is not None:
        client = replace(client, timeout=timeout)
    return client if request_timeout is None else replace(client, request_timeout=request_timeout)


def properties_of(path: str) -> dict[str, str]:
    """Return the content of a properties file. Raises ScriptError."""
    try:
        with open(path, "rb") as file:
            return {key: setting.value for key, setting in from_properties(file.read(), path).items()}
    except OSError as error:
        raise failure_of(error) from None
    except ConfigError as error:
        raise ScriptError(str(error)) from None


def check_protocol(properties: Mapping[str, str]) -> None:
    """Raise ScriptError if the properties ask for TLS or SASL."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip()
    if protocol.upper() != "PLAINTEXT":
        raise ScriptError(f"security.protocol={protocol} is not supported: only PLAINTEXT is")


def _milliseconds(properties: Mapping[str, str], key: str) -> float | None:
    """Return a property in seconds, None if it is not set. Raises ScriptError."""
    if key not in properties:
        return None
    number = whole(properties[key].strip())
    if number is None or number < 0:
        raise ScriptError(
            f"Invalid value {properties[key]} for configuration {key}: Not a number of type INT",
            "org.apache.kafka.common.config.ConfigException",
        )
    return number / 1000


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Parse ``host:port,...``; names without an address are left out. Raises ScriptError if none is left."""
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, port = part.rpartition("://")[2].rpartition(":")
        number, host = whole(port), name.strip("[]")
        if not host or number is None or not 0 < number < 65536:
            raise ScriptError(
                f"Invalid url in bootstrap.servers: {part}", "org.apache.kafka.common.config.ConfigException"
            )
        try:
            socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
        except OSError:
            warn(f"Couldn't resolve server {part} from bootstrap.servers as DNS resolution failed for {host}")
        else:
            addresses.append((host, number))
    if not addresses:
        raise ScriptError(
            "No resolvable bootstrap urls given in bootstrap.servers", "org.apache.kafka.common.config.ConfigException"
        )
    return addresses


def run(client: Client, body: Body, call: str = "metadata") -> int:
    """Connect, run the body and return its exit code. ``call``: the name of Kafka's first call, for the error message
    if no node answers. Raises ScriptError."""
    try:
        return asyncio.run(_run(client, body, call))
    except BrokenPipeError:
        raise
    except (KafkaError, ChannelError, TimeoutError) as error:
        raise failure_of(error) from None
    except struct.error as error:
        raise ScriptError(f"A number is outside of the range of its type: {error}") from None


async def _run(client: Client, body: Body, call: str) -> int:
    runtime = real_runtime()
    cluster = Cluster(runtime, client.addresses, client.client_id, request_timeout=client.request_timeout)
    try:
        await _wait_for_node(cluster, client, call)
        return await body(cluster)
    finally:
        cluster.close()
        assert isinstance(runtime.disk, RealDisk)
        runtime.disk.close()


async def _wait_for_node(cluster: Cluster, client: Client, call: str) -> Channel:
    """Return a connection. Raises ScriptError if no node has answered within the client's timeout."""
    clock = cluster.runtime.clock
    deadline = clock.monotonic() + client.timeout
    warned = False
    while True:
        try:
            return await cluster.any_channel()
        except ChannelError as error:
            if not client.waits:
                raise
            if not warned:
                warned = True
                warn(f"{error}: waiting for up to {client.timeout:g} s")
        if clock.monotonic() + PAUSE > deadline:
            raise ScriptError(
                f"Timed out waiting for a node assignment. Call: {call}",
                "org.apache.kafka.common.errors.TimeoutException",
            )
        await clock.sleep(PAUSE)


def warn(text: str) -> None:
    """Print a warning to standard error."""
    sys.stdout.flush()
    print(f"WARN {text}", file=sys.stderr, flush=True)
