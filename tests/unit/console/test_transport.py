"""Connections that do not read, or send nothing, are closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.responses import StreamingResponse
from uvicorn.server import ServerState

from milena.console import transport


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1 << 16)
        await asyncio.sleep(0)  # after the end of the connection, sending returns at once


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[socket.socket, ServerState]]:
    """A connection to a server whose answer has no end, and the server's connections."""
    config, state = uvicorn.Config(StreamingResponse(endless()), log_config=None, access_log=False), ServerState()
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
