"""Faults of directories and of the tier's folder under real processes: each lasts until writes have got through."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from milena.lab.histories.events import RequestOutcome, Send
from milena.testing.local_cluster import MILENA, LocalCluster
from tests.chaos.faults import Turn
from tests.chaos.journal import Fault, Journal
from tests.wire.waiting import wait_until

PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n" * 20
"""What a store's proxy answers in its place."""
PROGRESS = 120
"""Records of each partition that must be acknowledged during a fault: they fill segments."""
LIMIT = 90.0
"""Seconds in which they must be."""


class DiskFaults:
    """What can be done to a lab whose brokers have two log directories each (``start_all``) and a tier in a folder."""

    def __init__(self, cluster: LocalCluster, journal: Journal, tier: Path, places: Sequence[tuple[str, int]]) -> None:
        """Writes must get through to each of ``places``."""
        self._cluster = cluster
        self._journal = journal
        self._tier = tier
        self._hidden = tier.with_name(f"{tier.name}.hidden")
        self._places = set(places)

    def start_all(self, brokers: Sequence[int]) -> None:
        """Instead of the processes with one directory that `milena up` has started."""
        for broker in brokers:
            self._cluster.stop_node(broker)
            self._start(broker)

    def rounds(self, brokers: Sequence[int]) -> Iterator[list[Turn]]:
        """In each round each kind once, at another broker than in the round before."""
        for first in itertools.count():
            at = brokers[first % len(brokers)]
            yield [(self.lose_directory, at), (self.unmount, at), (self.kill, at), (self.answer_rubbish, at)]

    def lose_directory(self, node: int) -> None:
        """One of two goes away, and is back when the broker is started anew."""

        def fail() -> None:
            self._cluster.lab_commands(node).call("fail_disk", path=self._directories(node)[1])

        def mend() -> None:
            self._cluster.kill(node)
            self._start(node)

        self._fault("lost a directory", node, fail, mend)

    def kill(self, node: int) -> None:
        """``kill -9``."""
        self._fault("killed", node, lambda: self._cluster.kill(node), lambda: self._start(node))

    def unmount(self, node: int) -> None:
        """An empty folder is in the tier's place."""

        def unmount() -> None:
            os.rename(self._tier, self._hidden)
            self._tier.mkdir()

        def mount() -> None:
            shutil.rmtree(self._tier)
            os.rename(self._hidden, self._tier)

        self._fault("without the tier", node, unmount, mount)

    def answer_rubbish(self, node: int) -> None:
        """All that the tier has reads as something else."""

        def spoil() -> None:
            for path in [path for path in self._tier.rglob("*") if path.is_file()]:
                kept = self._hidden / path.relative_to(self._tier)
                kept.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # a copy that has just been finished
                    os.rename(path, kept)
                    path.write_bytes(PAGE)

        def restore() -> None:
            for kept in [path for path in self._hidden.rglob("*") if path.is_file()]:
                os.replace(kept, self._tier / kept.relative_to(self._hidden))
            shutil.rmtree(self._hidden)

        self._fault("rubbish in the tier", node, spoil, restore)

    def _directories(self, node: int) -> list[str]:
        first = self._cluster.nodes[node].log_dirs[0]
        return [first, f"{first.removesuffix('-2')}-2"]

    def _start(self, node: int) -> None:
        directories = ",".join(self._directories(node))
        self._cluster.restart(node, (*MILENA, "node", "--override", f"log.dirs={directories}"))

    def _fault(self, kind: str, node: int, begin: Callable[[], object], mend: Callable[[], object]) -> None:
        begun = self._journal.now()
        begin()
        try:
            since = self._journal.now()
            wait_until(lambda: self._got_through(since), f"writes to all partitions, {kind} {node}", LIMIT)
        finally:
            mend()
            self._journal.faults.append(Fault(kind, node, begun, self._journal.now()))

    def _got_through(self, since: float) -> bool:
        """Whether enough was sent after ``since`` and acknowledged."""
        counts = dict.fromkeys(self._places, 0)
        for event in reversed(self._journal.events):
            if isinstance(event, Send):
                if event.ended < since:
                    break
                if event.outcome is RequestOutcome.OK and event.begun > since:
                    counts[event.partition] += 1
        return min(counts.values()) >= PROGRESS
