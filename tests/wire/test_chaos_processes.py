"""Short chaos runs on processes of this machine (`milena chaos` runs longer ones), and the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from milena.commands.chaos import main
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.journal import faults
from milena.lab.chaos.runner import Order, run
from milena.testing.chaos_processes import FOLDER, FSSPEC, ProcessesPlace
from tests.wire.command import milena

SECONDS = 40.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


async def test_no_record_is_lost_while_nodes_are_killed_and_cut_off(tmp_path: Path) -> None:
    kinds = [Kind.KILL, Kind.ISOLATE, Kind.CONTROLLER, Kind.POWER_LOSS]
    place = await ProcessesPlace.open(tmp_path / "cluster")
    try:
        verdict = await run(Order(4, 12, kinds), place, tmp_path / "report")
    finally:
        await place.keep(tmp_path / "logs")
        await place.close()
    assert not verdict.violations
    assert verdict.writes > 100
    assert list(faults(tmp_path / "report" / "history.jsonl"))
    assert {path.stem for path in (tmp_path / "logs").iterdir()} > {"broker-1", "broker-2", "broker-3"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tier", "kinds"),
    [
        (FOLDER, [Kind.LOST_DIRECTORY, Kind.TIER_UNMOUNTED, Kind.ODD_TIER, Kind.FULL_DISK]),
        (FSSPEC, [Kind.ODD_TIER, Kind.RESTART]),
    ],
)
async def test_no_record_is_lost_under_faults_of_log_directories_and_the_tier(
    tier: str, kinds: list[Kind], tmp_path: Path
) -> None:
    folder = tmp_path / "cluster"
    place = await ProcessesPlace.open(folder, tier=tier)
    try:
        verdict = await run(Order(7, SECONDS, kinds, pace=0.3), place, tmp_path / "report", measured=True)
        others = [word for path in sorted(folder.glob("broker-*/data-2")) for word in ("--dir", str(path))]
        url = f"{folder}/remote" if tier == FOLDER else f"local://{folder}/remote"
        await asyncio.to_thread(milena, "tier", "verify", "--tier", url, "--dir", str(folder), *others)
    finally:
        await place.keep(tmp_path / "logs")
        await place.close()
    assert not verdict.violations
    assert verdict.writes > 100
    assert {fault.kind for fault in faults(tmp_path / "report" / "history.jsonl")} <= set(kinds)


def test_a_failed_run_prints_the_command_that_repeats_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run fails because it is unsafe but has no fault that loses records, so that it cannot find an anomaly."""
    arguments = ["--on", "simulation", "--seed", "3", "--seconds", "2", "--faults", "hang", "--unsafe"]
    assert main([*arguments, "--pace", "0.5", "--report", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "failed: 0 anomalies" in said
    assert said[-1].startswith("to repeat: milena chaos --on simulation --seed 3")
    assert json.loads((tmp_path / "run.json").read_text())["faults"] == ["hang"]
