"""A Spark cluster of its own processes: a master and workers of Spark's standalone scheduler."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.wire.waiting import wait_until

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass
class Standalone:
    master: str
    workers: Sequence[subprocess.Popen[bytes]]

    def kill(self, worker: int) -> None:
        """With the executors that it has started."""
        _kill(self.workers[worker])


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """Workers of one core each, on this machine. ``folder`` gets their logs and what they work with."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as out:
            java = ["java", "-Xmx256m", "-cp", f"{_home()}/jars/*", *command]
            scala = next(Path(_home(), "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
            environment = os.environ | {"SPARK_HOME": _home(), "SPARK_SCALA_VERSION": scala}
            started.append(
                subprocess.Popen(java, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            )
        return log

    def said(log: Path, pattern: str) -> str:
        wait_until(lambda: re.search(pattern, log.read_text()) is not None, f"{pattern} in {log.name}", 100)
        found = re.search(pattern, log.read_text())
        assert found is not None
        return found[0]

    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    try:
        master = said(start("master", MASTER, *here, "--port", "0"), r"spark://127\.0\.0\.1:\d+")
        memory = ["--cores", "1", "--memory", "700m"]
        every = [
            start(f"worker-{n}", WORKER, *here, *memory, "-d", str(folder / f"work-{n}"), master)
            for n in range(workers)
        ]
        for log in every:
            said(log, "Successfully registered with master")
        yield Standalone(master, started[1:])
    finally:
        for process in started:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Its whole group: a worker's executors are in it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _home() -> str:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    return os.path.dirname(found.origin)
