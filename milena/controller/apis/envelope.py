"""Envelope (key 58), version 0: a client's request, forwarded by a broker (KIP-590).

The embedded request is handled as if the client had sent it to the controller, for the principal in the envelope. An
API that is not forwardable fails with INVALID_REQUEST.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Protocol

from milena.node.api import Caller, Principal, RequestContext
from milena.node.serving.embedded import run_embedded
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.schemas.primitives import Reader
from milena.protocol.schemas.registry import FORWARDABLE
from milena.protocol.schemas.undecodable import DecodeError

if TYPE_CHECKING:
    from milena.node.serving.server import Server
    from milena.protocol.apis import EnvelopeRequest, EnvelopeResponseFields


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def server(self) -> Server: ...


async def handle(node: Needs, ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponseFields:
    caller = Caller(ctx.listener_name, _host(request.client_host_address), _principal(request.request_principal))
    key = int.from_bytes(request.request_data[:2], "big", signed=True)
    if key not in FORWARDABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Requests of API key {key} are not forwarded.")
    answer = await run_embedded(node.server.dispatcher, request.request_data, caller)
    return {"error_code": 0, "response_data": answer}


def _principal(data: bytes | None) -> Principal:
    """Decode DefaultPrincipalData after its version. Raises KafkaError(PRINCIPAL_DESERIALIZATION_FAILURE)."""
    try:
        reader = Reader(data or b"")
        reader.int16()
        kind, name = reader.compact_string(), reader.compact_string()
        reader.boolean()
        reader.skip_tags()
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"The principal is unreadable: {error}") from None
    return Principal(kind, name)


def _host(address: bytes) -> str:
    """The address as text. Raises KafkaError(INVALID_REQUEST) if it is not 4 or 16 bytes long."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The client's address is neither IPv4 nor IPv6.") from None
