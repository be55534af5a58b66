"""Lab commands of a node, over its Unix socket, without blocking the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from milena.steering.addresses import address
from milena.steering.listener import TIMED_OUT

LONGEST_ANSWER: Final = 64 << 20
"""Bytes of one answer."""


class CommandError(Exception):
    """The node refused a command; the message says why."""


class CommandTimeout(CommandError):
    """A command that waits did not see its condition in time."""


class NodeAway(Exception):
    """The node cannot be reached, or did not answer in time."""


class NodeLink:
    """One connection to a node's socket. One task uses it at a time."""

    def __init__(self, stream: ByteStream, name: str) -> None:
        self._stream = stream
        self._reading = BufferedByteReceiveStream(stream)
        self._name = name

    async def call(self, command: str, seconds: float | None, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Call a command and return its result. ``seconds``: the limit of the answer. Raises CommandError, NodeAway;
        after NodeAway the connection cannot be used any more."""
        line = json.dumps({"command": command, **arguments}).encode() + b"\n"
        try:
            with anyio.fail_after(seconds):
                await self._stream.send(line)
                answer = json.loads(await self._reading.receive_until(b"\n", LONGEST_ANSWER))
        except TimeoutError:
            raise NodeAway(f"{self._name} did not answer {command} within {seconds:g} s") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead, anyio.EndOfStream, OSError):
            raise NodeAway(f"{self._name} ended while it executed {command}") from None
        except anyio.DelimiterNotFound:
            raise NodeAway(f"{self._name}: the answer to {command} is longer than {LONGEST_ANSWER} bytes") from None
        if "error" in answer:
            kind = CommandTimeout if answer.get("code") == TIMED_OUT else CommandError
            raise kind(str(answer["error"]))
        return answer["ok"]


@asynccontextmanager
async def linked(path: str, name: str) -> AsyncIterator[NodeLink]:
    """Yield a connection to the socket at ``path``. Raises NodeAway if no node listens there."""
    try:
        with address(path) as short:
            stream = await anyio.connect_unix(short)
    except OSError as error:
        raise NodeAway(f"{name} cannot be reached: it is down, or was started without --lab") from error
    try:
        yield NodeLink(stream, name)
    finally:
        await anyio.aclose_forcefully(stream)


async def call_once(path: str, name: str, command: str, seconds: float | None, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON
    """Call one command over a connection of its own. Raises as ``linked`` and ``NodeLink.call``."""
    async with linked(path, name) as link:
        return await link.call(command, seconds, **arguments)
