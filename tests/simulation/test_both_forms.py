"""The compiled and the pure form behave alike: the same seed gives the same network traffic and the same trace."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import milena.form

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("MILENA_SEEDS_OF_BOTH_FORMS", "4"))


def lines(pure: str, *arguments: str) -> list[str]:
    """The lines that a module prints in this form."""
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, milena.form.VARIABLE: pure}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout.splitlines() or [done.stderr]


def last_line(seed: int, pure: str) -> str:
    """The last line of a run of this seed, which has the digest."""
    return lines(pure, "milena", "sim", "--seed", str(seed), "--tier", "on" if seed % 2 else "off")[-1]


built = pytest.mark.skipif(
    not (ROOT / milena.form.TREE / milena.form.NOTE).exists(), reason="there is no compiled form"
)


@pytest.mark.timeout(1200)
@built
def test_seeds_have_the_same_digests_in_both_forms() -> None:
    runs = [(6000 + number, pure) for number in range(SEEDS) for pure in "10"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(runs, pool.map(lambda run: last_line(*run), runs), strict=True))
    for seed, _ in runs[::2]:
        assert results[seed, "1"] == results[seed, "0"]
    assert all("passed, no violations, digest" in result for result in results.values())


@built
@pytest.mark.parametrize("seed", range(SEEDS))
def test_damaged_bytes_are_read_or_refused_alike_in_both_forms(seed: int) -> None:
    pure, compiled = (lines(form, "tests.simulation.hostile_bytes", str(seed)) for form in "10")
    assert len(pure) > 1000
    for ours, theirs in zip(pure, compiled, strict=True):
        assert ours == theirs
