"""What the client commands share: their options, a cluster to talk to, and errors in one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from milena.errors import UsageError, UserError, reason_of
from milena.options import Option
from node.client.cluster import Cluster
from node.outgoing import ChannelError
from protocol.errors import KafkaError
from runtime.files import RealDisk
from runtime.process import real_runtime

BOOTSTRAP = Option("--bootstrap-server", "brokers to begin with", "HOST:PORT,...", default="127.0.0.1:9092", short="-b")

Body = Callable[[Cluster], Coroutine[Any, Any, int]]


def run(bootstrap: str, body: Body) -> int:
    """Run a command's body against a cluster. Raises UserError where the cluster does not answer or refuses."""
    addresses = parse_addresses(bootstrap)
    try:
        return asyncio.run(_run(addresses, body))
    except KafkaError as error:
        raise UserError(explain(error)) from None
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


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """``host:port,...``; IPv6 hosts in brackets. Raises UsageError."""
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"--bootstrap-server {text}: {part!r} is not of the form HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise UsageError("--bootstrap-server needs at least one HOST:PORT")
    return addresses


def explain(error: KafkaError) -> str:
    """Kafka's name of the error and what was said about it."""
    said = error.message
    return f"{said} ({error.code.name})" if said else error.code.name
