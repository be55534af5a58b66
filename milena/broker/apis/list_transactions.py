"""ListTransactions (key 66), versions 0-2: the transactional ids that this broker coordinates, filtered by state and
producer id (KIP-664), by duration (v1, KIP-994) and by a regular expression (v2, KIP-1152)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, overload

from milena.broker.transactions.model import Transaction
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.regular_expressions import InvalidPattern, Pattern
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.protocol.apis import (
        ListTransactionsRequest,
        ListTransactionsResponseFields,
        ListTransactionsTransactionStateFields,
    )
    from milena.runtime.context import Runtime

NO_DURATION: Final = -1
_STATES: Final = {state.label: state for state in TransactionState}


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def runtime(self) -> Runtime: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...


@dataclass(frozen=True, slots=True)
class Filters:
    """What is listed. As in Kafka, a duration counts from the start of the last transaction, also if it has ended, and
    from 1970 for an id without one."""

    states: frozenset[TransactionState] | None
    producer_ids: frozenset[int] | None
    started_before_ms: int | None
    pattern: Pattern | None

    def match(self, transactional_id: str, found: Transaction, budget: YieldBudget) -> Cooperative[bool]:
        if self.producer_ids is not None and found.producer_id not in self.producer_ids:
            return False
        if self.states is not None and found.state not in self.states:
            return False
        if self.started_before_ms is not None and found.start_ms >= self.started_before_ms:
            return False
        return self.pattern is None or (yield from self.pattern.match(transactional_id, budget))


class Listed(Sequence["ListTransactionsTransactionStateFields"]):
    """The listed ids as fields of the response, which are made one by one: a million of them would need 300 MB, and the
    garbage collector would look at all of them again and again."""

    def __init__(self, ids: list[str], states: list[Transaction]) -> None:
        self._ids = ids
        self._states = states

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> ListTransactionsTransactionStateFields: ...
    @overload
    def __getitem__(self, index: slice) -> Listed: ...
    def __getitem__(self, index: int | slice) -> ListTransactionsTransactionStateFields | Listed:
        if isinstance(index, slice):
            return Listed(self._ids[index], self._states[index])
        return _fields(self._ids[index], self._states[index])

    def __iter__(self) -> Iterator[ListTransactionsTransactionStateFields]:
        return map(_fields, self._ids, self._states)


def handle(
    node: Needs, ctx: RequestContext, request: ListTransactionsRequest
) -> Cooperative[ListTransactionsResponseFields]:
    """List the ids. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION."""
    shards = node.transactions.shards()
    filters = _filters(request, node.runtime.clock.time_ms())
    budget = YieldBudget()
    ids: list[str] = []
    states: list[Transaction] = []
    for shard in shards:
        for transactional_id in list(shard.transactions):
            present = shard.get(transactional_id)
            if present is not None and (yield from filters.match(transactional_id, present, budget)):
                ids.append(transactional_id)
                states.append(present)
            if budget.spend(1):
                yield
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": [name for name in dict.fromkeys(request.state_filters) if name not in _STATES],
        "transaction_states": Listed(ids, states),
    }


def _filters(request: ListTransactionsRequest, now_ms: int) -> Filters:
    duration_ms = get(request, "duration_filter", NO_DURATION)
    text = get(request, "transactional_id_pattern", None)
    names = request.state_filters
    try:
        pattern = Pattern(text) if text else None
    except InvalidPattern as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    return Filters(
        frozenset(_STATES[name] for name in names if name in _STATES) if names else None,
        frozenset(request.producer_id_filters) if request.producer_id_filters else None,
        now_ms - duration_ms if duration_ms >= 0 else None,
        pattern,
    )


def _fields(transactional_id: str, found: Transaction) -> ListTransactionsTransactionStateFields:
    return {
        "transactional_id": transactional_id,
        "producer_id": found.producer_id,
        "transaction_state": found.state.label,
    }
