"""The story of a run: changes of the cluster, the trace, and violations on one time axis."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from milena.client.cluster import BrokerView, ClusterView, PartitionInfo, TopicView
from milena.lab.chaos.observer import Observer, Seen
from milena.lab.chaos.reporting.figures import Figures
from milena.lab.chaos.reporting.story import Found, located, names_of, story
from milena.lab.histories import events
from milena.lab.histories.anomalies import Anomaly, Violation
from milena.lab.histories.events import Send
from milena.lab.histories.faults import Fault, Kind
from milena.lab.histories.group_events import RequestOutcome
from milena.lab.histories.seen import BrokerSeen, PartitionSeen

PLACE = ("t", 0)
BROKERS = (1, 2)


def view(leader: int, epoch: int, isr: tuple[int, ...], brokers: tuple[int, ...] = BROKERS) -> ClusterView:
    partition = PartitionInfo(0, leader, epoch, BROKERS, isr, ())
    known = {broker: BrokerView(broker, "localhost", 9092 + broker, None) for broker in brokers}
    return ClusterView(None, -1, known, {"t": TopicView("t", None, 0, False, {0: partition})})


def seen_in(*looks: tuple[ClusterView | None, ClusterView | None]) -> list[Seen]:
    """What the looks at the metadata of both brokers note; the time is the number of noted changes so far."""
    found: list[Seen] = []
    numbers = count()
    observer = Observer(found.append, lambda: float(next(numbers)))
    for views in looks:
        observer.views(views, BROKERS)
    return found


def test_each_change_of_a_leader_or_an_isr_is_noted_once() -> None:
    both, alone = view(1, 0, (2, 1)), view(1, 0, (1,))
    assert seen_in((both, both), (both, both), (alone, alone))[2:] == [
        PartitionSeen(PLACE, 2.0, 1, 0, (1, 2)),
        PartitionSeen(PLACE, 3.0, 1, 0, (1,)),
    ]


def test_a_partition_is_as_its_leader_reports_it() -> None:
    found = seen_in((view(2, 1, (1, 2)), view(2, 1, (2,))))
    assert found[-1] == PartitionSeen(PLACE, 2.0, 2, 1, (2,))


def test_a_leader_that_does_not_know_its_successor_is_not_believed() -> None:
    found = seen_in((view(1, 0, (1,)), view(2, 1, (2,))))
    assert found[-1] == PartitionSeen(PLACE, 2.0, 2, 1, (2,))


def test_a_broker_is_fenced_while_another_one_does_not_list_it() -> None:
    both, without = view(1, 0, (1,)), view(1, 0, (1,), brokers=(1,))
    found = [one for one in seen_in((both, both), (without, both), (None, None)) if isinstance(one, BrokerSeen)]
    assert [(one.broker, one.fenced) for one in found] == [(1, False), (2, False), (2, True)]


@pytest.mark.parametrize("event", [PartitionSeen(PLACE, 1.5, -1, 3, (1, 2)), BrokerSeen(2, 1.5, True)])
def test_what_was_seen_is_a_line_of_a_history(event: Seen) -> None:
    assert events.from_line(events.to_line(event)) == event


def a_story(trace: list[str], *violations: Found, seen: list[Seen] | None = None) -> dict[str, Any]:
    figures = Figures()
    figures.add(Fault(Kind.KILL, (2,), 1.0, 4.0))
    for one in seen or ():
        figures.add(one)
    return story(names_of(figures), figures, figures.slots(), violations, trace)


def test_the_trace_has_changes_and_violations_in_the_order_of_time() -> None:
    trace = ["   0.500000 4 brokers are ready", "   1.000000 kill 2 for 3.0 s", "   2.000000     warning log: full"]
    found = a_story(
        trace,
        Found("lost write", "t-0", "gone", 1.5),
        Found("gap", "t-0", "no time", None),
        seen=[PartitionSeen(PLACE, 1.2, -1, 3, ())],
    )
    assert found["trace"] == [
        (0.5, "4 brokers are ready", "client"),
        (1.0, "kill 2 for 3.0 s", "fault"),
        (1.2, "t-0: no leader, leader epoch 3, ISR empty", "leader"),
        (1.5, "lost write: t-0: gone", "violation"),
        (2.0, "warning log: full", "warning"),
    ]
    assert [one["at"] for one in found["violations"]] == [1.5, None]


def test_the_nodes_are_those_that_were_seen_or_had_faults() -> None:
    found = a_story([], seen=[BrokerSeen(1, 0.0, False), BrokerSeen(2, 0.0, False)])
    assert found["nodes"] == [{"id": 1, "name": "broker 1"}, {"id": 2, "name": "broker 2"}]
    figures = Figures()
    figures.add(BrokerSeen(1, 0.0, False))
    figures.add(Fault(Kind.CONTROLLER, (1000,), 1.0, 2.0))
    assert names_of(figures) == {1: "broker 1", 1000: "controller"}


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("milena/t:7 was acknowledged at offset 3 and is not in the log", 2.25),
        ("no write was acknowledged until kill 2 was mended at 4.125", 4.125),
        ("offset 3 is missing", None),
    ],
)
def test_a_violation_is_at_the_time_of_its_record_or_of_its_text(text: str, at: float | None) -> None:
    send = Send(PLACE, "milena/t:7", 2.0, 2.25, RequestOutcome.OK, 3)
    (found,) = located([Violation(Anomaly.LOST_WRITE, "t-0", text)], [send])
    assert found == Found("lost write", "t-0", text, at)
