"""Jobs on a Spark cluster, as separate processes, whose tasks wait in the middle until a test releases them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests.wire.waiting import wait_until

PREFACE = """
import json, os, sys, time
from pathlib import Path
from milena.pipeline.session import session

marks = Path(sys.argv[1])

def held(found):
    # Each task says on which executor it runs when it has something, and continues when the test lets it.
    for number, one in enumerate(found):
        if number == 0:
            (marks / f"{os.getppid()}-{os.getpid()}").touch()
            while not (marks / "go").exists():
                time.sleep(0.05)
        yield one

def on_cluster(master, name):
    settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "600m", "spark.executor.cores": "1",
                "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.sql.shuffle.partitions": "2"}
    return session(master, name, settings)
"""


class Job:
    """Runs ``script``, which calls ``on_cluster(master, name)`` for a session, and ``held(iterator)`` in its tasks."""

    def __init__(self, folder: Path, script: str, *words: str) -> None:
        """``folder`` gets the job's standard error. ``words`` are its arguments, in ``sys.argv`` from index 2 on."""
        self._marks, self._errors = folder / "marks", folder / "job.log"
        self._marks.mkdir()
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-c", PREFACE + script, str(self._marks), *words]
        with self._errors.open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def wait_until_held(self, executors: int) -> None:
        """Return when a task is waiting on each of so many executors."""

        def is_so() -> bool:
            return self._process.poll() is not None or len(self._executors()) == executors

        wait_until(is_so, f"tasks on {executors} executors", 150)
        assert self._process.poll() is None, self._end()

    def let_go(self) -> tuple[str, str]:
        """Release the tasks and wait for the job, which must succeed; return its standard output and standard error."""
        (self._marks / "go").touch()
        output, _ = self._process.communicate(timeout=200)
        assert self._process.returncode == 0, self._end()
        return output, self._errors.read_text()

    def _executors(self) -> set[str]:
        return {one.name.partition("-")[0] for one in self._marks.iterdir()}

    def _end(self) -> str:
        return self._errors.read_text()[-3000:]
