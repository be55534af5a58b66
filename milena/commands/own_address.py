"""Checks whether a broker can be reached at its advertised inter-broker address."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from milena.command_line.errors import reason_of
from milena.up.settings import bracketed

if TYPE_CHECKING:
    from milena.config.listeners import Endpoint
    from milena.config.node_config import NodeConfig

PAUSE: Final = 1.0
"""Seconds between two attempts, and the timeout of each."""


def among_brokers(config: NodeConfig) -> Endpoint | None:
    """Return the advertised inter-broker address if clients do not use it too, else None: an address for clients
    outside need not be reachable from here."""
    if not config.is_broker or len(config.advertised_listeners) < 2:
        return None
    found = next(one for one in config.advertised_listeners if one.name == config.inter_broker_listener)
    return found if found.host and found.port else None


async def fault_of(endpoint: Endpoint, seconds: float) -> str | None:
    """Return an error message if no process accepts a connection within ``seconds``; None as soon as one does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        why = await _refused(endpoint.host, endpoint.port)
        if why is None:
            return None
        if loop.time() >= deadline:
            where = f"{endpoint.name}://{bracketed(endpoint.host)}:{endpoint.port}"
            return (
                f"advertised.listeners: the advertised inter-broker address {where} cannot be reached "
                f"from this broker within {seconds:g} s ({why})"
            )
        await asyncio.sleep(PAUSE)


async def _refused(host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(PAUSE):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return reason_of(error)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None
