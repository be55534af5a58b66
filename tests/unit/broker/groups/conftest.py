"""Fixtures of the groups' tests."""

from __future__ import annotations

import pytest

from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.coordinators import Coordinated, Turn


@pytest.fixture
def coordinated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Coordinated:
    async def turn(_: float) -> None:
        await Turn()

    monkeypatch.setattr(bench.clock, "sleep", turn)
    return Coordinated(bench)
