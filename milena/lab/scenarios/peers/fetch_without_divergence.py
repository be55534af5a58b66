"""Fetch before KIP-595: records are returned whatever the last epoch of the follower's log is."""

from __future__ import annotations

from typing import Final

from milena.broker.apis import fetch
from milena.broker.server import Broker
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative
from milena.protocol.requests.fetch_request import decode_fetch_request, encode_fetch_request

RAW: Final = True


def handle(node: Broker, ctx: RequestContext, body: memoryview) -> Cooperative[None]:
    request = decode_fetch_request(ctx.version, body)
    topics = [
        (name, topic_id, [one._replace(last_fetched_epoch=-1) for one in partitions])
        for name, topic_id, partitions in request.topics
    ]
    changed = encode_fetch_request(ctx.version, request._replace(topics=topics))
    return fetch.handle(node, ctx, memoryview(bytearray(changed)))
