"""A Kafka 4.4.0 cluster of one controller and some brokers, as test oracle for replication."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from milena.up.ports import free
from tests.oracle import kafka
from tests.oracle.kafka_node import CLUSTER_ID, wait_until_listening

CONTROLLER: Final = 100
HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class KafkaCluster:
    """Its brokers' addresses by node id, and its processes, including the controller's."""

    brokers: Mapping[int, tuple[str, int]]
    controller: tuple[str, int]
    folder: Path
    version: str = kafka.VERSION
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.brokers.values())

    @property
    def quorum(self) -> dict[str, str]:
        """The setting by which a node finds the controller."""
        host, port = self.controller
        return {
            "controller.quorum.voters": f"{CONTROLLER}@{host}:{port}",
            "controller.listener.names": "CONTROLLER",
        }

    def log_dirs(self, broker: int) -> list[Path]:
        return [self.folder / f"broker-{broker}" / name for name in ("a", "b")]

    def file(self, node_id: int) -> Path:
        return self.folder / ("controller" if node_id == CONTROLLER else f"broker-{node_id}") / "kafka.properties"

    def start(self, *nodes: int) -> None:
        """Start nodes; return when the brokers among them listen."""
        for node_id in nodes:
            with self._said(node_id).open("a") as out:
                command = kafka.java("kafka.Kafka", str(self.file(node_id)), heap="350m", version=self.version)
                self.processes[node_id] = subprocess.Popen(command, stdout=out, stderr=out)
        for node_id in set(nodes) & set(self.brokers):
            wait_until_listening(self.processes[node_id], self.brokers[node_id], self._said(node_id))

    def kill(self, node_id: int) -> None:
        self.processes[node_id].kill()
        self.processes[node_id].wait()

    def _said(self, node_id: int) -> Path:
        return self.file(node_id).with_name("kafka.out")


@contextlib.contextmanager
def running_kafka_cluster(
    folder: Path,
    *,
    features: Mapping[str, int],
    overrides: Mapping[str, str],
    brokers: int = 3,
    version: str = kafka.VERSION,
) -> Iterator[KafkaCluster]:
    """A formatted and started cluster, which is killed at the end. Each broker has two log directories."""
    controller, *ports = free(HOST, brokers + 1)
    addresses = {node_id: (HOST, port) for node_id, port in enumerate(ports, 1)}
    cluster = KafkaCluster(addresses, (HOST, controller), folder, version)
    own = {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{controller}"}
    settings = {CONTROLLER: own | {"log.dirs": str(folder / "controller" / "data")}}
    for node_id, (host, port) in addresses.items():
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{host}:{port}"}
        settings[node_id] = own | {"log.dirs": ",".join(map(str, cluster.log_dirs(node_id)))}
    levels = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    for node_id, own in settings.items():
        file = cluster.file(node_id)
        write_properties(file, own | {"node.id": str(node_id), **cluster.quorum, **overrides})
        kafka.tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), *levels, version=version)
    try:
        cluster.start(*settings)
        yield cluster
    finally:
        for node_id in cluster.processes:
            cluster.kill(node_id)


def write_properties(file: Path, settings: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
