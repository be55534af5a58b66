"""The limits of a search for hanging transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from milena.client import transactions as client_transactions
from milena.client.transactions import ActiveProducer, OpenTransaction
from milena.console import transactions
from milena.console.model import Key
from milena.console.transactions import AT_ONCE, MOST_OPENED, MOST_SEARCHED, search_hanging

CLIENT: Any = None
PARTITIONS: list[Key] = [("orders", number) for number in range(MOST_SEARCHED + 1)]


def opened(partition: Key) -> OpenTransaction:
    return OpenTransaction(partition, ActiveProducer(7, 0, 0, 0, last_timestamp=0, start_offset=0))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[OpenTransaction]:
    """The transactions that coordinators are asked for. Each partition has one, and all of them hang."""
    asked: list[OpenTransaction] = []

    async def open_transactions(_: object, partitions: list[Key], *, open_for_ms: int) -> list[OpenTransaction]:
        return [opened(one) for one in partitions]

    async def hanging_among(_: object, some: Collection[OpenTransaction]) -> list[OpenTransaction]:
        asked.extend(some)
        return list(some)

    monkeypatch.setattr(client_transactions, "open_transactions", open_transactions)
    monkeypatch.setattr(client_transactions, "hanging_among", hanging_among)
    return asked


async def test_a_search_of_few_partitions_is_complete(asked: list[OpenTransaction]) -> None:
    found, incomplete = await search_hanging(CLIENT, PARTITIONS[: AT_ONCE + 1], 0)
    assert (found, incomplete) == ([opened(one) for one in PARTITIONS[: AT_ONCE + 1]], "")


async def test_a_search_says_that_it_has_not_searched_all_partitions(asked: list[OpenTransaction]) -> None:
    found, incomplete = await search_hanging(CLIENT, PARTITIONS, 0)
    assert len(found) == MOST_SEARCHED
    assert incomplete == "1,000 of 1,001 partitions with open transactions were searched"


async def test_a_partition_with_more_open_transactions_than_a_search_looks_up_is_not_searched(
    asked: list[OpenTransaction], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def open_transactions(_: object, partitions: list[Key], **__: object) -> list[OpenTransaction]:
        return [opened(one) for one in partitions for _ in range(MOST_OPENED)]

    monkeypatch.setattr(client_transactions, "open_transactions", open_transactions)
    _, incomplete = await search_hanging(CLIENT, PARTITIONS[:2], 0)
    assert len(asked) == MOST_OPENED
    assert incomplete == "0 of 2 partitions with open transactions were searched"


async def test_a_search_that_takes_too_long_returns_what_it_has_found(
    asked: list[OpenTransaction], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hanging_among(_: object, some: list[OpenTransaction]) -> list[OpenTransaction]:
        if asked:
            await asyncio.Event().wait()
        asked.extend(some)
        return some

    monkeypatch.setattr(client_transactions, "hanging_among", hanging_among)
    monkeypatch.setattr(transactions, "SEARCH_SECONDS", 0.01)
    found, incomplete = await search_hanging(CLIENT, PARTITIONS[: 2 * AT_ONCE], 0)
    assert found == [opened(one) for one in PARTITIONS[:AT_ONCE]]
    assert incomplete == "100 of 200 partitions with open transactions were searched"


async def test_a_search_waits_for_the_one_before_it(
    asked: list[OpenTransaction], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "SEARCH_SECONDS", 0.01)
    async with transactions.ONE_AT_A_TIME:
        found, incomplete = await asyncio.create_task(search_hanging(CLIENT, PARTITIONS[:1], 0))
    assert (found, incomplete) == ([], "0 of 1 partitions with open transactions were searched")
