"""A Kafka broker that joins a cluster of Milena."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from milena.testing.local_cluster import LocalCluster
from milena.up.ports import free
from tests.oracle import kafka
from tests.oracle.kafka_node import wait_until_listening

KAFKA = 3
LIMIT = 60.0


class JoiningKafka:
    """A formatted Kafka broker that uses the controller of a Milena cluster. ``version`` may change while it is
    stopped."""

    def __init__(
        self,
        cluster: LocalCluster,
        folder: Path,
        overrides: Mapping[str, str],
        *,
        node_id: int = KAFKA,
        version: str = kafka.VERSION,
    ) -> None:
        controller = cluster.controller
        meta = Path(controller.log_dirs[0], "meta.properties").read_text().splitlines()
        cluster_id = next(line.partition("=")[2] for line in meta if line.startswith("cluster.id="))
        self.data = folder / "data"
        self.version = version
        self._id = node_id
        self._cluster = cluster
        self._port = free("127.0.0.1", 1)[0]
        self._file, self._log = folder / "kafka.properties", folder / "kafka.out"
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "process.roles": "broker",
            "node.id": node_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": self.data,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{controller.id}@{next(iter(controller.listeners.values()))}",
            **overrides,
        }
        folder.mkdir()
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        kafka.tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._file), version=version)

    def start(self) -> None:
        """Start the broker; return when Milena's controller has unfenced it."""
        self._process = self._launched()
        wait_until_listening(self._process, ("127.0.0.1", self._port), self._log)
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        deadline = time.monotonic() + LIMIT
        while self._id not in admin.list_topics(timeout=5).brokers:
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]

    def refusal(self) -> str:
        """Start the broker, which must end; return its output with the level INFO."""
        self._process = self._launched("info")
        assert self._process.wait(60) != 0
        return self._log.read_text()

    def _launched(self, level: str = "warn") -> subprocess.Popen[bytes]:
        options = (*kafka.QUICK, f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}")
        with self._log.open("a") as out:
            command = kafka.java("kafka.Kafka", str(self._file), heap="350m", options=options, version=self.version)
            return subprocess.Popen(command, stdout=out, stderr=out)

    def stop(self) -> None:
        """Shut the broker down with SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(LIMIT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def joined_kafka(
    cluster: LocalCluster,
    folder: Path,
    overrides: Mapping[str, str] | None = None,
    *,
    node_id: int = KAFKA,
    version: str = kafka.VERSION,
) -> Iterator[JoiningKafka]:
    """A running Kafka broker in the cluster, which shuts down cleanly at the end."""
    kin = JoiningKafka(cluster, folder, overrides or {}, node_id=node_id, version=version)
    try:
        kin.start()
        yield kin
        kin.stop()
    finally:
        kin.kill()
