"""Whether a broker is reached where it tells other brokers that it is."""

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
"""Seconds between two tries, and what one of them may take."""


def among_brokers(config: NodeConfig) -> Endpoint | None:
    """Where other brokers find this one, if that is an address of their own. None if clients outside share it: what
    they reach cannot be known from here."""
    if not config.is_broker or len(config.advertised_listeners) < 2:
        return None
    found = next(one for one in config.advertised_listeners if one.name == config.inter_broker_listener)
    return found if found.host and found.port else None


async def fault_of(endpoint: Endpoint, seconds: float) -> str | None:
    """One sentence if nobody listens there for so long; None once somebody does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        why = await _refused(endpoint.host, endpoint.port)
        if why is None:
            return None
        if loop.time() >= deadline:
            where = f"{endpoint.name}://{bracketed(endpoint.host)}:{endpoint.port}"
            return (
                f"advertised.listeners: other brokers are to find this one at {where}, and not even this one reaches "
                f"it within {seconds:g} s ({why})"
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
