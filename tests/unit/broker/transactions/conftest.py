"""Fixtures of the transactions' tests."""

from __future__ import annotations

import pytest

from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.coordinators import Turn
from tests.unit.broker.transactions.coordinators import Coordinated


@pytest.fixture
def coordinated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Coordinated:
    async def turn(_: float) -> None:
        await Turn()

    monkeypatch.setattr(bench.clock, "sleep", turn)
    return Coordinated(bench)
