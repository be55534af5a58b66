"""DescribeTransactions (key 65), version 0: the state of transactional ids that this broker coordinates. KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.serving.repeats import Repeats
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.hashing import hashing_units

if TYPE_CHECKING:
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.broker.transactions.model import Transaction
    from milena.protocol.apis import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponseFields,
        DescribeTransactionsTransactionStateFields,
    )


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def transactions(self) -> TransactionCoordinator: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeTransactionsRequest
) -> Cooperative[DescribeTransactionsResponseFields]:
    """Describe the transactional ids. Raises KafkaError INVALID_REQUEST if repeated ids make the response too large
    (``Repeats``)."""
    budget, repeats = YieldBudget(), Repeats()
    states: list[DescribeTransactionsTransactionStateFields] = []
    for transactional_id in request.transactional_ids:
        try:
            found = node.transactions.find(transactional_id)
            error = ErrorCode.NONE if found is not None else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        except KafkaError as refusal:
            found, error = None, refusal.code
        repeats.note(transactional_id, 1 if found is None else 1 + len(found.partitions))
        if found is None:
            states.append(_refused(transactional_id, error))
        else:
            states.append((yield from _described(transactional_id, found, budget)))
        if budget.spend(hashing_units(transactional_id)):
            yield
    return {"transaction_states": states}


def failed(
    ctx: RequestContext, request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponseFields:
    return {
        "transaction_states": [_refused(transactional_id, error.code) for transactional_id in request.transactional_ids]
    }


def _refused(transactional_id: str, error: ErrorCode) -> DescribeTransactionsTransactionStateFields:
    """As in Kafka, the start time is 0 and not that of an id without a transaction."""
    return {"transactional_id": transactional_id, "error_code": error, "transaction_start_time_ms": 0}


def _described(
    transactional_id: str, found: Transaction, budget: YieldBudget
) -> Cooperative[DescribeTransactionsTransactionStateFields]:
    """Describe a state, which never changes: a transition makes another."""
    topics: dict[str, list[int]] = {}
    for topic, partition in found.partitions:
        topics.setdefault(topic, []).append(partition)
        if budget.spend(1):
            yield
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state.label,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.start_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }
