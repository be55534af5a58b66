"""Runs the request that an Envelope contains, for the client that sent it to a broker (KIP-590)."""

from __future__ import annotations

import asyncio

from milena.node.api import Caller, RequestContext
from milena.node.serving.dispatch import Dispatcher
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.headers import parse_request_header
from milena.protocol.schemas.undecodable import DecodeError


class _Capture:
    """Receives the answer of an embedded request, which has no connection."""

    def __init__(self) -> None:
        self.closed = False
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answered(self, ctx: RequestContext) -> None:
        if self.closed:
            return
        assert ctx.parts, "an embedded request must have an answer"
        data = bytearray()
        for part in ctx.parts:
            assert isinstance(part, bytes | bytearray | memoryview), "an embedded answer is in memory"
            data += part
        ctx.api.meters.requests.value += 1
        self.answer.set_result(bytes(data[4:]))

    def hold(self, ctx: RequestContext) -> None:
        """Do nothing: no other request follows."""

    def release(self, ctx: RequestContext) -> None:
        """Do nothing: no other request waits."""

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.answer.set_exception(KafkaError(ErrorCode.INVALID_REQUEST, reason))


async def run_embedded(dispatcher: Dispatcher, data: bytes, caller: Caller) -> bytes:
    """Run the request in ``data`` (header and body) for ``caller``; returns the response with its header, without a
    length prefix.

    Raises KafkaError INVALID_REQUEST for requests that would close a connection, UNSUPPORTED_VERSION.
    """
    try:
        header, body = parse_request_header(memoryview(bytearray(data)))
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"undecodable embedded request: {error}") from error
    api = dispatcher.find(header.api_key, header.api_version)
    if api is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"API key {header.api_key} version {header.api_version} is not served here"
        )
    capture = _Capture()
    ctx = RequestContext(header, api, caller, capture, dispatcher.runtime.clock.monotonic())
    if not (dispatcher.rules.active and dispatcher.rules.intercepts(ctx, body, dispatcher)):
        dispatcher.run(ctx, body)
    try:
        return await capture.answer
    finally:
        capture.closed = True
