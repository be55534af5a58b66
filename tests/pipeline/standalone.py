"""A Spark cluster of separate processes: a master and workers of Spark's standalone scheduler."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

from tests.wire.waiting import wait_until

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class Standalone:
    """A cluster on this machine whose workers have one core each. ``folder`` gets logs and work directories."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        _, log = self._start("master", MASTER, "--port", "0")
        self.master = _said(log, r"spark://127\.0\.0\.1:\d+")

    def bring(self, count: int) -> None:
        """Start workers until so many run."""
        down = [n for n in range(count) if n not in self._workers or self._workers[n].poll() is not None]
        logs = []
        for n in down:
            memory = ["--cores", "1", "--memory", "700m"]
            words = (*memory, "-d", str(self._folder / f"work-{n}"), self.master)
            self._workers[n], log = self._start(f"worker-{n}", WORKER, *words)
            logs.append(log)
        for log in logs:
            _said(log, "Successfully registered with master")

    def kill(self, worker: int) -> None:
        """Kill a worker together with its executors."""
        _kill(self._workers[worker])

    def end(self) -> None:
        for process in self._started:
            _kill(process)

    def _start(self, name: str, kind: str, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"{name}.log"
        command = ["java", "-Xmx256m", "-cp", f"{_home()}/jars/*", kind, "--host", "127.0.0.1", "--webui-port", "0"]
        scala = next(Path(_home(), "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
        environment = os.environ | {"SPARK_HOME": _home(), "SPARK_SCALA_VERSION": scala}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *words], stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        self._started.append(process)
        return process, log


def _said(log: Path, pattern: str) -> str:
    wait_until(lambda: re.search(pattern, log.read_text()) is not None, f"{pattern} in {log.name}", 100)
    found = re.search(pattern, log.read_text())
    assert found is not None
    return found[0]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a process, which has a worker's executors."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _home() -> str:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    return os.path.dirname(found.origin)
