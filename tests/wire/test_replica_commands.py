"""`milena elect`, `reassign` and `broker`: their effects on replicas and their error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.testing.local_cluster import LIMIT, LocalCluster
from tests.wire.command import milena, refused
from tests.wire.waiting import wait_until


@pytest.fixture
def to(cluster: LocalCluster) -> tuple[str, str]:
    return ("-b", cluster.bootstrap)


def rows(topic: str, to: tuple[str, str]) -> list[tuple[str, str, str]]:
    """Return leader, replicas and sorted ISR of each partition."""
    _, _, *lines = milena("topic", "describe", topic, *to).out.splitlines()
    found = [line.split() for line in lines]
    return [(leader, replicas, ",".join(sorted(isr.split(",")))) for _, leader, _, replicas, isr, _ in found]


def until(topic: str, to: tuple[str, str], *wanted: tuple[str, str, str]) -> None:
    wait_until(lambda: rows(topic, to) == list(wanted), f"{topic} to be {wanted}", LIMIT)


def test_replicas_are_moved_and_leaders_elected(tmp_path: Path, topic: str) -> None:
    # In the shared cluster the controller could rebalance leaders at the same time.
    with LocalCluster.start(tmp_path, brokers=3, overrides={"auto.leader.rebalance.enable": "false"}) as cluster:
        moved_and_elected(("-b", cluster.bootstrap), topic)


def moved_and_elected(to: tuple[str, str], topic: str) -> None:
    milena("topic", "create", topic, "--partitions", "2", *to)
    targets = (f"{topic}:0=1,2", f"{topic}:1=2,3,1")
    out = milena("reassign", "start", *targets, *to).out
    assert out == f"{topic}-0: moves to 1,2\n{topic}-1: moves to 2,3,1\n"
    wait_until(lambda: [row[1:] for row in rows(topic, to)] == [("1,2", "1,2"), ("2,3,1", "1,2,3")], "the moves", LIMIT)
    milena("elect", topic, *to)
    until(topic, to, ("1", "1,2", "1,2"), ("2", "2,3,1", "1,2,3"))
    milena("reassign", "start", f"{topic}:0=2,1", *to)
    until(topic, to, ("1", "2,1", "1,2"), ("2", "2,3,1", "1,2,3"))
    assert milena("elect", topic, *to).out.splitlines() == [
        f"{topic}-1: no election needed, the preferred replica leads",
        f"{topic}-0: the preferred replica leads now",
    ]
    until(topic, to, ("2", "2,1", "1,2"), ("2", "2,3,1", "1,2,3"))
    assert milena("elect", "--unclean", f"{topic}:1", *to).out == f"{topic}-1: no election needed, there is a leader\n"
    assert milena("reassign", "list", topic, *to).out == "no ongoing reassignments\n"
    assert refused("reassign", "cancel", f"{topic}:1", *to).startswith(f"{topic}-1: ")


def test_brokers_are_listed_and_one_is_unregistered(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, brokers=2, topics=["t:1:2"]) as cluster:
        to = ("-b", cluster.brokers[0].listeners["PLAINTEXT"])
        columns, *lines = milena("broker", "list", *to).out.splitlines()
        assert columns.split() == ["broker", "state", "address", "rack", "leads", "replicas"]
        assert [line.split()[:2] for line in lines] == [["1", "active"], ["2", "active"]]
        assert [line.split()[-1] for line in lines] == ["1", "1"]
        assert refused("broker", "unregister", "2", *to) == "broker 2 is active; stop it first, or use --force"
        cluster.kill(2)
        wait_until(lambda: "fenced" in milena("broker", "list", *to).out, "broker 2 to be fenced", LIMIT)
        milena("reassign", "start", "t:0=1", *to)
        until("t", to, ("1", "1", "1"))
        assert milena("broker", "unregister", "2", *to).out == "broker 2: unregistered\n"
        assert len(milena("broker", "list", *to).out.splitlines()) == 2


def test_a_reassignment_to_a_broker_that_is_down_is_listed_and_cancelled(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, brokers=2, topics=["t:1:1"]) as cluster:
        to = ("-b", cluster.bootstrap)
        ((here, _, _),) = rows("t", to)
        there = str(3 - int(here))
        cluster.kill(int(there))
        to = ("-b", cluster.brokers[int(here) - 1].listeners["PLAINTEXT"])
        milena("reassign", "start", f"t:0={there}", *to)
        columns, line = milena("reassign", "list", *to).out.splitlines()
        assert columns.split() == ["partition", "replicas", "adding", "removing"]
        assert line.split() == ["t-0", f"{there},{here}", there, here]
        assert milena("reassign", "cancel", "--all", *to).out == "t-0: cancelled\n"
        until("t", to, (here, here, here))
        assert milena("reassign", "cancel", "--all", *to).out == "no ongoing reassignments\n"


MISTAKES = [
    ("elect", 2, "milena elect needs partitions, or --all"),
    ("elect --all t", 2, "milena elect needs partitions, or --all"),
    ("elect t:x", 2, "t:x: write it as TOPIC or TOPIC:PARTITION"),
    ("elect missing", 1, "topic missing: UNKNOWN_TOPIC_OR_PARTITION"),
    ("reassign", 0, ""),
    ("reassign start", 2, "milena reassign start needs TOPIC:PARTITION=BROKER,BROKER,..."),
    ("reassign start t=1,2", 2, "t=1,2: write it as TOPIC:PARTITION=BROKER,BROKER,..."),
    ("reassign start t:0=a", 2, "t:0=a: write it as TOPIC:PARTITION=BROKER,BROKER,..."),
    ("reassign start missing:0=1", 1, "missing-0: "),
    ("reassign cancel", 2, "milena reassign cancel needs partitions, or --all"),
    ("reassign lst", 2, "no command `reassign lst` (did you mean list?)"),
    ("broker unregister x", 1, "broker x: not a broker id"),
    ("broker unregister 77", 1, "broker 77: "),
    ("broker unregister", 2, "milena broker unregister needs BROKER: its id"),
]


@pytest.mark.parametrize(("line", "code", "sentence"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_a_mistake_is_a_one_line_error(to: tuple[str, str], line: str, code: int, sentence: str) -> None:
    if code:
        assert refused(*line.split(), *to, code=code).startswith(sentence)
    else:
        assert "usage: milena" in milena(*line.split()).out
