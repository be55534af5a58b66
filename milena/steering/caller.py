"""Asking a node over its socket."""

from __future__ import annotations

import contextlib
import json
import socket

from milena.command_line.errors import UserError
from milena.steering.addresses import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NobodyListens(UserError):
    """The node is down, or of no lab."""


class NodeVerbs:
    """The verbs of one node of a local cluster. Each call has a connection of its own, so calls may come from
    several threads."""

    def __init__(self, path: str) -> None:
        self._path = path

    def call(self, verb: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON of any command
        """Raises UserError with what the node said, NobodyListens where there is nobody to ask."""
        reason = "the node has ended"
        try:
            line = self._send({"verb": verb, **arguments})
        except ConnectionError as error:
            line, reason = b"", error.strerror or reason
        if not line:
            raise UserError(f"{verb}: {reason}")
        answer = json.loads(line)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer["ok"]

    def end(self, verb: str) -> None:
        """Call a verb that ends the node instead of answering. Raises NobodyListens."""
        with contextlib.suppress(ConnectionError):
            self._send({"verb": verb})

    def _send(self, request: dict[str, object]) -> bytes:
        """One line for one line; an empty one from a node that has ended. Raises ConnectionError, NobodyListens."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                with address(self._path) as short:
                    connection.connect(short)
            except (FileNotFoundError, ConnectionRefusedError):
                raise NobodyListens(
                    f"nobody listens at {self._path}: the node is down, or was not started with --lab"
                ) from None
            except PermissionError as error:
                raise UserError(f"{self._path}: {error.strerror}") from None
            connection.sendall(json.dumps(request).encode() + b"\n")
            return connection.makefile("rb").readline()
