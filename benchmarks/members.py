"""The nodes of a running cluster: stopping, starting, and emptying the disks of single nodes."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from milena.testing.local_cluster import LocalCluster

LIMIT = 120.0


class Members(Protocol):
    """Brokers by node id, as in Metadata."""

    def pid(self, node_id: int) -> int: ...

    def data(self, node_id: int) -> Path:
        """The broker's log directory."""
        ...

    def end(self, node_id: int, number: int) -> None:
        """Send a signal that ends the broker, and wait for its end."""
        ...

    def start_again(self, node_id: int) -> None:
        """Start a broker that has ended. It need not serve yet."""
        ...


class MilenaMembers:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def pid(self, node_id: int) -> int:
        pid = self._cluster.nodes[node_id].pid
        if pid is None:
            raise RuntimeError(f"broker {node_id} does not run")
        return pid

    def data(self, node_id: int) -> Path:
        return Path(self._cluster.nodes[node_id].log_dirs[0])

    def end(self, node_id: int, number: int) -> None:
        self._cluster.kill(node_id, number)

    def start_again(self, node_id: int) -> None:
        self._cluster.restart(node_id)


class KafkaMembers:
    """Brokers, numbered from 1 in the order of their properties files."""

    def __init__(
        self,
        files: list[Path],
        processes: list[subprocess.Popen[bytes]],
        start: Callable[[Path], subprocess.Popen[bytes]],
    ) -> None:
        """``processes`` is updated, so that restarted processes are stopped with the cluster."""
        self._files = files
        self._processes = processes
        self._start = start

    def pid(self, node_id: int) -> int:
        return self._processes[node_id].pid

    def data(self, node_id: int) -> Path:
        return self._files[node_id].with_suffix("")

    def end(self, node_id: int, number: int) -> None:
        self._processes[node_id].send_signal(number)
        self._processes[node_id].wait(LIMIT)

    def start_again(self, node_id: int) -> None:
        self._processes[node_id] = self._start(self._files[node_id])


def come_back_without_data(members: Members, node_id: int, topic: str) -> None:
    """Stop a broker cleanly, delete its replicas of a topic and their checkpoint entries, and start it."""
    members.end(node_id, signal.SIGTERM)
    for entry in members.data(node_id).iterdir():
        if entry.is_dir() and entry.name.rpartition("-")[0] == topic:
            shutil.rmtree(entry)
        elif entry.name.endswith("-checkpoint"):
            entry.unlink()
    members.start_again(node_id)


def bytes_of(members: Members, node_id: int, topic: str) -> int:
    """Return the size of a broker's replicas of a topic."""
    return sum(file.stat().st_size for file in members.data(node_id).glob(f"{topic}-*/*.log"))
