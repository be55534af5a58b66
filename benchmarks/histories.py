"""Judging a long history of client operations in one process: cost per million operations."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.peers import Peer
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from milena.testing.local_cluster import MILENA
from tests.unit.lab.long_histories import PLANTED, long_history

MILLION: Final = 1_000_000
FOUND: Final = 1
"""The exit code if there are anomalies."""


class Judged(NamedTuple):
    anomalies: list[str]
    seconds: float
    """Wall time."""
    cpu: float
    """CPU seconds."""
    peak_mib: float
    """Peak resident memory."""


def histories(peer: Peer, sizes: Sizes) -> Rounds:
    """The checker is not compiled: one flavour is enough. Raises RuntimeError if it finds other anomalies than the
    planted ones."""
    with tempfile.TemporaryDirectory(prefix="bench-histories-") as name:
        path = Path(name) / "history.jsonl"
        with path.open("w") as file:
            file.writelines(long_history(sizes.history_operations))
        alone = _judged(["history", "check", str(path)])
    _check(alone.anomalies)
    millions = sizes.history_operations / MILLION
    yield {
        "history_check_s": alone.seconds / millions,
        "history_check_cpu_s": alone.cpu / millions,
        "history_check_memory_mib": alone.peak_mib,
    }


def _judged(words: list[str]) -> Judged:
    """Return a command's output without its last line, which differs. Raises RuntimeError."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*MILENA, *words], stdout=out, stderr=errors)
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                process.kill()
        seconds = time.perf_counter() - begin
        out.seek(0)
        errors.seek(0)
        if code != FOUND:
            raise RuntimeError(f"milena {' '.join(words)} ended with {code}: {errors.read()[-2000:]}")
        cpu = usage.ru_utime + usage.ru_stime
        return Judged(out.read().splitlines()[:-1], seconds, cpu, usage.ru_maxrss / 1024)


def _check(anomalies: list[str]) -> None:
    found = [tuple(line.split(": ", 2)[:2]) for line in anomalies]
    if found != [(anomaly.value, where) for anomaly, where in PLANTED]:
        raise RuntimeError(f"planted was {PLANTED}, found was {found}")
