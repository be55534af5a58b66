"""Forwards requests to the controller in an Envelope, with their header and principal (KIP-590)."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Protocol

from milena.broker.metadata.own_changes import CHANGES_METADATA
from milena.node.api import Principal, RequestContext
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.schemas.primitives import Writer

if TYPE_CHECKING:
    from milena.broker.controller_link.controller_link import ControllerLink
    from milena.broker.metadata.own_changes import OwnChanges
    from milena.config.node_config import NodeConfig
    from milena.protocol.apis import EnvelopeResponse


class Forwarding(Protocol):
    """What forwarding uses of the broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def controller(self) -> ControllerLink: ...
    @property
    def own_changes(self) -> OwnChanges: ...


async def forward(node: Forwarding, ctx: RequestContext, request: object) -> None:
    """Forward ``request`` to the controller, and send the controller's response to the client unchanged. Raises
    KafkaError if there is no response."""
    body = await ask_controller(node, ctx, request)
    if not ctx.closed:
        ctx.respond([body])


async def ask_controller(node: Forwarding, ctx: RequestContext, request: object) -> bytes:
    """Return the body of the controller's response to ``request``, in the version of ``ctx``. If the request may change
    metadata, first wait until this broker knows the change (``own_changes``). Raises KafkaError."""
    header = ctx.header
    data = request_header(header.api_key, header.api_version, header.correlation_id, header.client_id)
    response: EnvelopeResponse = await node.controller.request(
        ApiKey.ENVELOPE,
        timeout=node.config.get_int("request.timeout.ms") / 1000,
        request_data=data + messages.encode(request),
        request_principal=serialized(ctx.principal),
        client_host_address=packed_address(ctx.client_host),
    )
    error = ErrorCode(int(response.error_code))
    if error is not ErrorCode.NONE:
        raise KafkaError(error)
    response_data = messages.get(response, "response_data", None)
    if response_data is None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if header.api_key in CHANGES_METADATA:
        await node.own_changes.wait_visible(ApiKey(header.api_key))
    _, body = parse_response_header(header.api_key, header.api_version, memoryview(response_data))
    return bytes(body)


def serialized(principal: Principal) -> bytes:
    """The principal in the Envelope: the version 0, then DefaultPrincipalData."""
    writer = Writer()
    writer.int16(0)
    writer.compact_string(principal.kind)
    writer.compact_string(principal.name)
    writer.boolean(False)
    writer.uvarint(0)
    return bytes(writer)


def packed_address(host: str) -> bytes:
    """The 4 or 16 bytes of an IP address; loopback if ``host`` is a name, as in the simulation."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).packed
    except ValueError:
        return bytes((127, 0, 0, 1))
