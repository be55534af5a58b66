"""Two clients write at acks=all while every node is killed, stopped and shut down in turn: nothing is lost."""

from __future__ import annotations

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
from tests.wire.admin import create_topic

SECONDS = float(os.environ.get("MILENA_CHAOS_SECONDS", "60"))
TOPIC, PARTITIONS = "chaos", 6
SESSIONS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}

pytestmark = pytest.mark.timeout(SECONDS + 240)


def test_no_acknowledged_record_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster.start(tmp_path, brokers=3, overrides=SESSIONS) as cluster:
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
    """Kinds and nodes in turn until the time is over: a short run has each kind, a long one each kind at each node."""
    faults = Faults(cluster, journal, hold=4)
    kinds = (faults.kill, faults.stop, faults.terminate)
    brokers = [node.id for node in cluster.brokers]
    turns = [
        (kind, brokers[(at + turn) % len(brokers)]) for turn in range(len(brokers)) for at, kind in enumerate(kinds)
    ]
    turns.insert(len(kinds), (faults.kill, cluster.controller.id))
    while journal.now() < SECONDS:
        kind, node = turns[len(journal.faults) % len(turns)]
        kind(node)
        time.sleep(2)


def counts(journal: Journal) -> str:
    sends = [event for event in journal.events if isinstance(event, Send)]
    acknowledged = sum(send.outcome is Outcome.OK for send in sends)
    return f"{acknowledged} writes acknowledged, {len(sends) - acknowledged} of unknown outcome, {journal.now():.0f} s"
