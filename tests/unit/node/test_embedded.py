"""Requests from an Envelope run as if they had come by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milena.node.api import Caller, Principal, RequestContext
from milena.node.serving.embedded import run_embedded
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from tests.unit.node.peers import running

CALLER = Caller("PLAINTEXT", "10.0.0.7", Principal("User", "alice"))
REQUEST = request_header(ApiKey.LIST_GROUPS, 4, 42, "client") + messages.encode_request(ApiKey.LIST_GROUPS, 4)


@pytest.mark.parametrize("later", [False, True])
async def test_the_answer_has_the_embedded_requests_header(later: bool) -> None:
    async with running() as r:
        seen: list[object] = []

        async def soon() -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"groups": [{"group_id": "g"}]}

        def cold(ctx: RequestContext, request: Any) -> Any:
            seen.extend((ctx.principal, ctx.client_host, ctx.client_id))
            return soon() if later else {"groups": [{"group_id": "g"}]}

        r.node.cold = cold
        answer = await run_embedded(r.server.dispatcher, REQUEST, CALLER)
        correlation_id, body = parse_response_header(ApiKey.LIST_GROUPS, 4, answer)
        assert correlation_id == 42
        assert messages.decode_response(ApiKey.LIST_GROUPS, 4, body).groups[0].group_id == "g"
        assert seen == [CALLER.principal, "10.0.0.7", "client"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\0", ErrorCode.INVALID_REQUEST),
        (REQUEST[:-2], ErrorCode.INVALID_REQUEST),
        (request_header(ApiKey.LIST_GROUPS, 99, 1, None), ErrorCode.UNSUPPORTED_VERSION),
        (request_header(ApiKey.END_TXN, 3, 1, None), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_what_would_close_a_connection_is_an_error(data: bytes, code: ErrorCode) -> None:
    async with running() as r:
        with pytest.raises(KafkaError) as caught:
            await run_embedded(r.server.dispatcher, data, CALLER)
        assert caught.value.code is code


async def test_an_error_of_the_handler_is_in_the_answer() -> None:
    async with running() as r:

        def cold(ctx: RequestContext, request: Any) -> None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

        r.node.cold = cold
        answer = await run_embedded(r.server.dispatcher, REQUEST, CALLER)
        _, body = parse_response_header(ApiKey.LIST_GROUPS, 4, answer)
        assert messages.decode_response(ApiKey.LIST_GROUPS, 4, body).error_code == ErrorCode.NOT_CONTROLLER
