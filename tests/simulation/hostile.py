"""A network on which peers send malformed responses: responses to the requests of one node are altered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header
from milena.runtime.network import Connection, ConnectionHandler, Framer, Listener, Network, Part
from milena.runtime.randomness import Randomness

INTEGERS: Final = (-(2**63), -(2**31), -2, -1, 0, 1, 5, 12_345, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**63 - 1)
TEXTS: Final = ("", "\0", "a..b", "h" * 64, "x" * 30_000, "\n")

Misdeed = Callable[[Randomness, int, int, bytes], bytes | None]
"""From (API key, version, frame) to the frame that the node gets instead; None closes the connection."""


def wrong_correlation(_random: Randomness, _key: int, _version: int, frame: bytes) -> bytes:
    return (int.from_bytes(frame[:4], "big") ^ 0x55).to_bytes(4, "big") + frame[4:]


def truncated(random: Randomness, _key: int, _version: int, frame: bytes) -> bytes:
    return frame[: random.below(len(frame))]


def trailing(random: Randomness, _key: int, _version: int, frame: bytes) -> bytes:
    return frame + b"\0" * (1 + random.below(9))


def ones(_random: Randomness, _key: int, _version: int, frame: bytes) -> bytes:
    """Every length has its largest value, or is null."""
    return frame[:4] + b"\xff" * (len(frame) - 4)


def zeros(_random: Randomness, _key: int, _version: int, frame: bytes) -> bytes:
    return frame[:4] + bytes(len(frame) - 4)


def flipped(random: Randomness, _key: int, _version: int, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(1 + random.below(4)):
        data[random.below(len(data) - 4) + 4 if len(data) > 4 else 0] = random.below(256)
    return bytes(data)


def closed(_random: Randomness, _key: int, _version: int, _frame: bytes) -> None:
    return None


def twisted(random: Randomness, key: int, version: int, frame: bytes) -> bytes:
    """A well-formed response with invalid values: unknown codes, negative numbers, missing or duplicate items."""
    _, body = parse_response_header(key, version, memoryview(frame))
    head, answer = frame[: len(frame) - len(body)], messages.decode_response(key, version, bytes(body))
    for _ in range(20):
        try:
            return head + messages.encode(_twist(random, answer))
        except Exception:
            continue
    return frame


def _twist(random: Randomness, value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        changed = {
            field.name: _twist(random, getattr(value, field.name)) for field in fields if random.below(len(fields)) < 2
        }
        return dataclasses.replace(value, **changed)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return type(value)(random.choice(INTEGERS)) if type(value) is int else random.choice(INTEGERS)
    if isinstance(value, str):
        return random.choice(TEXTS)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return flipped(random, 0, 0, bytes(4) + bytes(value))[4:] if len(value) else b"\xff" * random.below(99)
    if isinstance(value, Sequence):
        items = [_twist(random, item) if random.below(2) else item for item in value]
        return random.choice([(), tuple(items), tuple(items) * 2, None])
    return None


MISDEEDS: Final[tuple[Misdeed, ...]] = (
    wrong_correlation,
    truncated,
    trailing,
    ones,
    zeros,
    flipped,
    closed,
    twisted,
    twisted,
    twisted,
)


class HostileNetwork:
    """Implements ``runtime.network.Network`` over another one."""

    def __init__(self, network: Network, random: Randomness) -> None:
        self.misdeeds: Sequence[Misdeed] = ()
        """None: responses are not altered."""
        self.one_in = 3
        """One of so many responses is altered."""
        self.keys: frozenset[int] | None = None
        """The APIs whose responses are altered; None: all."""
        self.done: dict[int, int] = {}
        """The number of altered responses by API key."""
        self._network = network
        self._random = random

    async def listen(
        self, host: str, port: int, accept: Callable[[], tuple[Framer, ConnectionHandler]], *, for_nodes: bool = False
    ) -> Listener:
        return await self._network.listen(host, port, accept, for_nodes=for_nodes)

    async def connect(
        self, host: str, port: int, framer: Framer, handler: ConnectionHandler, *, timeout: float
    ) -> Connection:
        between = _Between(self, handler)
        await self._network.connect(host, port, framer, between, timeout=timeout)
        return between

    def heard(self, key: int, version: int, frame: bytes) -> bytes | None:
        if not self.misdeeds or (self.keys is not None and key not in self.keys) or self._random.below(self.one_in):
            return frame
        self.done[key] = self.done.get(key, 0) + 1
        return self._random.choice(list(self.misdeeds))(self._random, key, version, frame)


class _Between:
    """Is the handler for the real connection, and the connection for the real handler."""

    def __init__(self, network: HostileNetwork, handler: ConnectionHandler) -> None:
        self._network = network
        self._handler = handler
        self._connection: Connection
        self._asked: dict[bytes, tuple[int, int]] = {}

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self._handler.connection_made(self)

    def frame_received(self, frame: memoryview) -> None:
        key, version = self._asked.pop(bytes(frame[:4]))
        data = self._network.heard(key, version, bytes(frame))
        if data is None:
            self._connection.abort()
        else:
            self._handler.frame_received(memoryview(bytearray(data)))

    def writable(self) -> None:
        self._handler.writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._handler.connection_lost(error)

    @property
    def peer(self) -> str:
        return self._connection.peer

    def send(self, parts: Sequence[Part]) -> None:
        head = parts[0]
        assert isinstance(head, bytes)
        self._asked[head[8:12]] = int.from_bytes(head[4:6], "big"), int.from_bytes(head[6:8], "big")
        self._connection.send(parts)

    def unsent(self) -> int:
        return self._connection.unsent()

    def when_sent(self, callback: Callable[[], None]) -> None:
        self._connection.when_sent(callback)

    def unsent_in_memory(self) -> int:
        return self._connection.unsent_in_memory()

    def pause_reading(self) -> None:
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        self._connection.resume_reading()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()
