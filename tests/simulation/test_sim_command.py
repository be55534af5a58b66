"""The command `milena sim`, run as a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from milena.lab.chaos.simulated.seeds import KINDS
from milena.lab.histories import events
from milena.lab.histories.checker import check
from milena.lab.histories.events import FinalLog, Send

ROOT = Path(__file__).parents[2]


def sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "milena", "sim", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def faults_in(trace: str) -> set[str]:
    """The kinds of faults that the nemesis has noted in the trace."""
    return {kind.value for kind in KINDS if re.search(rf"^ *[0-9.]+ {kind.value} .*for [0-9.]+ s$", trace, re.M)}


def test_steps_and_kinds_of_faults_are_as_requested_and_the_history_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "history"
    done = sim("--seed", "3", "--steps", "2", "--faults", "kill", "--history", str(path))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert faults_in(done.stdout) == {"kill"}
    assert len(re.findall(r" kill [0-9]+ is mended", done.stdout)) == 2
    assert done.stdout.splitlines()[-1].startswith("seed 3: passed, no violations, digest ")
    history = list(events.read(path.read_text().splitlines()))
    assert check(history) == []
    assert {Send, FinalLog} <= {type(event) for event in history}


def test_without_steps_a_run_has_no_faults_of_nodes() -> None:
    done = sim("--seed", "1", "--steps", "0")
    assert done.returncode == 0
    assert not faults_in(done.stdout)


def test_a_soak_runs_seeds_until_the_time_is_over_and_prints_their_number() -> None:
    done = sim("--soak", "0.1", "--steps", "0")
    assert done.returncode == 0
    assert done.stdout.startswith("1 seed passed, ")
    assert "simulated hours" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--faults", "kill,quake"], "--faults: unknown fault 'quake'; there are kill, stop, "),
        (["--steps", "-1"], "--seed and --steps must not be negative"),
        (["--tier", "maybe"], "--tier maybe: must be on or off"),
        (["--groups", "maybe"], "--groups maybe: must be on or off"),
        (["--seed", "x"], "--seed x: not a whole number"),
        (["--soak", "-4"], "--soak -4: not a number of seconds"),
        (["--soak", "nan"], "--soak nan: not a number of seconds"),
        (["--soak", "long"], "--soak long: not a number"),
        (["--history", "/nowhere/at/all", "--steps", "0"], "/nowhere/at/all"),
    ],
)
def test_errors_name_the_wrong_argument(arguments: list[str], sentence: str) -> None:
    done = sim(*arguments)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
