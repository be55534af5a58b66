"""Calls an ASGI application without a connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from milena.console.guard import Application, Message

HOST = "127.0.0.1:9280"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def call(
    app: Application,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: Sequence[bytes] = (b"",),
) -> Answer:
    """Send one request, whose body arrives in these parts. The Host header is ``HOST`` unless ``headers`` has another
    one; None of it if it is empty."""
    sent = {"host": HOST, **(headers or {})}
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method, "path": path, "query_string": query.encode(), "raw_path": path.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value], "http_version": "1.1",
        "scheme": "http", "server": ("127.0.0.1", 9280), "client": ("127.0.0.1", 40000), "root_path": "",
    }  # fmt: skip
    incoming, outgoing = _messages(body), list[Message]()

    async def receive() -> Message:
        return await anext(incoming, {"type": "http.disconnect"})

    async def send(message: Message) -> None:
        outgoing.append(message)

    await app(scope, receive, send)
    start = outgoing[0]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in outgoing[1:]))


async def _messages(parts: Sequence[bytes]) -> AsyncIterator[Message]:
    for number, part in enumerate(parts, 1):
        yield {"type": "http.request", "body": part, "more_body": number < len(parts)}
