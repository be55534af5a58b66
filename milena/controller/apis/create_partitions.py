"""CreatePartitions (key 37), versions 0-3: add partitions to topics. KIP-195."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from milena.controller.commands.topics import NewPartitions, create_partitions
from milena.controller.state.result import RECORDS_PER_STEP, Committing, Result
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.protocol.apis import (
        CreatePartitionsRequest,
        CreatePartitionsResponseFields,
        CreatePartitionsTopicResultFields,
    )
    from milena.runtime.context import Runtime


class Needs(Committing, Protocol):
    """What this handler uses of its controller."""

    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: CreatePartitionsRequest) -> Reply[CreatePartitionsResponseFields]:
    requested = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]

    def decide() -> Result[list[tuple[str, KafkaError | None]]]:
        return create_partitions(node.state, requested, node.runtime.random, validate_only=request.validate_only)

    if sum(max(topic.count, 1) for topic in requested) > RECORDS_PER_STEP:
        return node.commit_in_steps(decide, _answer)
    return node.commit(decide(), _answer)


def failed(ctx: RequestContext, request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponseFields:
    return {"results": [_result(topic.name, error) for topic in request.topics]}


def _answer(outcomes: Iterable[tuple[str, KafkaError | None]]) -> CreatePartitionsResponseFields:
    return {"results": [_result(*outcome) for outcome in outcomes]}


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResultFields:
    return {
        "name": name,
        "error_code": int(error.code) if error else 0,
        "error_message": error.text if error else None,
    }
