"""One side of the comparison: a running node, and connections to it for arbitrary requests."""

from __future__ import annotations

import dataclasses
import select
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from tests.wire.raw import frame, receive_frame

LIMIT: Final = 20.0
CLIENT_ID: Final = "differ"
CLOSED: Final = "the connection was closed"
SILENT: Final = "no answer came"


@dataclasses.dataclass(frozen=True)
class Name:
    """A name in a request for an id that each side has created, and that differs between them."""

    of: str


class Made:
    """A value in a request that must be built for each side separately."""

    def made(self, side: Side) -> Any:
        raise NotImplementedError


class Side:
    """A node under comparison, with the ids that it has assigned to objects of the tests."""

    def __init__(self, title: str, host: str, port: int, node_id: int) -> None:
        self.title = title
        self.host = host
        self.port = port
        self.node_id = node_id
        self.ports = {port}
        """Ports of all brokers of its cluster."""
        self.cluster_id = ""
        self.names: dict[str, Any] = {}
        self.epochs: dict[str, int] = {}
        """The last epoch of each producer, by its name."""

    def forget(self) -> None:
        """Forget the ids of the test before. Those of producers are small numbers that the next test may use, too."""
        self.names.clear()
        self.epochs.clear()

    def resolve(self, value: Any) -> Any:
        """Return the value with this side's ids instead of the names."""
        if isinstance(value, Name):
            return self.names[value.of]
        if isinstance(value, Made):
            return value.made(self)
        if isinstance(value, Mapping):
            return {key: self.resolve(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.resolve(item) for item in value]
        return value


class Line:
    """A connection to one side. It reconnects after the side has closed it."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._socket: socket.socket | None = None
        self._correlation = 0

    def send(self, key: int, version: int, body: bytes, client_id: str | None = CLIENT_ID) -> None:
        self._correlation += 1
        self.write(frame(request_header(key, version, self._correlation, client_id) + body))

    def write(self, data: bytes) -> None:
        """Send bytes unchanged."""
        if self._socket is None:
            self._socket = socket.create_connection((self.side.host, self.side.port), timeout=LIMIT)
        self._socket.sendall(data)

    def receive(self, key: int, version: int) -> Any:
        """Return the response as plain data, CLOSED, or SILENT after the time limit."""
        assert self._socket is not None
        try:
            correlation, body = parse_response_header(key, version, receive_frame(self._socket))
        except ConnectionError:
            self.close()
            return CLOSED
        except TimeoutError:
            self.close()
            return SILENT
        assert correlation == self._correlation, f"{self.side.title} answered {correlation} to {self._correlation}"
        return plain(messages.decode_response(key, version, body))

    def waits(self) -> bool:
        """Whether no byte of a response has come within a moment."""
        assert self._socket is not None
        return not select.select([self._socket], [], [], 0.002)[0]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def plain(value: Any) -> Any:
    """Return a response as nested dictionaries and lists."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return value if isinstance(value, str) else bytes(value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return value
