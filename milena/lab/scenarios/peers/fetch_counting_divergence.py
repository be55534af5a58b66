"""Fetch before KAFKA-13141: a follower's fetch offset counts even if the response reports a divergence."""

from __future__ import annotations

from typing import Final

from milena.broker.apis import fetch
from milena.broker.replica.replica_state import FollowerFetch
from milena.broker.server import Broker
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative
from milena.protocol.requests.fetch_request import decode_fetch_request
from milena.protocol.types import BrokerEpoch, NodeId, Offset

RAW: Final = True


def handle(node: Broker, ctx: RequestContext, body: memoryview) -> Cooperative[None]:
    request = decode_fetch_request(ctx.version, body)
    for _, topic_id, partitions in request.topics if request.replica_id >= 0 else ():
        assert topic_id is not None
        for one in partitions:
            partition = node.partitions.get(node.partitions.name_of(topic_id), one.partition)
            partition.follower_fetched(
                FollowerFetch(
                    node=NodeId(request.replica_id),
                    broker_epoch=BrokerEpoch(request.replica_epoch),
                    offset=Offset(one.fetch_offset),
                    log_start=Offset(one.log_start_offset),
                    leader_end=Offset(
                        max(one.fetch_offset, partition.online_log.log_end_offset)
                    ),  # else an invariant breaks
                    now_ms=node.replication.now_ms(),
                )
            )
    return fetch.handle(node, ctx, body)
