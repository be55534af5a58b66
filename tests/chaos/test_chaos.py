"""Two clients write at acks=all while nodes are killed, stopped, isolated and shut down in turn: nothing is lost."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

from lab.histories.checker import check
from lab.histories.events import Outcome, Send
from milena.local_cluster import LocalCluster
from tests.chaos.clients import ConfluentWriter, KafkaPythonWriter, Load, Reader, Writer, final_logs
from tests.chaos.faults import Faults
from tests.chaos.journal import Journal
from tests.wire.admin import Places, create_topic
from tests.wire.waiting import wait_until

SECONDS = float(os.environ.get("MILENA_CHAOS_SECONDS", "60"))
TOPIC, PARTITIONS = "chaos", 6
KINDS = 6
"""How many faults a round has, which is the least of a short run."""
PAUSE = 1.0
"""Seconds without a fault after all are in sync again."""
SESSION = 3.0
"""Seconds."""
SESSIONS = {"broker.session.timeout.ms": f"{SESSION * 1000:.0f}", "broker.heartbeat.interval.ms": "500"}

pytestmark = pytest.mark.timeout(SECONDS + 240)


def test_no_acknowledged_record_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster.start(tmp_path, brokers=3, overrides=SESSIONS, lab=True) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
        journal = Journal()
        writers: list[Writer] = [writer(cluster.bootstrap, journal) for writer in (ConfluentWriter, KafkaPythonWriter)]
        loads = [Load(writer, TOPIC, PARTITIONS) for writer in writers]
        reader = Reader(cluster.bootstrap, journal, TOPIC, PARTITIONS)
        try:
            run_faults(cluster, journal)
        finally:
            end = journal.now()
            for load in loads:
                load.stop()
            reader.stop()
            for log in final_logs(cluster.bootstrap, TOPIC, PARTITIONS):
                journal.note(log)
            journal.write(tmp_path / "history.jsonl")
        names = [writer.name for writer in writers]
        report = "\n".join(journal.report(names, end))
        with capsys.disabled():
            print(f"\n{report}\n{counts(journal)}")
        assert not (found := check(journal.events)), "\n".join(map(str, found[:30]))
        assert all(journal.acknowledged(name) for name in names)


def run_faults(cluster: LocalCluster, journal: Journal) -> None:
    """Each kind of fault once, also in a short run, and on until the time is over."""
    brokers = [node.id for node in cluster.brokers]
    places = Places(cluster.bootstrap, TOPIC)
    faults = Faults(cluster, journal, session=SESSION).rounds(brokers, cluster.controller.id)
    for at, (fault, node) in enumerate(itertools.chain.from_iterable(faults)):
        if at >= KINDS and journal.now() >= SECONDS:
            return
        fault(node)
        wait_until(lambda: all(map(places.all_have, brokers)), f"all to be in sync after {journal.faults[-1]}")
        time.sleep(PAUSE)


def counts(journal: Journal) -> str:
    sends = [event for event in journal.events if isinstance(event, Send)]
    acknowledged = sum(send.outcome is Outcome.OK for send in sends)
    return f"{acknowledged} writes acknowledged, {len(sends) - acknowledged} of unknown outcome, {journal.now():.0f} s"
