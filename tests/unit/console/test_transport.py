"""Connections that do not read, or send nothing, are closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from starlette.responses import Response, StreamingResponse
from uvicorn.server import ServerState

from milena.console import transport


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1 << 16)
        await asyncio.sleep(0)  # after the end of the connection, sending returns at once


@asynccontextmanager
async def connected(answer: Response | None = None) -> AsyncIterator[tuple[socket.socket, ServerState]]:
    """A connection to a server whose answer has no end, unless another is given, and the server's connections."""
    application = StreamingResponse(endless()) if answer is None else answer
    config, state = uvicorn.Config(application, log_config=None, access_log=False), ServerState()
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: transport.Http(config, state, {}, loop), "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.setblocking(False)
    try:
        yield client, state
    finally:
        client.close()
        server.close()
        await asyncio.gather(*state.tasks)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the conditions are of a library
        await asyncio.sleep(0.001)


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "UNREAD_SECONDS", 0.05)
    async with connected() as (client, state):
        await asyncio.get_running_loop().sock_sendall(client, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: bool(state.tasks))
        await until(lambda: not state.connections)


async def test_a_client_that_sends_no_request_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SILENT_SECONDS", 0.05)
    async with connected() as (client, state):
        await asyncio.get_running_loop().sock_sendall(client, b"GET / HTTP/1.1\r\n")
        assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert not state.connections


@pytest.mark.parametrize(
    ("request_and_rest", "piece"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nx: ", b"a"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    ],
    ids=["headers", "body"],
)
async def test_a_client_that_has_an_answer_and_sends_no_whole_request_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, request_and_rest: bytes, piece: bytes
) -> None:
    """Also if it sends a byte from time to time."""
    monkeypatch.setattr(transport, "SILENT_SECONDS", 0.1)
    loop = asyncio.get_running_loop()
    async with connected(Response("read")) as (client, state):
        await loop.sock_sendall(client, request_and_rest)
        assert (await loop.sock_recv(client, 1 << 16)).startswith(b"HTTP/1.1 200")
        with suppress(ConnectionError):
            while state.connections:
                await loop.sock_sendall(client, piece)
                await asyncio.sleep(0.01)
    assert not state.connections


async def test_a_client_that_reads_is_not_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(transport, "UNREAD_SECONDS", 20.0)
    async with connected() as (client, state):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        received = 0
        while received < 4 << 20:
            received += len(await loop.sock_recv(client, 1 << 20))
        assert state.connections
