"""Fetch at a leader that ignores the broker epoch of the request and uses the one in its metadata."""

from __future__ import annotations

from typing import Final

from milena.broker.apis import fetch
from milena.broker.server import Broker
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative
from milena.protocol.requests.fetch_request import decode_fetch_request, encode_fetch_request
from milena.protocol.types import NodeId

RAW: Final = True


def handle(node: Broker, ctx: RequestContext, body: memoryview) -> Cooperative[None]:
    request = decode_fetch_request(ctx.version, body)
    registered = node.image.brokers.get(NodeId(request.replica_id))
    if registered is not None:
        request = request._replace(replica_epoch=registered.epoch)
    return fetch.handle(node, ctx, memoryview(bytearray(encode_fetch_request(ctx.version, request))))
