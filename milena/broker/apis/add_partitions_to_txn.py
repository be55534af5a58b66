"""AddPartitionsToTxn (key 24), versions 0-5: add partitions to transactions.

Clients send versions 0-3 with one transaction. Brokers send v4 and later with many, either to add partitions for a
client of transaction version 2, or to verify that partitions were added (KIP-890). KIPs: 98, 588 (v2: PRODUCER_FENCED),
890 (v4, and v5: TRANSACTION_ABORTABLE).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.transactions.additions import Added, add_or_verify, size_of
from milena.broker.transactions.model import fenced_code
from milena.node.api import RequestContext
from milena.node.serving.repeats import Repeats
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode
from milena.protocol.features import EPOCH_BUMP_VERSION
from milena.protocol.records.hashing import hashing_units
from milena.protocol.types import ProducerEpoch, ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponseFields,
        AddPartitionsToTxnResultFields,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTopicResultFields,
    )

_FENCED_SINCE: Final = 2
_BATCHED_SINCE: Final = 4


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...


@dataclass(frozen=True, slots=True)
class _Addition:
    """The partitions of one transaction in a request."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    topics: Sequence[AddPartitionsToTxnTopic]
    partitions: Mapping[TopicPartition, None]
    verify_only: bool


def handle(
    node: Needs, ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> Cooperative[AddPartitionsToTxnResponseFields | None]:
    """The response is sent when the records of all transactions are committed or refused."""
    additions = yield from _read(ctx, request)
    results: dict[int, AddPartitionsToTxnResultFields] = {}

    @ctx.answering
    def finished(number: int, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        addition = additions[number]
        results[number] = {
            "transactional_id": addition.transactional_id,
            # As in Kafka, where the result of a verification is a map of partitions.
            "topic_results": _topic_results(
                [topic for topic in addition.topics if topic.partitions or not addition.verify_only], errors
            ),
        }
        if len(results) == len(additions):
            ctx.respond_fields(**_response(ctx, [results[index] for index in range(len(additions))]))

    _limit_repeats(node, additions)
    budget = YieldBudget()
    for number, addition in enumerate(additions):
        _add(node, ctx, addition, partial(finished, number))
        if budget.spend(hashing_units(addition.transactional_id) + len(addition.partitions) + _size(node, addition)):
            yield
    return None if additions else _response(ctx, [])


def _read(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> Cooperative[list[_Addition]]:
    if ctx.version < _BATCHED_SINCE:
        producer = ProducerIdAndEpoch(
            request.v3_and_below_producer_id, ProducerEpoch(request.v3_and_below_producer_epoch)
        )
        topics = request.v3_and_below_topics
        partitions = yield from _partitions(topics)
        return [_Addition(request.v3_and_below_transactional_id, producer, topics, partitions, False)]
    additions = list[_Addition]()
    for one in request.transactions:
        producer = ProducerIdAndEpoch(one.producer_id, ProducerEpoch(one.producer_epoch))
        partitions = yield from _partitions(one.topics)
        additions.append(_Addition(one.transactional_id, producer, one.topics, partitions, one.verify_only))
    return additions


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> Cooperative[dict[TopicPartition, None]]:
    found = dict[TopicPartition, None]()
    budget = YieldBudget()
    for topic in topics:
        name = topic.name
        found.update(dict.fromkeys([(name, index) for index in topic.partitions]))
        if budget.spend(1 + len(topic.partitions)):
            yield
    return found


def _add(node: Needs, ctx: RequestContext, addition: _Addition, done: Added) -> None:
    """Add or verify the partitions of one transaction. ``done`` gets the error of each partition."""

    def answered(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        done({partition: fenced_code(error, ctx.version, _FENCED_SINCE) for partition, error in errors.items()})

    add_or_verify(
        node.transactions,
        node.image,
        addition.transactional_id,
        addition.producer,
        addition.partitions,
        done if ctx.version >= _FENCED_SINCE else answered,
        verify_only=addition.verify_only,
        client_version=EPOCH_BUMP_VERSION if ctx.version >= _BATCHED_SINCE else 0,
    )


def _limit_repeats(node: Needs, additions: Sequence[_Addition]) -> None:
    """Each addition writes a record with all partitions of its transaction. Raises KafkaError INVALID_REQUEST if the
    request repeats a transactional id so often that it would write too much. Brokers name each one once."""
    if len(additions) > 1:
        repeats = Repeats()
        for addition in additions:
            repeats.note(addition.transactional_id, len(addition.partitions) + _size(node, addition))


def _size(node: Needs, addition: _Addition) -> int:
    return size_of(node.transactions, addition.transactional_id, verify_only=addition.verify_only)


def _topic_results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResultFields]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": errors[topic.name, index]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


def _response(ctx: RequestContext, results: list[AddPartitionsToTxnResultFields]) -> AddPartitionsToTxnResponseFields:
    if ctx.version >= _BATCHED_SINCE:
        return {"error_code": ErrorCode.NONE, "results_by_transaction": results}
    return {"results_by_topic_v3_and_below": results[0]["topic_results"]}
