"""Two clients write at acks=all, and groups commit, while nodes are killed, stopped, isolated and shut down in turn:
nothing is lost, and what coordinators told fits together."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

from milena.lab.histories.checker import check
from milena.lab.histories.events import RequestOutcome, Send
from milena.lab.histories.group_events import OffsetCommit, Settled, Trouble
from milena.testing.local_cluster import LocalCluster
from tests.chaos.faults import Faults
from tests.chaos.groups import GROUP, RawGroups, ReadingMember
from tests.chaos.journal import Journal
from tests.chaos.older_clients import ConfluentWriter, KafkaPythonWriter, Load, Reader, Writer, final_logs
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
OVERRIDES = {
    "broker.session.timeout.ms": f"{SESSION * 1000:.0f}",
    "broker.heartbeat.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
}
OFFSETS_TOPIC = "__consumer_offsets"
CALM = 5.0
"""Seconds in which groups work while nothing fails."""

pytestmark = pytest.mark.timeout(SECONDS + 240)


def test_no_acknowledged_record_is_lost_and_no_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster.start(tmp_path, brokers=3, overrides=OVERRIDES, lab=True) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
        journal = Journal()
        writers: list[Writer] = [writer(cluster.bootstrap, journal) for writer in (ConfluentWriter, KafkaPythonWriter)]
        loads = [Load(writer, TOPIC, PARTITIONS) for writer in writers]
        reader = Reader(cluster.bootstrap, journal, TOPIC, PARTITIONS)
        members = [ReadingMember(cluster.bootstrap, journal, TOPIC, f"member-{number}") for number in range(2)]
        groups = RawGroups(cluster.bootstrap, journal, [(TOPIC, number) for number in range(PARTITIONS)])
        groups.start()
        try:
            run_faults(cluster, journal)
        finally:
            end = journal.now()
            working: list[Load | ReadingMember | Reader | RawGroups] = [*loads, *members, reader, groups]
            for one in working:
                one.stop()
            end_groups(cluster, journal, groups)
            for log in final_logs(cluster.bootstrap, TOPIC, PARTITIONS):
                journal.note(log)
            journal.write(tmp_path / "history.jsonl")
        names = [writer.name for writer in writers]
        report = "\n".join(journal.report(names, end))
        with capsys.disabled():
            print(f"\n{report}\n{counts(journal)}")
        assert not (found := check(journal.events)), "\n".join(map(str, found[:30]))
        assert all(journal.acknowledged(name) for name in names)
        assert any(one.group == GROUP and one.outcome is RequestOutcome.OK for one in commits(journal))


def end_groups(cluster: LocalCluster, journal: Journal, groups: RawGroups) -> None:
    """Groups work while nothing fails; then each coordinator is killed in turn, and another one must know the same."""
    places = Places(cluster.bootstrap, OFFSETS_TOPIC)
    brokers = {node.id: node for node in cluster.brokers}

    def all_in_sync() -> None:
        wait_until(lambda: all(map(places.all_have, brokers)), "all coordinators to be in sync")

    all_in_sync()
    time.sleep(PAUSE)
    for fault in journal.faults:
        for address in brokers[fault.node].listeners.values() if fault.node in brokers else ():
            journal.note(Trouble(address, fault.begun, fault.mended))
    journal.note(Settled(journal.now()))
    groups.start()
    time.sleep(CALM)
    groups.stop()
    groups.look()
    for broker in {place.leader for place in places.now()}:
        cluster.kill(broker)
        groups.look()
        cluster.start_node(broker)
        all_in_sync()
    groups.look()
    groups.close()


def commits(journal: Journal) -> list[OffsetCommit]:
    return [event for event in journal.events if isinstance(event, OffsetCommit)]


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
    acknowledged = sum(send.outcome is RequestOutcome.OK for send in sends)
    taken = sum(commit.outcome is RequestOutcome.OK for commit in commits(journal))
    return (
        f"{acknowledged} writes acknowledged, {len(sends) - acknowledged} of unknown outcome, "
        f"{taken} of {len(commits(journal))} commits acknowledged, {journal.now():.0f} s"
    )
