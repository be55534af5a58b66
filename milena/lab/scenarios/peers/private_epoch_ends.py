"""OffsetForLeaderEpoch in private versions between two test peers: how KIP-279's alternatives look on the wire.

Both are version 4 with as few changes as the algorithm needs. In version 101 the response has no leader epoch, as in
KIP-101. In version 102 the request also has a sequence of leader epochs with their end offsets in place of one epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milena.broker.apis import offset_for_leader_epoch
from milena.broker.follower.follower_state import FollowerState
from milena.broker.follower.leader_link import EpochEnd as FoundEnd
from milena.broker.server import Broker
from milena.config.node_config import NodeConfig
from milena.lab.scenarios.comparing.algorithms import UNKNOWN, Algorithm, AllEpochs, Answer, Question
from milena.node.api import Answer as Reply
from milena.node.api import ApiTable, RequestContext
from milena.node.links.outgoing import Channel
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.requests import messages
from milena.protocol.schemas.message_classes import add_private_version
from milena.protocol.schemas.registry import VersionRange
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.context import Runtime
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import EpochEnd

KEY: Final = ApiKey.OFFSET_FOR_LEADER_EPOCH
ONE_EPOCH: Final = 101
SEQUENCE: Final = 102
PRIVATE_RANGES: Final = {KEY: VersionRange(2, SEQUENCE)}
UNKNOWN_OFFSET_FOR_LEADER_EPOCH: Final = 1000
"""The error code of the alternatives. Kafka has none."""
NO_OFFSET: Final = -1

for _version in (ONE_EPOCH, SEQUENCE):
    add_private_version(KEY, _version, f"milena.lab.scenarios.peers.epoch_messages_v{_version}")


class AsksByAlgorithm(Broker):
    """Finds the end of the common part of two logs by ``algorithm``, as a follower and as a leader."""

    def __init__(self, runtime: Runtime, config: NodeConfig, apis: ApiTable, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.ask_ends = self._ask_leader
        super().__init__(runtime, config, apis=apis)

    async def _ask_leader(
        self, channel: Channel, followers: Mapping[FollowerState, LeaderEpoch]
    ) -> dict[tuple[str, int], FoundEnd]:
        """Ask until the follower knows where to truncate. The result is an answer as Kafka's leaders give it, with
        which the follower truncates there: the end of its latest epoch."""
        return {
            (follower.partition.topic, follower.partition.index): await self._agree(channel, follower, latest)
            for follower, latest in followers.items()
        }

    async def _agree(self, channel: Channel, follower: FollowerState, latest: LeaderEpoch) -> FoundEnd:
        question: Question | None = None
        while True:
            question = self.algorithm.ask(follower.log, question)
            found = await self._ask(channel, follower, question)
            if found.error_code not in (0, UNKNOWN_OFFSET_FOR_LEADER_EPOCH):
                return FoundEnd(found.error_code, NO_OFFSET, NO_OFFSET)
            error = UNKNOWN if found.error_code else None
            end = None if found.end_offset == NO_OFFSET else Offset(found.end_offset)
            cut, agreed = self.algorithm.decide(follower.log, question, Answer(None, end, error))
            if agreed:
                return FoundEnd(0, latest, cut)

    async def _ask(self, channel: Channel, follower: FollowerState, question: Question) -> Any:  # noqa: ANN401 - a part of a decoded response
        version = SEQUENCE if isinstance(self.algorithm, AllEpochs) else ONE_EPOCH
        asked: dict[str, object] = {"leader_epoch": question.latest}
        if version == SEQUENCE:
            asked = {
                "leader_epochs": [{"leader_epoch": one.epoch, "end_offset": one.offset} for one in question.epochs]
            }
        partition = {
            "partition": follower.partition.index,
            "current_leader_epoch": follower.leader_epoch,
            **asked,
        }
        topics = [{"topic": follower.partition.topic, "partitions": [partition]}]
        body = messages.encode_request(KEY, version, replica_id=self.node_id, topics=topics)
        response = await channel.request_raw(
            KEY, version, [body], lambda data: messages.decode_response(KEY, version, data)
        )
        return response.topics[0].partitions[0]


def handle(node: AsksByAlgorithm, ctx: RequestContext, request: Any) -> Reply:  # noqa: ANN401 - of several versions
    if ctx.version not in (ONE_EPOCH, SEQUENCE):
        return offset_for_leader_epoch.handle(node, ctx, request)
    topics = [
        {"topic": topic.topic, "partitions": [_answered(node, topic.topic, one) for one in topic.partitions]}
        for topic in request.topics
    ]
    return {"topics": topics}


def _answered(node: AsksByAlgorithm, topic: str, asked: Any) -> dict[str, int]:  # noqa: ANN401 - of several versions
    try:
        log = node.partitions.get(topic, asked.partition).require(asked.current_leader_epoch)
    except KafkaError as error:
        return {"partition": asked.partition, "error_code": int(error.code), "end_offset": NO_OFFSET}
    error_code, end = _end(node.algorithm, log, asked)
    return {"partition": asked.partition, "error_code": error_code, "end_offset": end}


def _end(algorithm: Algorithm, log: UnifiedLog, asked: Any) -> tuple[int, int]:  # noqa: ANN401 - of several versions
    epochs = messages.get(asked, "leader_epochs", ())
    ends = [EpochEnd(LeaderEpoch(one.leader_epoch), Offset(one.end_offset)) for one in epochs]
    one_epoch = messages.get(asked, "leader_epoch", NO_OFFSET)
    question = Question(tuple(ends or [EpochEnd(LeaderEpoch(one_epoch), Offset(NO_OFFSET))]))
    answer = algorithm.answer(log, question)
    error = UNKNOWN_OFFSET_FOR_LEADER_EPOCH if answer.error is not None else 0
    return error, NO_OFFSET if answer.end_offset is None else answer.end_offset
