"""A Kafka 4.3.1 cluster of one controller and three brokers, as the oracle for replication."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from milena.up.ports import free
from tests.oracle import kafka
from tests.oracle.kafka_node import CLUSTER_ID, wait_until_listening

CONTROLLER: Final = 100
HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class KafkaCluster:
    """Where its brokers listen, by node id, and its processes, the controller's too."""

    brokers: Mapping[int, tuple[str, int]]
    controller: tuple[str, int]
    processes: Mapping[int, subprocess.Popen[bytes]]
    folder: Path

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.brokers.values())

    def log_dirs(self, broker: int) -> list[Path]:
        return [self.folder / f"broker-{broker}" / name for name in ("a", "b")]


@contextlib.contextmanager
def running_kafka_cluster(
    folder: Path, *, features: Mapping[str, int], overrides: Mapping[str, str]
) -> Iterator[KafkaCluster]:
    """Formatted and started; killed at the end. Each broker has two log directories."""
    controller, *ports = free(HOST, 4)
    quorum = {
        "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
    }
    levels = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    brokers = {node_id: (HOST, port) for node_id, port in enumerate(ports, 1)}
    files = {CONTROLLER: folder / "controller.properties"}
    _write(
        files[CONTROLLER],
        {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{controller}", "node.id": str(CONTROLLER)}
        | {"log.dirs": str(folder / "controller"), **quorum, **overrides},
    )
    for node_id, (host, port) in brokers.items():
        files[node_id] = folder / f"broker-{node_id}.properties"
        directories = ",".join(str(folder / f"broker-{node_id}" / name) for name in ("a", "b"))
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{host}:{port}", "node.id": str(node_id)}
        _write(files[node_id], own | {"log.dirs": directories, **quorum, **overrides})
    for file in files.values():
        kafka.tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), *levels)
    processes: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for node_id, file in files.items():
            with file.with_suffix(".out").open("a") as out:
                heap = kafka.java("kafka.Kafka", str(file), heap="350m")
                processes[node_id] = subprocess.Popen(heap, stdout=out, stderr=out)
        for node_id, address in brokers.items():
            wait_until_listening(processes[node_id], address, files[node_id].with_suffix(".out"))
        yield KafkaCluster(brokers, (HOST, controller), processes, folder)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def _write(file: Path, settings: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
