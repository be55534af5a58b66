"""The two systems under measurement, started and found in the same way."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from milena.local_cluster import MILENA, LocalCluster
from milena.up.ports import free
from tests.oracle.kafka import jars, java

KAFKA_HEAP = "1g"
LIMIT = 120.0


@dataclass(frozen=True)
class Running:
    """A cluster that serves."""

    bootstrap: str
    brokers: tuple[int, ...]
    """Process ids."""
    ready_after: float
    """Seconds from exec until all brokers serve."""


class Milena:
    """Milena as its users start it."""

    name = "milena"

    @contextmanager
    def cluster(self, brokers: int) -> Iterator[Running]:
        with tempfile.TemporaryDirectory(prefix="bench-milena-") as folder:
            begin = time.perf_counter()
            with LocalCluster.start(folder, brokers=brokers) as cluster:
                ready_after = time.perf_counter() - begin
                pids = tuple(node.pid for node in cluster.brokers if node.pid is not None)
                yield Running(cluster.bootstrap, pids, ready_after)

    def listening_after(self) -> float:
        """Seconds from exec until one combined node accepts a connection."""
        with tempfile.TemporaryDirectory(prefix="bench-milena-") as folder:
            port, controller = free("127.0.0.1", 2)
            properties = write_combined(Path(folder), port, controller)
            return accepting_after([*MILENA, "node", str(properties)], port)


class Kafka:
    """Kafka 4.3.1 from the jars of tests/oracle/pom.xml. Formatting its directories is not counted."""

    name = "kafka"

    def __init__(self) -> None:
        """Raises NoKafka where it cannot be run."""
        jars()

    @contextmanager
    def cluster(self, brokers: int) -> Iterator[Running]:
        with tempfile.TemporaryDirectory(prefix="bench-kafka-") as folder:
            files, ports = write_cluster(Path(folder), brokers)
            for file in files:
                format_storage(file, standalone=file.stem == "controller")
            begin = time.perf_counter()
            processes = [start_kafka(file) for file in files]
            try:
                bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
                wait_for_brokers(bootstrap, brokers)
                ready_after = time.perf_counter() - begin
                yield Running(bootstrap, tuple(process.pid for process in processes[1:]), ready_after)
            finally:
                for process in reversed(processes):
                    process.terminate()
                for process in processes:
                    process.wait(LIMIT)

    def listening_after(self) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-kafka-") as folder:
            port, controller = free("127.0.0.1", 2)
            properties = write_combined(Path(folder), port, controller)
            format_storage(properties, standalone=False)
            return accepting_after(java("kafka.Kafka", str(properties), options=(), heap=KAFKA_HEAP), port)


Peer = Milena | Kafka


def write_combined(folder: Path, port: int, controller: int) -> Path:
    """One node in both roles."""
    file = folder / "node.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"log.dirs={folder}/data\noffsets.topic.replication.factor=1\n"
    )
    return file


def write_cluster(folder: Path, brokers: int) -> tuple[list[Path], list[int]]:
    """Properties of one controller and some brokers; (files, brokers' ports)."""
    controller, *ports = free("127.0.0.1", brokers + 1)
    shared = f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
    files = [folder / "controller.properties"]
    files[0].write_text(
        f"process.roles=controller\nnode.id=100\nlisteners=CONTROLLER://127.0.0.1:{controller}\n"
        f"log.dirs={folder}/controller\n{shared}"
    )
    for node_id, port in enumerate(ports, 1):
        files.append(folder / f"broker-{node_id}.properties")
        files[-1].write_text(
            f"process.roles=broker\nnode.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
            f"log.dirs={folder}/broker-{node_id}\noffsets.topic.replication.factor={min(3, brokers)}\n"
            f"group.initial.rebalance.delay.ms=0\n{shared}"
        )
    return files, ports


def format_storage(file: Path, *, standalone: bool) -> None:
    arguments = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(file), *(["--standalone"] if standalone else [])]
    subprocess.run(java("kafka.tools.StorageTool", *arguments), check=True, capture_output=True)


def start_kafka(file: Path) -> subprocess.Popen[bytes]:
    heap = "512m" if file.stem == "controller" else KAFKA_HEAP
    with open(file.with_suffix(".out"), "w") as log:
        return subprocess.Popen(java("kafka.Kafka", str(file), options=(), heap=heap), stdout=log, stderr=log)


def wait_for_brokers(bootstrap: str, count: int) -> None:
    """Until Metadata lists all brokers: unfenced ones alone are in it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 50})
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if len(admin.list_topics(timeout=1).brokers) == count:
                return
        time.sleep(0.02)
    raise TimeoutError(f"not all of {count} brokers came up at {bootstrap}")


def accepting_after(command: list[str], port: int) -> float:
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.perf_counter() - begin < LIMIT:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                return time.perf_counter() - begin
            time.sleep(0.001)
        raise TimeoutError(f"nothing listens on {port}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
