"""Writes at acks=all to a tiered topic go on and nothing is lost while brokers lose one of two log directories, the
tier is unmounted, and its store answers rubbish."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from milena.lab.histories.checker import check
from milena.testing.local_cluster import LocalCluster
from tests.chaos.disks import DiskFaults
from tests.chaos.journal import Journal
from tests.chaos.older_clients import ConfluentWriter, Load, Reader, final_logs
from tests.chaos.tiered_setting import OVERRIDES, SECONDS, SYNC, TIERED
from tests.wire.admin import Places, create_topic
from tests.wire.command import milena
from tests.wire.waiting import wait_until

TOPIC, PARTITIONS = "disks", 3
KINDS = 4
"""How many faults a round has, which is the least of a short run."""
pytestmark = pytest.mark.timeout(SECONDS + 300)


def test_nothing_is_lost_with_directories_and_the_tier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster.start(tmp_path, brokers=3, overrides=OVERRIDES, lab=True) as cluster:
        journal = Journal()
        brokers = [node.id for node in cluster.brokers]
        partitions = [(TOPIC, number) for number in range(PARTITIONS)]
        faults = DiskFaults(cluster, journal, tmp_path / "remote", partitions)
        faults.start_all(brokers)
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS, replicas=3, config=TIERED)
        load = Load(ConfluentWriter(cluster.bootstrap, journal), TOPIC, PARTITIONS)
        reader = Reader(cluster.bootstrap, journal, TOPIC, PARTITIONS, again=True)
        try:
            run_faults(cluster, journal, faults, brokers)
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
        others = [word for path in sorted(tmp_path.glob("broker-*/data-2")) for word in ("--dir", str(path))]
        milena("tier", "verify", "--tier", str(tmp_path / "remote"), "--dir", str(tmp_path), *others)


def run_faults(cluster: LocalCluster, journal: Journal, faults: DiskFaults, brokers: list[int]) -> None:
    """Each kind of fault once, also in a short run, and on until the time is over."""
    places = Places(cluster.bootstrap, TOPIC)
    tier = Path(cluster.directory, "remote")
    wait_until(lambda: len(list(tier.rglob("*.log"))) >= 2 * PARTITIONS, "segments in the tier")
    for at, (fault, node) in enumerate(itertools.chain.from_iterable(faults.rounds(brokers))):
        if at >= KINDS and journal.now() >= SECONDS:
            return
        fault(node)
        wait_until(lambda: all(map(places.all_have, brokers)), f"all to be in sync after {journal.faults[-1]}", SYNC)
        time.sleep(1)  # without a fault
