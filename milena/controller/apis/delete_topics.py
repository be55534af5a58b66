"""DeleteTopics (key 20), versions 1-6: by name, since v6 also by id. ``delete.topic.enable`` may forbid it.

KIPs: 4, 516, 599 (TOPIC_DELETION_DISABLED, v3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.controller.commands.topics import Deletion, DoomedTopic, delete_topics
from milena.controller.state.result import Committing
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig
    from milena.protocol.apis import DeleteTopicsRequest, DeleteTopicsResponseFields


class Needs(Committing, Protocol):
    """What this handler uses of its controller."""

    @property
    def config(self) -> NodeConfig: ...


def handle(node: Needs, ctx: RequestContext, request: DeleteTopicsRequest) -> Reply[DeleteTopicsResponseFields]:
    if not node.config.get_bool("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED if ctx.version >= 3 else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "Topic deletion is disabled: delete.topic.enable is false.")
    return node.commit(delete_topics(node.state, _requested(ctx, request)), _answer)


def failed(ctx: RequestContext, request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponseFields:
    return _answer([Deletion(topic.name, topic.id, error) for topic in _requested(ctx, request)])


def _requested(ctx: RequestContext, request: DeleteTopicsRequest) -> list[DoomedTopic]:
    if ctx.version >= 6:
        return [DoomedTopic(topic.name, topic.topic_id) for topic in request.topics]
    return [DoomedTopic(name, None) for name in request.topic_names]


def _answer(outcomes: list[Deletion]) -> DeleteTopicsResponseFields:
    return {
        "responses": [
            {
                "name": outcome.name,
                "topic_id": outcome.id,
                "error_code": int(outcome.error.code) if outcome.error else 0,
                "error_message": outcome.error.text if outcome.error else None,
            }
            for outcome in outcomes
        ]
    }
