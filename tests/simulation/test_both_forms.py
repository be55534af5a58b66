"""The compiled form does what the pure one does: the same seed has the same network traffic and the same trace."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import milena.form

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("MILENA_SEEDS_OF_BOTH_FORMS", "4"))


def told(seed: int, pure: str) -> str:
    """What a run of this seed says of itself in the end."""
    command = [sys.executable, "-m", "milena", "sim", "--seed", str(seed), "--tier", "on" if seed % 2 else "off"]
    environment = {**os.environ, milena.form.VARIABLE: pure}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    return (done.stdout.splitlines() or [done.stderr])[-1]


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not (ROOT / milena.form.TREE / milena.form.NOTE).exists(), reason="there is no compiled form")
def test_seeds_have_the_same_digests_in_both_forms() -> None:
    runs = [(6000 + number, pure) for number in range(SEEDS) for pure in "10"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(runs, pool.map(lambda run: told(*run), runs), strict=True))
    for seed, _ in runs[::2]:
        assert results[seed, "1"] == results[seed, "0"]
    assert all("passed, no violations, digest" in result for result in results.values())
