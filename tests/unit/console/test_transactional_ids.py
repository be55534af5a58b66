"""The search of transactional ids by a text."""

from __future__ import annotations

from typing import Any

import pytest

from milena.client.transactions import TransactionListing
from milena.console import transactional_ids
from milena.console.context import LONGEST_STRING


@pytest.mark.parametrize("text", ["a" * LONGEST_STRING, "-" * 20_000])
async def test_a_text_whose_pattern_is_too_long_for_a_request_is_searched_here(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    asked: list[str | None] = []

    async def list_transactions(*_: object, pattern: str | None = None, **__: object) -> list[TransactionListing]:
        asked.append(pattern)
        return [TransactionListing(name, 1, 7, "Ongoing") for name in ("other", text)]

    monkeypatch.setattr(transactional_ids, "list_transactions", list_transactions)
    client: Any = None
    assert [one.transactional_id for one in await transactional_ids.listed(client, (), text)] == [text]
    assert asked == [None]
