"""The measured systems, started and reached in the same way."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.forms import check_runs, check_there, chosen
from benchmarks.members import KafkaMembers, Members, MilenaMembers
from benchmarks.settings import KAFKA_HEAP, format_storage, write_cluster, write_combined
from milena.testing.local_cluster import MILENA, LocalCluster
from milena.up.ports import free
from tests.oracle.kafka import jars, java

LIMIT = 300.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
"""A standalone node reads ``KAFKA_*`` as configuration; KAFKA_LIBS is not a key."""


@dataclass(frozen=True)
class Running:
    """A running cluster."""

    bootstrap: str
    brokers: tuple[int, ...]
    """Process ids."""
    ready_after: float
    """Seconds from exec until all brokers serve."""
    members: Members


class Peer(Protocol):
    @property
    def name(self) -> str:
        """The column of its figures."""
        ...

    def cluster(
        self, brokers: int, folder: Path, overrides: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Running]:
        """Start a cluster in a folder, new or with its present data, and stop it."""
        ...

    def listening_after(self) -> float:
        """Seconds from exec until one combined node accepts a connection."""
        ...


class Milena:
    """Milena as users start it, in one of its flavours, which is its name."""

    def __init__(self, form: str) -> None:
        """Raises NoForm if the flavour is not available."""
        check_there(form)
        self.name = form
        self.environment = chosen(form)

    @contextmanager
    def cluster(self, brokers: int, folder: Path, overrides: Mapping[str, str] | None = None) -> Iterator[Running]:
        begin = time.perf_counter()
        with LocalCluster.start(folder, brokers=brokers, overrides=overrides, environment=self.environment) as cluster:
            ready_after = time.perf_counter() - begin
            pids = tuple(node.pid for node in cluster.brokers if node.pid is not None)
            for pid in pids:
                check_runs(pid, self.name)
            yield Running(cluster.bootstrap, pids, ready_after, MilenaMembers(cluster))

    def listening_after(self) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-milena-") as folder:
            port, controller = free("127.0.0.1", 2)
            properties = write_combined(Path(folder), port, controller)
            return accepting_after([*MILENA, "node", str(properties)], port, self.environment)


class Kafka:
    """Kafka 4.4.0 from the jars of tests/oracle/pom.xml. Formatting its directories is not counted."""

    name = "kafka"

    def __init__(self) -> None:
        """Raises NoKafka if it cannot be run."""
        jars()

    @contextmanager
    def cluster(self, brokers: int, folder: Path, overrides: Mapping[str, str] | None = None) -> Iterator[Running]:
        files, ports = write_cluster(folder, brokers, overrides or {})
        begin = time.perf_counter()
        processes = [_start_kafka(file) for file in files]
        try:
            bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
            _wait_for_brokers(bootstrap, brokers)
            ready_after = time.perf_counter() - begin
            pids = tuple(process.pid for process in processes[1:])
            yield Running(bootstrap, pids, ready_after, KafkaMembers(files, processes, _start_kafka))
        finally:
            _stop_kafka(processes)

    def listening_after(self) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-kafka-") as folder:
            port, controller = free("127.0.0.1", 2)
            properties = write_combined(Path(folder), port, controller)
            format_storage(properties)
            return accepting_after(java("kafka.Kafka", str(properties), options=(), heap=KAFKA_HEAP), port)


def _start_kafka(file: Path) -> subprocess.Popen[bytes]:
    heap = "512m" if file.stem == "controller" else KAFKA_HEAP
    with open(file.with_suffix(".out"), "a") as log:
        return subprocess.Popen(java("kafka.Kafka", str(file), options=(), heap=heap), stdout=log, stderr=log)


def _stop_kafka(processes: list[subprocess.Popen[bytes]]) -> None:
    """The controller is stopped last: the brokers' controlled shutdown needs it."""
    controller, *brokers = processes
    for group in (brokers, [controller]):
        for process in group:
            process.terminate()
        for process in group:
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for_brokers(bootstrap: str, count: int) -> None:
    """Wait until Metadata has all brokers: it only has unfenced ones."""
    quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **quick})
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            if len(admin.list_topics(timeout=1).brokers) == count:
                return
        time.sleep(0.02)
    raise TimeoutError(f"not all of {count} brokers came up at {bootstrap}")


def accepting_after(command: list[str], port: int, environment: Mapping[str, str] | None = None) -> float:
    """Return the seconds from exec until a port accepts. Raises RuntimeError with the output of a process that ends
    before."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**ENVIRONMENT, **(environment or {})})
        try:
            while time.perf_counter() - begin < LIMIT:
                with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                    return time.perf_counter() - begin
                if process.poll() is not None:
                    said.seek(0)
                    raise RuntimeError(f"{command[-1]} ended with {process.returncode}: {said.read()[-500:]}")
                time.sleep(0.001)
            raise TimeoutError(f"nothing listens on {port}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT)


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def proportional_mib(pid: int) -> float:
    """Proportional set size: shared pages are divided among the processes that share them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time of a process's threads; more precise than the clock ticks of /proc/PID/stat."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
