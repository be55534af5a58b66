"""OffsetForLeaderEpoch as in KIP-101: the start of the first epoch above the requested one, without its epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from milena.broker.server import Broker
from milena.lab.scenarios.comparing.algorithms import kip101_end_offset
from milena.node.api import Fields, RequestContext
from milena.protocol.types import LeaderEpoch

UNKNOWN: Final = -1


class AskedPartition(Protocol):
    """A partition of the request."""

    partition: int
    leader_epoch: int


class AskedTopic(Protocol):
    """A topic of the request."""

    topic: str
    partitions: Sequence[AskedPartition]


class Request(Protocol):
    """OffsetForLeaderEpochRequest."""

    topics: Sequence[AskedTopic]


def handle(node: Broker, ctx: RequestContext, request: Request) -> Fields:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    {
                        "partition": one.partition,
                        "error_code": 0,
                        "leader_epoch": UNKNOWN,
                        "end_offset": _end_of(node, topic.topic, one.partition, LeaderEpoch(one.leader_epoch)),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _end_of(node: Broker, topic: str, partition: int, asked: LeaderEpoch) -> int:
    log = node.partitions.get(topic, partition).require()
    end = kip101_end_offset(log.epochs, log.log_end_offset, asked)
    return UNKNOWN if end is None else end
