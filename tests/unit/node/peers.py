"""A server on a real loopback port, and a client that speaks bytes."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from milena.node.api import Answer, ApiTable, RequestContext
from milena.node.metrics import Metrics
from milena.node.rules.rules import Rules
from milena.node.serving.server import Server, ServerLimits
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.schemas.registry import Role
from milena.runtime.process import real_runtime

PACKAGE = "tests.unit.node.fake_apis"
APIS = {
    ApiKey.PRODUCE: "raw",
    ApiKey.FETCH: "raw",
    ApiKey.LIST_GROUPS: "cold",
    ApiKey.METADATA: "cold",
    ApiKey.CREATE_TOPICS: "failing",
    ApiKey.API_VERSIONS: "versions",
}
VERSIONS = {ApiKey.PRODUCE: (0, 13), ApiKey.LIST_GROUPS: (0, 4), ApiKey.API_VERSIONS: (0, 4)}


@dataclass(frozen=True)
class Endpoint:
    name: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 0


@dataclass
class FakeNode:
    """Answers as the test says. By default a raw request is echoed and ListGroups is empty."""

    cold: Callable[[RequestContext, Any], Answer] = lambda ctx, request: {"groups": ()}
    raw: Callable[[RequestContext, memoryview], Answer] = lambda ctx, body: ctx.respond([bytes(body)])
    error: Exception = field(default_factory=ValueError)
    versions: dict[ApiKey, tuple[int, int]] = field(default_factory=lambda: dict(VERSIONS))
    newest_api_versions: int = 4
    features: dict[str, int] = field(default_factory=dict)
    features_epoch: int = -1


@dataclass
class Running:
    server: Server
    node: FakeNode
    metrics: Metrics
    rules: Rules
    failures: list[str]

    async def client(self, listener: str = "PLAINTEXT") -> Client:
        host, port = self.server.bound[listener]
        return Client(*await asyncio.open_connection(host, port))


class Client:
    """Requests by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.sent: list[tuple[int, int]] = []

    def send_raw(self, key: int, version: int, body: bytes = b"") -> int:
        correlation_id = len(self.sent)
        self.sent.append((key, version))
        frame = request_header(key, version, correlation_id, "test") + body
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        return correlation_id

    def send(self, key: int, version: int, **fields: Any) -> int:
        return self.send_raw(key, version, messages.encode_request(key, version, **fields))

    async def receive(self) -> tuple[int, bytes]:
        """The correlation id and the body of the next answer."""
        async with asyncio.timeout(5):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        key, version = self.sent[int.from_bytes(frame[:4], "big")]
        correlation_id, body = parse_response_header(key, version, frame)
        return correlation_id, bytes(body)

    async def ask(self, key: int, version: int, **fields: Any) -> Any:
        sent = self.send(key, version, **fields)
        received, body = await self.receive()
        assert received == sent
        return messages.decode_response(key, version, body)

    async def closed(self) -> bool:
        """Waits until the server ends the connection; False where it sends something first."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def running(
    limits: ServerLimits | None = None,
    *,
    role: Role = Role.BROKER,
    endpoint: Endpoint | None = None,
    inter_broker: Endpoint | None = None,
) -> AsyncIterator[Running]:
    """A started server with a fake node behind it."""
    failures: list[str] = []
    runtime = real_runtime(lambda description, error: failures.append(f"{description}: {error}"))
    node, metrics, rules = FakeNode(), Metrics(), Rules(runtime.clock, random=runtime.random)
    server = Server(
        runtime,
        node,
        node_id=1,
        role=role,
        endpoints=[endpoint or Endpoint(), *([inter_broker] if inter_broker else [])],
        apis=ApiTable(PACKAGE, APIS),
        limits=limits or ServerLimits(),
        metrics=metrics,
        rules=rules,
        inter_broker=inter_broker.name if inter_broker else (endpoint or Endpoint()).name,
    )
    await server.start()
    try:
        yield Running(server, node, metrics, rules, failures)
    finally:
        await server.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait for an effect at the other side of a socket, for which there is no event."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)
