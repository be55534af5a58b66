"""Asking a node over its socket."""

from __future__ import annotations

import json
import socket

from milena.errors import UserError
from milena.steering.addresses import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NodeVerbs:
    """The verbs of one node of a local cluster. Each call has a connection of its own, so calls may come from
    several threads."""

    def __init__(self, path: str) -> None:
        self._path = path

    def call(self, verb: str, **arguments: Any) -> Any:
        """Raises UserError with what the node said, or where there is nobody to ask."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                with address(self._path) as short:
                    connection.connect(short)
                connection.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
                line = connection.makefile("rb").readline()
            except (FileNotFoundError, ConnectionRefusedError):
                raise UserError(
                    f"nobody listens at {self._path}: the node is down, or was not started with --lab"
                ) from None
            except ConnectionError as error:
                line = b""
                reason = error.strerror
            else:
                reason = "the node has ended"
        if not line:
            raise UserError(f"{verb}: {reason}")
        answer = json.loads(line)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer["ok"]

    def end(self, verb: str) -> None:
        """Call a verb that ends the node instead of answering. Raises UserError where nobody listens."""
        with socket.socket(socket.AF_UNIX) as connection:
            with address(self._path) as short:
                connection.connect(short)
            connection.sendall(json.dumps({"verb": verb}).encode() + b"\n")
            connection.makefile("rb").readline()
