"""Mutated frames against one node, on many concurrent connections with one request in flight each."""

from __future__ import annotations

import random
import selectors
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header
from milena.protocol.schemas.undecodable import DecodeError
from tests.attack.mutations import mutate
from tests.attack.requests import Api, Requests
from tests.attack.tally import Tally, errors_in

CONNECTIONS: Final = 24
PATIENCE: Final = 1.0
"""Seconds after which a connection without an answer is closed, since a Fetch or JoinGroup may wait longer."""


class Lane:
    """One connection, with one request in flight."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.socket: socket.socket | None = None
        self.api: Api | None = None
        self.frame = b""
        self.received = bytearray()
        self.deadline = 0.0

    def connect(self) -> socket.socket:
        self.socket = socket.create_connection(self._address, timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.socket

    def send(self, api: Api, frame: bytes, announced: int) -> None:
        """Send a frame with the length ``announced``. Raises OSError if the node has closed the connection."""
        assert self.socket is not None
        self.api, self.frame = api, frame
        self.received.clear()
        self.deadline = time.monotonic() + PATIENCE
        self.socket.sendall(struct.pack(">i", announced) + frame)

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def answer(self) -> bytes | None:
        """Return the answer without its length; None if it was not yet received completely."""
        if len(self.received) < 4:
            return None
        (size,) = struct.unpack_from(">i", self.received)
        return bytes(self.received[4 : 4 + size]) if len(self.received) >= 4 + size else None


class Barrage:
    """Sends mutated frames of ``apis`` in turn. ``check`` is called every 5,000 frames."""

    def __init__(
        self,
        address: tuple[str, int],
        apis: list[Api],
        requests: Requests,
        rnd: random.Random,
        tally: Tally,
        check: Callable[[], None],
    ) -> None:
        self._address, self._apis, self._requests, self._rnd = address, apis, requests, rnd
        self._tally = tally
        self._check = check
        self._selector = selectors.DefaultSelector()
        self._left = 0

    def run(self, frames: int) -> None:
        self._left = frames
        lanes = [Lane(self._address) for _ in range(min(CONNECTIONS, frames))]
        for lane in lanes:
            self._next(lane)
        while any(lane.socket is not None for lane in lanes):
            for key, _ in self._selector.select(0.05):
                self._readable(key.data)
            now = time.monotonic()
            for lane in lanes:
                if lane.socket is not None and lane.deadline < now:
                    self._tally.waiting += 1
                    self._drop(lane)
                    self._next(lane)
        self._check()
        self._selector.close()

    def _next(self, lane: Lane) -> None:
        """Send the next frame, on a new connection if the old one was closed."""
        if not self._left:
            self._drop(lane)
            return
        self._left -= 1
        tally = self._tally
        if tally.sent % 5000 == 4999:
            self._check()
        api = self._apis[tally.sent % len(self._apis)]
        tally.sent += 1
        frame = mutate(self._requests.frame(api, tally.sent % 2**31), self._rnd)
        announced = len(frame) if self._rnd.random() > 0.01 else self._rnd.choice((-1, 0, 3, 2**31 - 1, 104_857_601))
        for _ in range(2):
            if lane.socket is None:
                self._selector.register(lane.connect(), selectors.EVENT_READ, lane)
            try:
                lane.send(api, frame, announced)
                return
            except OSError:
                self._drop(lane)
        raise ConnectionError(f"{self._address} closes every connection")

    def _readable(self, lane: Lane) -> None:
        if lane.socket is None:
            return
        try:
            data = lane.socket.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._tally.closed += 1
            self._drop(lane)
        else:
            lane.received += data
            answer = lane.answer()
            if answer is None:
                return
            self._answered(lane, answer)
        self._next(lane)

    def _answered(self, lane: Lane, answer: bytes) -> None:
        """Count an answer, decoded by the API key and version of the mutated header."""
        tally = self._tally
        assert lane.api is not None
        key, version = struct.unpack_from(">hh", lane.frame)
        try:
            response = decoded(key, version, answer)
        except (DecodeError, LookupError, ValueError, KeyError) as error:
            tally.unreadable.append(f"{lane.api.key.name} v{lane.api.version} {lane.frame[:200].hex()}: {error}")
            tally.codes["unreadable"] += 1
            return
        tally.codes[min(errors_in(response))] += 1

    def _drop(self, lane: Lane) -> None:
        if lane.socket is not None:
            self._selector.unregister(lane.socket)
            lane.close()


def decoded(key: int, version: int, answer: bytes) -> Any:
    """Decode a response. The answer to an ApiVersions request of an unknown version has version 0."""
    _, body = parse_response_header(key, version, answer)
    try:
        return messages.decode_response(key, version, body)
    except (DecodeError, LookupError):
        if key != 18:
            raise
        return messages.decode_response(key, 0, answer[4:])
