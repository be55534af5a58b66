"""A controller and three to five brokers under load and faults: what Kafka promises is kept, a seed has one history.

`make sim SEED=n` runs one seed and prints its trace; `make soak SECONDS=n` runs others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.histories.events import Poll, Send
from lab.seeded import run_seed

SEEDS = 20
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_promises_are_kept(seed: int) -> None:
    report = run_seed(seed)
    assert not report.violations, f"make sim SEED={seed}\n" + "\n".join(report.violations[:10])
    assert sum(isinstance(event, Send) for event in report.history) > 100
    assert sum(isinstance(event, Poll) for event in report.history) > 20


def test_a_seed_has_one_history_in_any_process() -> None:
    """`milena sim` prints the same trace, with all that the nodes log, whatever the order of sets and of addresses."""
    one, other = (_trace_of(7, hash_seed) for hash_seed in ("1", "2"))
    assert one == other
    assert "right, digest" in one.splitlines()[-1]


def test_another_seed_has_another_history() -> None:
    assert run_seed(1).digest != run_seed(2).digest


def _trace_of(seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "milena", "sim", "--seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
