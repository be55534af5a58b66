"""Sends lab commands to a node over its socket."""

from __future__ import annotations

import contextlib
import json
import socket

from milena.command_line.errors import UserError
from milena.steering.addresses import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NotListening(UserError):
    """The node is down, or was started without --lab."""


class NodeCommands:
    """The commands of one node of a local cluster. Each call opens a connection, so calls may come from
    several threads."""

    def __init__(self, path: str) -> None:
        self._path = path

    def call(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON of any command
        """Call a command. Raises UserError with the node's error, NotListening if the node cannot be reached."""
        reason = "the node has ended"
        try:
            line = self._send({"command": command, **arguments})
        except ConnectionError as error:
            line, reason = b"", error.strerror or reason
        if not line:
            raise UserError(f"{command}: {reason}")
        answer = json.loads(line)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer["ok"]

    def end(self, command: str) -> None:
        """Call a command that ends the node instead of answering. Raises NotListening."""
        with contextlib.suppress(ConnectionError):
            self._send({"command": command})

    def _send(self, request: dict[str, object]) -> bytes:
        """Send one line, return one line; an empty one if the node has ended. Raises ConnectionError, NotListening."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                with address(self._path) as short:
                    connection.connect(short)
            except (FileNotFoundError, ConnectionRefusedError):
                raise NotListening(
                    f"no node listens at {self._path}: it is down, or was started without --lab"
                ) from None
            except PermissionError as error:
                raise UserError(f"{self._path}: {error.strerror}") from None
            connection.sendall(json.dumps(request).encode() + b"\n")
            return connection.makefile("rb").readline()
