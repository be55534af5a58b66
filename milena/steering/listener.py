"""The node's side of its socket: requests in, commands called, answers out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Mapping
from typing import Final

from milena.node.serving.lab_commands import LabCommandError, LabCommands, LabCommandTimeout
from milena.runtime.tasks import Tasks
from milena.steering.addresses import address

TIMED_OUT: Final = "TIMED_OUT"
"""``code`` of an error: the command waited in vain."""
LONGEST_LINE: Final = 1 << 20
"""Maximum length of a request in bytes."""


class CommandListener:
    """A Unix socket at ``path``. ``roles``: the commands of each role of this node. A request to a node with both roles
    may name one by ``role``; else the first role with the command executes it."""

    def __init__(self, path: str, roles: Mapping[str, LabCommands], tasks: Tasks) -> None:
        self._path = path
        self._roles = roles
        self._tasks = tasks
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start to listen. A socket that a killed node has left is replaced. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._server = await asyncio.start_unix_server(self._accept, sock=_bound(self._path), limit=LONGEST_LINE)

    async def stop(self) -> None:
        """Stop listening and cancel running commands."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        await self._tasks.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.spawn(self._serve(reader, writer), name="caller")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # ValueError: the line is too long
            return
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
            command = request.pop("command")
        except (ValueError, KeyError, AttributeError, TypeError):
            return {"error": 'a request is one line of JSON: {"command": NAME, ARGUMENT: VALUE, ...}'}
        role = request.pop("role", None)
        asked = [commands for name, commands in self._roles.items() if role in (None, name)]
        if not asked:
            return {"error": f"this node plays {' and '.join(self._roles)}"}
        try:
            return {
                "ok": await next((commands for commands in asked if command in commands), asked[0]).call(
                    command, **request
                )
            }
        except LabCommandTimeout as error:
            return {"error": str(error), "code": TIMED_OUT}
        except LabCommandError as error:
            return {"error": str(error)}


def _bound(path: str) -> socket.socket:
    """Bind a socket to which only its owner may connect, from its creation on. The umask is the only portable way to
    achieve that with ``bind``. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        with address(path) as short:
            sock.bind(short)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock
