"""Servers that send bytes without framing, malformed frames, or nothing: how a channel fails and recovers, on every
network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pytest

from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.runtime.network import Connection, Listener
from tests.contract.peers import Chunks
from tests.contract.worlds import Surroundings, on_all_networks

VERSIONS: Final = [{"api_key": key, "min_version": 0, "max_version": 4} for key in (16, 18)]
"""ListGroups and ApiVersions."""
GOOD: Final = messages.encode_response(ApiKey.LIST_GROUPS, 4, error_code=0, groups=[])

Answer = Callable[[int, bytes], bytes | None]
"""Returns the bytes to send for a correlation id and the body of a valid response; None closes the connection."""


def framed(correlation_id: int, body: bytes, *, flexible: bool = True) -> bytes:
    payload = correlation_id.to_bytes(4, "big") + (b"\0" if flexible else b"") + body
    return len(payload).to_bytes(4, "big") + payload


MISDEEDS: Final[dict[str, Answer]] = {
    "another correlation id": lambda number, body: framed(number + 1, body),
    "cut short": lambda number, body: framed(number, body[:-1]),
    "bytes left over": lambda number, body: framed(number, body + b"\0"),
    "no body": lambda number, _body: framed(number, b"", flexible=False),
    "no correlation id": lambda _number, _body: b"\0\0\0\0",
    "a length beyond any": lambda _number, _body: b"\x7f\xff\xff\xff" + bytes(64),
    "a length below zero": lambda _number, _body: b"\xff\xff\xff\xff",
    "lengths inside beyond any": lambda number, body: framed(number, b"\xff" * len(body)),
    "null where there must be an array": lambda number, body: framed(number, body[:6] + b"\0" + body[7:]),
    "no frames": lambda _number, _body: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "the end": lambda _number, _body: None,
    "an answer to nothing before": lambda number, body: framed(9999, b"") + framed(number, body),
}


@dataclass
class Server:
    """Answers ListGroups by ``answer``, or ApiVersions if ``spoils_versions``. Its other responses are valid."""

    answer: Answer | None = None
    """None: every response is valid."""
    silent: bool = False
    spoils_versions: bool = False
    connections: int = 0
    ended: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, it: Surroundings) -> Listener:
        listener = await it.runtime.network.listen("127.0.0.1", 0, lambda: (Chunks(), Serving(self)))
        it.ending(listener.close)
        return listener

    def reply(self, connection: Connection, frame: bytes) -> None:
        key, number = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[8:12], "big")
        data: bytes | None
        if key == ApiKey.API_VERSIONS:
            body, flexible = messages.encode_response(ApiKey.API_VERSIONS, 4, error_code=0, api_keys=VERSIONS), False
        else:
            body, flexible = GOOD, True
        if self.silent:
            return
        if self.answer is None or (key == ApiKey.API_VERSIONS) is not self.spoils_versions:
            data = framed(number, body, flexible=flexible)
        else:
            data = self.answer(number, body)
        if data is None:
            connection.abort()
        else:
            connection.send([data])


class Serving:
    """The handler of one connection of the server. It expects each request in one piece."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Connection

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self._server.connections += 1

    def frame_received(self, frame: memoryview) -> None:
        self._server.reply(self._connection, bytes(frame))

    def writable(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        self._server.ended += 1


def channel_to(
    it: Surroundings, listener: Listener, *, connect_timeout: float = 10.0, request_timeout: float = 30.0
) -> Channel:
    channel = Channel(
        it.runtime,
        "127.0.0.1",
        listener.port,
        "victim",
        connect_timeout=connect_timeout,
        request_timeout=request_timeout,
    )
    it.ending(channel.close)
    return channel


@on_all_networks
async def test_each_misdeed_raises_a_channel_error_and_closes_the_connection(it: Surroundings) -> None:
    server = Server()
    channel = channel_to(it, await server.start(it))
    for what, server.answer in MISDEEDS.items():
        with pytest.raises(ChannelError):
            await channel.request(ApiKey.LIST_GROUPS, states_filter=[], types_filter=[])
            pytest.fail(what)
        assert not channel.connected, what
    server.answer = None
    assert (await channel.request(ApiKey.LIST_GROUPS, states_filter=[])).groups == ()
    assert server.connections == len(MISDEEDS) + 1
    assert (it.failures, it.runtime.contained.count) == ([], 0)


@on_all_networks
async def test_after_a_malformed_api_versions_response_the_channel_reconnects_with_growing_backoff(
    it: Surroundings,
) -> None:
    server = Server(spoils_versions=True)
    channel = channel_to(it, await server.start(it), connect_timeout=5.0)
    server.answer = MISDEEDS["lengths inside beyond any"]
    began = it.runtime.clock.monotonic()
    for _ in range(4):
        with pytest.raises(ChannelError):
            await channel.request(ApiKey.LIST_GROUPS, states_filter=[])
    assert it.runtime.clock.monotonic() - began > 0.05 + 0.1 + 0.2 - 0.1
    for server.answer in MISDEEDS.values():
        with pytest.raises(ChannelError):
            await Channel(it.runtime, "127.0.0.1", channel.port, "another").connect()
    server.answer = None
    await channel.connect()
    assert (it.failures, it.runtime.contained.count) == ([], 0)


@on_all_networks
async def test_a_request_to_a_silent_server_times_out_and_closes_the_connection(it: Surroundings) -> None:
    server = Server()
    channel = channel_to(it, await server.start(it), request_timeout=0.05)
    await channel.connect()
    server.silent = True
    with pytest.raises(KafkaError) as failure:
        await channel.request(ApiKey.LIST_GROUPS, states_filter=[])
    assert failure.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert not channel.connected
    server.silent = False
    await channel.request(ApiKey.LIST_GROUPS, states_filter=[])


@on_all_networks
async def test_a_response_that_does_not_end_times_out_and_its_memory_is_released(it: Surroundings) -> None:
    """The memory for a response grows with the received bytes, not with the announced length
    (tests/unit/protocol/test_frames.py), and is released when the connection closes."""
    server = Server(answer=lambda _number, _body: (200 << 20).to_bytes(4, "big") + bytes(100_000))
    channel = channel_to(it, await server.start(it), request_timeout=0.2)
    for _ in range(3):
        with pytest.raises(KafkaError, match="did not answer"):
            await channel.request(ApiKey.LIST_GROUPS, states_filter=[])
        assert not channel.connected
    server.answer = None
    await channel.request(ApiKey.LIST_GROUPS, states_filter=[])
