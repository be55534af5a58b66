"""Chaos runs in the simulation: no records are lost, and a seed gives the same run each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.lab.chaos.faults import Kind
from milena.lab.chaos.journal import events, faults
from milena.lab.chaos.runner import PLAN, Order
from milena.lab.chaos.simulated.place import run_simulated
from milena.lab.histories.events import AllowedDeletion, Send
from milena.lab.world.trace import quiet_logs

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_logs()


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_with_safe_settings(seed: int, tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(seed, 20, pace=0.3), tmp_path)
    assert not verdict.violations
    assert verdict.writes > 100
    assert list(faults(tmp_path / "history.jsonl"))


@pytest.mark.slow
def test_nothing_is_lost_when_a_directory_fails_and_the_tier_is_away_or_wrong(tmp_path: Path) -> None:
    kinds = [Kind.LOST_DIRECTORY, Kind.TIER_UNMOUNTED, Kind.ODD_TIER, Kind.RESTART]
    verdict, _ = run_simulated(Order(1, 45, kinds, pace=0.6), tmp_path)
    assert not verdict.violations
    assert {fault.kind for fault in faults(tmp_path / "history.jsonl")} == set(kinds)


def test_a_seed_gives_the_same_run_twice(tmp_path: Path) -> None:
    _, first = run_simulated(Order(3, 5, pace=0.5), tmp_path / "first")
    _, second = run_simulated(Order(3, 5, pace=0.5), tmp_path / "second")
    assert first == second
    plans = [(tmp_path / name / PLAN).read_text() for name in ("first", "second")]
    assert plans[0] and plans[0] == plans[1]
    assert any(isinstance(event, Send) for event in events(tmp_path / "first" / "history.jsonl"))


@pytest.mark.slow
def test_nothing_else_is_lost_when_administrators_delete_records_and_switch_the_tier(tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(2, 40, [Kind.KILL, Kind.TIER_AWAY], pace=0.3, deletions=True), tmp_path)
    assert not verdict.violations
    reasons = {one.reason for one in events(tmp_path / "history.jsonl") if isinstance(one, AllowedDeletion)}
    assert reasons == {"DeleteRecords", "remote.log.delete.on.disable"}
