"""Fixtures of the groups' tests."""

from __future__ import annotations

import pytest

from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.coordinators import Coordinated, let_tasks_run


@pytest.fixture
def coordinated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Coordinated:
    return Coordinated(let_tasks_run(bench, monkeypatch))
