"""Writes at acks=all to a tiered topic go on and nothing is lost while the store of the tier gives odd answers."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from milena.lab.histories.checker import check
from milena.testing.local_cluster import LocalCluster
from tests.chaos.disks import DiskFaults
from tests.chaos.faults import Turn
from tests.chaos.journal import Journal
from tests.chaos.odd_store import MOOD, MOODS, entry_point
from tests.chaos.older_clients import ConfluentWriter, Load, Reader, final_logs
from tests.chaos.tiered_setting import OVERRIDES, SECONDS, SYNC, TIERED
from tests.wire.admin import Places, create_topic
from tests.wire.command import milena
from tests.wire.waiting import wait_until

TOPIC, PARTITIONS = "store", 3

pytestmark = pytest.mark.timeout(SECONDS + 600)


class StoreFaults(DiskFaults):
    """The answers of the store go odd for all brokers, and one of them is killed meanwhile."""

    def __init__(
        self, cluster: LocalCluster, journal: Journal, mood: Path, store: Path, places: Sequence[tuple[str, int]]
    ) -> None:
        super().__init__(cluster, journal, store, places)
        self._mood = mood

    def rounds(self, brokers: Sequence[int]) -> Iterator[list[Turn]]:
        for first in itertools.count():
            yield [(partial(self.be_odd, mood), brokers[at % len(brokers)]) for at, mood in enumerate(MOODS, first)]

    def be_odd(self, mood: str, node: int) -> None:
        def begin() -> None:
            self._mood.write_text(mood)
            self._cluster.kill(node)
            self._cluster.start_node(node)

        self._fault(f"store is odd ({mood}), restarted", node, begin, self._mood.unlink)


def test_nothing_is_lost_with_a_store_that_gives_odd_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modules, mood, store, place = (tmp_path / name for name in ("modules", "mood", "store", "cluster"))
    entry_point(modules)
    monkeypatch.setenv(MOOD, str(mood))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH")))))
    with LocalCluster.start(
        place, brokers=3, overrides=OVERRIDES, lab=True, options=["--tier", f"odd://{store}"]
    ) as cluster:
        journal = Journal()
        brokers = [node.id for node in cluster.brokers]
        partitions = [(TOPIC, number) for number in range(PARTITIONS)]
        faults = StoreFaults(cluster, journal, mood, store, partitions)
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS, replicas=3, config=TIERED)
        load = Load(ConfluentWriter(cluster.bootstrap, journal), TOPIC, PARTITIONS)
        reader = Reader(cluster.bootstrap, journal, TOPIC, PARTITIONS, again=True)
        try:
            run_faults(cluster, journal, faults, brokers, store)
        finally:
            end = journal.now()
            load.stop()
            reader.stop()
        for log in final_logs(cluster.bootstrap, TOPIC, PARTITIONS):
            journal.note(log)
            assert log.start == 0, "everything that was ever written is still there"
        journal.write(tmp_path / "history.jsonl")
        with capsys.disabled():
            print("\n" + "\n".join(journal.report([load.writer.name], end)))
        assert not (found := check(journal.events)), "\n".join(map(str, found[:30]))
        assert all(node.pid is not None for node in cluster.nodes.values()), "no node has ended by itself"
        for kind in MOODS:
            calls = set(mood.with_name(f"{mood.name}.{kind}").read_text().split())
            assert calls & {"cat_file", "ls"} and calls, f"{kind}: {calls}"
        milena("tier", "verify", "--tier", f"odd://{store}", "--dir", str(place))


def run_faults(
    cluster: LocalCluster, journal: Journal, faults: StoreFaults, brokers: Sequence[int], store: Path
) -> None:
    """Each mood once, also in a short run, and on until the time is over."""
    places = Places(cluster.bootstrap, TOPIC)
    wait_until(lambda: len(list(store.rglob("*.log"))) >= 2 * PARTITIONS, "segments in the tier")
    for at, (fault, node) in enumerate(itertools.chain.from_iterable(faults.rounds(brokers))):
        if at >= len(MOODS) and journal.now() >= SECONDS:
            return
        fault(node)
        wait_until(lambda: all(map(places.all_have, brokers)), f"all to be in sync after {journal.faults[-1]}", SYNC)
        time.sleep(1)  # without a fault
