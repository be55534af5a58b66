"""Faults for the nodes of a local cluster, each mended before the next one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from milena.local_cluster import LocalCluster
from tests.chaos.journal import Fault, Journal


class Faults:
    """What can be done to a cluster. ``hold`` seconds lie between a fault and its mending."""

    def __init__(self, cluster: LocalCluster, journal: Journal, *, hold: float) -> None:
        self._cluster = cluster
        self._journal = journal
        self._hold = hold

    def kill(self, node: int) -> None:
        """``kill -9``, and a new process on the same directory."""
        self._fault("killed", node, lambda: self._cluster.kill(node), lambda: self._cluster.restart(node))

    def stop(self, node: int) -> None:
        """SIGSTOP and SIGCONT: to the others a network that hangs, to itself nothing."""
        pid = self._cluster.nodes[node].pid
        assert pid is not None
        self._fault("stopped", node, lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))

    def terminate(self, node: int) -> None:
        """SIGTERM: the controlled shutdown."""
        begin = lambda: self._cluster.kill(node, signal.SIGTERM)  # noqa: E731
        self._fault("shut down", node, begin, lambda: self._cluster.restart(node))

    def _fault(self, kind: str, node: int, begin: Callable[[], object], mend: Callable[[], object]) -> None:
        begun = self._journal.now()
        begin()
        time.sleep(self._hold)
        mend()
        self._journal.faults.append(Fault(kind, node, begun, self._journal.now()))
