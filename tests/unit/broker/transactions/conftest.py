"""Fixtures of the transactions' tests."""

from __future__ import annotations

import pytest

from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.coordinators import let_tasks_run
from tests.unit.broker.transactions.coordinators import Coordinated


@pytest.fixture
def coordinated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Coordinated:
    return Coordinated(let_tasks_run(bench, monkeypatch))
