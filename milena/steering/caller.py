"""Sends lab commands to a node over its socket."""

from __future__ import annotations

import contextlib
import json
import socket

from milena.command_line.errors import UserError
from milena.steering.addresses import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


ENDED = "the node has ended"


class NotListening(UserError):
    """The node is down or has ended before it answered, or it was started without --lab."""


class NodeCommands:
    """The commands of one node of a local cluster. Each call opens a connection, so calls may come from
    several threads."""

    def __init__(self, path: str) -> None:
        self._path = path

    def call(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON of any command
        """Call a command. Raises UserError with the node's error, NotListening if the node cannot be reached."""
        return self.begin(command, **arguments).result()

    def begin(self, command: str, **arguments: object) -> Call:
        """Send a command; its result is read later, so that several nodes work at the same time. Raises UserError,
        NotListening."""
        try:
            return Call(command, self._send({"command": command, **arguments}))
        except ConnectionError as error:
            raise NotListening(f"{command}: {error.strerror or ENDED}") from None

    def end(self, command: str) -> None:
        """Call a command that ends the node instead of answering. Raises NotListening."""
        with contextlib.suppress(ConnectionError), self._send({"command": command}) as connection:
            answer_of(connection)

    def _send(self, request: dict[str, object]) -> socket.socket:
        """Send one line. Return the connection, to read the answer. Raises ConnectionError, NotListening."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            with address(self._path) as short:
                connection.connect(short)
            connection.sendall(json.dumps(request).encode() + b"\n")
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            raise NotListening(f"no node listens at {self._path}: it is down, or was started without --lab") from None
        except PermissionError as error:
            connection.close()
            raise UserError(f"{self._path}: {error.strerror}") from None
        except BaseException:
            connection.close()
            raise
        return connection


class Call:
    """A command that a node executes."""

    def __init__(self, command: str, connection: socket.socket) -> None:
        self._command = command
        self._connection = connection

    def abandon(self) -> None:
        """Close the connection without reading the result."""
        self._connection.close()

    def result(self) -> Any:  # noqa: ANN401 - JSON of any command
        """Wait for the result. Raises UserError with the node's error, NotListening if the node has ended."""
        reason = ENDED
        with self._connection as connection:
            try:
                line = answer_of(connection)
            except ConnectionError as error:
                line, reason = b"", error.strerror or reason
        if not line:
            raise NotListening(f"{self._command}: {reason}")
        answer = json.loads(line)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer["ok"]


def begin_all(nodes: Iterable[NodeCommands], command: str, **arguments: object) -> list[Call]:
    """Send a command to several nodes. Raises UserError, NotListening if one cannot be reached."""
    calls: list[Call] = []
    try:
        for node in nodes:
            calls.append(node.begin(command, **arguments))
    except UserError:
        for call in calls:
            call.abandon()
        raise
    return calls


def results(calls: Sequence[Call]) -> list[Any]:
    """Wait for all results. Raises UserError with the error of one node, if there is any."""
    found: list[Any] = []
    failures: list[UserError] = []
    for call in calls:
        try:
            found.append(call.result())
        except UserError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return found


def answer_of(connection: socket.socket) -> bytes:
    """Return one line; an empty one if the node has ended. Raises ConnectionError."""
    with connection.makefile("rb") as stream:
        return stream.readline()
