"""Faults for the nodes of a local cluster, each mended before the next one."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from milena.testing.local_cluster import LocalCluster
from tests.chaos.journal import Fault, Journal

Turn = tuple[Callable[[int], None], int]
"""A fault, and the node that has it."""


class Faults:
    """What can be done to a lab whose brokers' sessions last ``session`` seconds."""

    def __init__(self, cluster: LocalCluster, journal: Journal, *, session: float) -> None:
        self._cluster = cluster
        self._journal = journal
        self._short, self._long = session / 2, session + 2

    def rounds(self, brokers: Sequence[int], controller: int) -> Iterator[list[Turn]]:
        """In each round each kind once, at another broker than in the round before, and the controller is killed."""
        kinds = (self.kill, self.isolate, self.stop_for_long, self.terminate, self.stop)
        for first in itertools.count():
            turns: list[Turn] = [(kind, brokers[at % len(brokers)]) for at, kind in enumerate(kinds, first)]
            yield [*turns, (self.kill, controller)]

    def kill(self, node: int) -> None:
        """``kill -9``, and a new process on the same directory."""
        self._fault("killed", node, self._short, lambda: self._cluster.kill(node), lambda: self._start(node))

    def stop(self, node: int) -> None:
        """SIGSTOP and SIGCONT before anybody has given it up: to the others a network that hangs."""
        self._fault("stopped", node, self._short, *self._pausing(node))

    def stop_for_long(self, node: int) -> None:
        """SIGSTOP until it was fenced, and on: it wakes up and believes that it leads."""
        self._fault("stopped for long", node, self._long, *self._pausing(node))

    def isolate(self, node: int) -> None:
        """No link to any other node, until it was fenced, and on; clients still reach it."""
        others = [other for other in self._cluster.nodes if other != node]

        def cut() -> None:
            for other in others:
                self._cluster.lab_commands(node).call("cut", peer=other)

        self._fault("isolated", node, self._long, cut, lambda: self._cluster.lab_commands(node).call("heal"))

    def terminate(self, node: int) -> None:
        """SIGTERM: the controlled shutdown."""
        begin = lambda: self._cluster.kill(node, signal.SIGTERM)  # noqa: E731
        self._fault("shut down", node, self._short, begin, lambda: self._start(node))

    def _pausing(self, node: int) -> tuple[Callable[[], object], Callable[[], object]]:
        return lambda: self._cluster.pause(node), lambda: self._cluster.resume(node)

    def _start(self, node: int) -> None:
        self._cluster.start_node(node)

    def _fault(
        self, kind: str, node: int, seconds: float, begin: Callable[[], object], mend: Callable[[], object]
    ) -> None:
        begun = self._journal.now()
        begin()
        time.sleep(seconds)
        mend()
        self._journal.faults.append(Fault(kind, node, begun, self._journal.now()))
