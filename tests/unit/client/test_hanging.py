"""Which open transactions no coordinator will end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from milena.client import transactions
from milena.client.transactions import ActiveProducer, OpenTransaction, hanging_among
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.unit.client.scripted_cluster import TOPIC, ScriptedCluster


class Coordinator(ScriptedCluster):
    """``ids``: the partitions of each transactional id's transaction. The producer id is the position of the id."""

    def __init__(self, ids: dict[str, Sequence[int]]) -> None:
        super().__init__()
        self.ids = ids

    def _answers(self) -> dict[ApiKey, Callable[[int, Any, ErrorCode], dict[str, object]]]:
        return super()._answers() | {
            ApiKey.LIST_TRANSACTIONS: self._list,
            ApiKey.DESCRIBE_TRANSACTIONS: self._describe,
        }

    def _list(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        listed = [
            {"transactional_id": name, "producer_id": number, "transaction_state": "Ongoing"}
            for number, name in enumerate(self.ids)
            if number in request.producer_id_filters
        ]
        return {"error_code": 0, "unknown_state_filters": [], "transaction_states": listed}

    def _describe(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        return {"transaction_states": [self._described(name, code) for name in request.transactional_ids]}

    def _described(self, name: str, code: ErrorCode) -> dict[str, object]:
        return {
            "error_code": code,
            "transactional_id": name,
            "transaction_state": "Ongoing",
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": 0,
            "producer_id": list(self.ids).index(name),
            "producer_epoch": 0,
            "topics": [{"topic": TOPIC, "partitions": list(self.ids[name])}],
        }


def opened(producer: int, partition: int = 0) -> OpenTransaction:
    return OpenTransaction((TOPIC, partition), ActiveProducer(producer, 0, 0, 0, last_timestamp=0, start_offset=0))


async def test_a_transaction_hangs_if_its_id_does_not_have_the_partition_or_does_not_exist() -> None:
    cluster = Coordinator({"a": [0], "b": [1]})
    found = await hanging_among(cluster, [opened(0), opened(1), opened(2)])
    assert found == [opened(1), opened(2)]


async def test_many_ids_are_described_in_few_requests() -> None:
    number = 2 * transactions.MOST_DESCRIBED + 1
    cluster = Coordinator({f"id-{one}": [0] for one in range(number)})
    assert await hanging_among(cluster, [opened(producer) for producer in range(number)]) == []
    assert cluster.asked() == ["LIST_TRANSACTIONS", *["DESCRIBE_TRANSACTIONS"] * 3]


async def test_an_id_whose_coordinator_has_changed_is_described_by_the_present_one() -> None:
    cluster = Coordinator({"a": [0]})
    cluster.errors[ApiKey.DESCRIBE_TRANSACTIONS].append(ErrorCode.NOT_COORDINATOR)
    assert await hanging_among(cluster, [opened(0)]) == []


async def test_an_id_that_was_deleted_after_it_was_listed_ends_nothing() -> None:
    cluster = Coordinator({"a": [0]})
    cluster.errors[ApiKey.DESCRIBE_TRANSACTIONS] += [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND] * 2
    assert await hanging_among(cluster, [opened(0)]) == [opened(0)]
