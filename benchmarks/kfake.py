"""kfake, franz-go's fake of Kafka in Go: in memory, without replication, three brokers in one process.

The environment variable KFAKE names a program that starts it and prints a line ``bootstrap HOST:PORT``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers import LIMIT, Running
from benchmarks.turns import NotMeasured

VARIABLE = "KFAKE"


class NoKfake(Exception):
    """kfake cannot be measured; the message says why."""


class Kfake:
    name = "kfake"

    def __init__(self) -> None:
        """Raises NoKfake if the variable does not name the program."""
        self._command = shlex.split(os.environ.get(VARIABLE, ""))
        if not self._command:
            raise NoKfake(f"{VARIABLE} names no program that starts kfake")

    @contextmanager
    def cluster(self, brokers: int, folder: Path, overrides: Mapping[str, str] | None = None) -> Iterator[Running]:
        """It always has three brokers, on ports that it chooses, and no stored data."""
        begin = time.perf_counter()
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            word, _, bootstrap = process.stdout.readline().strip().partition(" ")
            if word != "bootstrap":
                raise NotMeasured(f"{self._command[0]} does not say where it listens")
            yield Running(bootstrap, (process.pid,), time.perf_counter() - begin, OneProcess(process.pid))
        finally:
            process.terminate()
            process.wait(LIMIT)
            if process.stdout is not None:
                process.stdout.close()

    def listening_after(self) -> float:
        raise NotMeasured("it is no node of a cluster")


class OneProcess:
    """Return the process, which runs all brokers."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pid(self, node_id: int) -> int:
        return self._pid

    def data(self, node_id: int) -> Path:
        raise NotMeasured("it has no files")

    def end(self, node_id: int, number: int) -> None:
        raise NotMeasured("its brokers do not end one by one")

    def start_again(self, node_id: int) -> None:
        raise NotMeasured("its brokers do not start one by one")
