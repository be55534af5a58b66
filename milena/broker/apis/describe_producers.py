"""DescribeProducers (key 61), version 0: the active producers of partitions that this broker hosts. KIP-664."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.serving.repeats import Repeats
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.topic_names import topic_name_problem
from milena.storage.state.producer_state import ProducerEntry

if TYPE_CHECKING:
    from milena.broker.replica.partitions import PartitionSet
    from milena.protocol.apis import (
        DescribeProducersRequest,
        DescribeProducersResponseFields,
        PartitionResponseFields,
        ProducerStateFields,
        TopicResponseFields,
    )


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def partitions(self) -> PartitionSet: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeProducersRequest
) -> Cooperative[DescribeProducersResponseFields]:
    """Describe the producers. Raises KafkaError INVALID_REQUEST if repeated partitions make the response too large
    (``Repeats``)."""
    repeats = Repeats()

    def describe(topic: str, index: int) -> PartitionResponseFields:
        described = _partition(node, topic, index)
        repeats.note((topic, index), 1 + len(described["active_producers"]))
        return described

    budget = YieldBudget()
    topics: list[TopicResponseFields] = []
    for topic in request.topics:
        partitions = yield from budget.apply(topic.partition_indexes, partial(describe, topic.name))
        topics.append({"name": topic.name, "partitions": partitions})
        if budget.spend(1):
            yield
    return {"topics": topics}


def _partition(node: Needs, topic: str, index: int) -> PartitionResponseFields:
    error, message = ErrorCode.NONE, None
    producers: list[ProducerStateFields] = []
    try:
        if topic_name_problem(topic) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = node.partitions.get(topic, index).online_log
        producers = [_producer(producer_id, entry) for producer_id, entry in log.producers]
    except KafkaError as failure:
        error, message = failure.code, failure.text
    return {
        "partition_index": index,
        "error_code": int(error),
        "error_message": message,
        "active_producers": producers,
    }


def _producer(producer_id: int, entry: ProducerEntry) -> ProducerStateFields:
    return {
        "producer_id": producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.last_sequence,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": -1 if entry.txn_first_offset is None else entry.txn_first_offset,
    }
