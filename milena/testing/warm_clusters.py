"""Clusters that tests use one after the other: a pool that resets them in the background, and prepared states."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from milena.command_line.errors import UserError
from milena.testing.local_cluster import LocalCluster


class WarmClusters:
    """Up to ``size`` clusters, which ``start`` starts on demand. Each one that is put back is reset in the background,
    so that the next test gets one that is ready."""

    def __init__(self, start: Callable[[], LocalCluster], size: int) -> None:
        self._start = start
        self._size = size
        self._count = 0
        self._ready: deque[Future[LocalCluster]] = deque()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="reset")

    def take(self) -> LocalCluster:
        """Return a cluster that is like a new one. Raises UserError if one cannot be started."""
        if self._count < self._size and not (self._ready and self._ready[0].done()):
            cluster = self._start()
            self._count += 1
            return cluster
        return self._ready.popleft().result()

    def put_back(self, cluster: LocalCluster) -> None:
        """Reset a cluster for another test. One that cannot be reset is replaced."""
        self._ready.append(self._threads.submit(self._renewed, cluster))

    def _renewed(self, cluster: LocalCluster) -> LocalCluster:
        try:
            cluster.reset()
        except UserError:
            cluster.stop()
            return self._start()
        return cluster

    def close(self) -> None:
        """Stop the clusters that were put back."""
        self._threads.shutdown()
        while self._ready:
            self._ready.popleft().result().stop()


class PreparedState:
    """A state of a cluster that is prepared once and restored for each test."""

    def __init__(self, cluster: LocalCluster, folder: str) -> None:
        """``folder``: for the snapshot of the cluster as it is now, and for forks."""
        self._cluster = cluster
        self._folder = folder
        self._forks: list[LocalCluster] = []
        self._snapshot = os.path.join(folder, "snapshot")
        cluster.snapshot(self._snapshot)

    def restore(self) -> LocalCluster:
        """Return the cluster, in the prepared state, on the same ports."""
        self._cluster.restore(self._snapshot)
        return self._cluster

    def fork(self, **options: Any) -> LocalCluster:  # noqa: ANN401 - the arguments of LocalCluster.fork, passed on
        """Start another cluster in the prepared state, on other ports; it ends with ``close`` at the latest."""
        directory = os.path.join(self._folder, f"fork-{len(self._forks) + 1}")
        self._forks.append(LocalCluster.fork(self._snapshot, directory, **options))
        return self._forks[-1]

    def close(self) -> None:
        """Stop all clusters."""
        for cluster in (*self._forks, self._cluster):
            cluster.stop()
