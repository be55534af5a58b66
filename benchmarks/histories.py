"""Judging a long history of client operations in one process and on Spark (local[2]): cost per million operations."""

from __future__ import annotations

import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.families import Watch
from benchmarks.peers import Peer
from benchmarks.sizes import Sizes
from benchmarks.turns import NotMeasured, Rounds
from milena.testing.local_cluster import MILENA
from tests.unit.lab.long_histories import PLANTED, long_history

MILLION: Final = 1_000_000
SPARK: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=2g")
FOUND: Final = 1
"""The exit code if there are anomalies."""


class Judged(NamedTuple):
    anomalies: list[str]
    seconds: float
    watch: Watch


def histories(peer: Peer, sizes: Sizes) -> Rounds:
    """The checker is not compiled: one flavour is enough. Raises RuntimeError if the verdicts differ from each other,
    or from the planted anomalies."""
    if find_spec("pyspark") is None:
        raise NotMeasured("Spark is not installed")
    with tempfile.TemporaryDirectory(prefix="bench-histories-") as name:
        path = Path(name) / "history.jsonl"
        with path.open("w") as file:
            file.writelines(long_history(sizes.history_operations))
        alone = _judged(["history", "check", str(path)])
        on_spark = _judged(["pipeline", "history", str(path), "--out", f"{name}/judged", *SPARK])
    _compare(alone.anomalies, on_spark.anomalies)
    millions = sizes.history_operations / MILLION
    yield {
        "history_check_s": alone.seconds / millions,
        "history_check_cpu_s": alone.watch.seconds / millions,
        "history_check_memory_mib": alone.watch.root_mib,
        "history_spark_s": on_spark.seconds / millions,
        "history_spark_cpu_s": on_spark.watch.seconds / millions,
        "history_spark_jvm_mib": on_spark.watch.jvm_mib,
        "history_spark_workers_mib": on_spark.watch.workers_mib,
    }


def _judged(words: list[str]) -> Judged:
    """Return a command's output without its last line, which differs. Raises RuntimeError."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*MILENA, *words], stdout=out, stderr=errors)
        try:
            with Watch(process.pid) as watch:
                code = process.wait()
        finally:
            process.kill()
        seconds = time.perf_counter() - begin
        out.seek(0)
        errors.seek(0)
        if code != FOUND:
            raise RuntimeError(f"milena {' '.join(words)} ended with {code}: {errors.read()[-2000:]}")
        return Judged(out.read().splitlines()[:-1], seconds, watch)


def _compare(alone: list[str], on_spark: list[str]) -> None:
    if alone != on_spark:
        raise RuntimeError(f"the verdicts differ: {alone} in one process, {on_spark} on Spark")
    found = [tuple(line.split(": ", 2)[:2]) for line in alone]
    if found != [(anomaly.value, where) for anomaly, where in PLANTED]:
        raise RuntimeError(f"planted was {PLANTED}, found was {found}")
