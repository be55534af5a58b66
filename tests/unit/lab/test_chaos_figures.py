"""The rates, latencies and outages that a report shows of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.command_line.errors import UserError
from milena.lab.chaos.reporting.figures import SLOTS, Figures, Latencies
from milena.lab.chaos.reporting.outages import Outages
from milena.lab.chaos.reporting.report import write_report
from milena.lab.histories import events
from milena.lab.histories.events import Event, Invoke, Poll, RequestOutcome, Send
from milena.lab.histories.faults import Effect, Fault, Kind
from milena.lab.histories.parts import Demands
from milena.lab.histories.progress import Stall, Unjudged
from milena.lab.histories.transactions.events import CommittedPoll, TransactionalSend, TransactionEnd
from tests.fixtures.properties import examples

OK, UNKNOWN = RequestOutcome.OK, RequestOutcome.UNKNOWN


def write(begun: float, ended: float, outcome: RequestOutcome = OK, lane: str = "aiokafka/1") -> Send:
    return Send(("t", 0), f"v{begun}", begun, ended, outcome, 0, lane=lane)


def test_rates_are_counted_by_library_and_second() -> None:
    figures = Figures()
    sends = [write(10.2, 10.9), write(10.3, 12.1), write(11, 12.5, UNKNOWN), write(12, 12.5, lane="java/0")]
    polls = [Poll(("t", 0), "java/r", 11.5, ((0, "a"), (1, "b"))), Poll(("t", 0), "r", 12.5, ())]
    history: list[Event] = [*sends, *polls]
    for event in history:
        figures.add(event)
    slots = figures.slots()
    assert (slots.begun, slots.width) == (10, 1)
    assert slots.writes == {"aiokafka": [1, 0, 1], "java": [0, 0, 1]}
    assert slots.reads == {"clients": [0, 0, 0], "java": [0, 2, 0]}
    assert slots.latency["max"] == [pytest.approx(0.7), None, pytest.approx(1.8)]
    assert dict(figures.operations) == {("write", "ok"): 3, ("write", "unknown"): 1, ("poll", "ok"): 2}


def test_operations_of_transactions_are_counted_by_outcome() -> None:
    figures = Figures()
    history: list[Event] = [
        TransactionalSend(("t", 0), "v", "t 1", 1, 2, OK, 0),
        TransactionEnd("t 1", True, 2, 3, UNKNOWN),
        TransactionEnd("t 2", False, 3, 4, OK),
        CommittedPoll(("t", 0), "r", 4, ((0, "v"),)),
    ]
    for event in history:
        figures.add(event)
    assert dict(figures.operations) == {
        ("write in a transaction", "ok"): 1,
        ("commit of a transaction", "unknown"): 1,
        ("abort", "ok"): 1,
        ("poll with read_committed", "ok"): 1,
    }


def test_a_long_run_has_wider_slots_and_the_same_rates() -> None:
    figures = Figures()
    for second in range(SLOTS * 2):
        figures.add(write(second + 0.5, second + 0.75))
    slots = figures.slots()
    assert slots.width == 2
    assert slots.writes == {"aiokafka": [1.0] * SLOTS}


@given(st.lists(st.floats(1e-4, 100), min_size=1, max_size=200), st.sampled_from([0.5, 0.99]))
@settings(max_examples=examples(60))
def test_percentiles_are_exact_to_five_percent(seconds: list[float], share: float) -> None:
    latencies = Latencies()
    for one in seconds:
        latencies.add(one)
    expected = sorted(seconds)[max(0, -int(-share * len(seconds) // 1) - 1)]
    assert latencies.percentile(share) == pytest.approx(expected, rel=0.05)


def test_a_partition_is_unavailable_in_each_whole_second_without_an_acknowledged_write() -> None:
    figures = Figures()
    figures.add(write(10, 20))
    figures.stalled([Stall(11.5, 15.5, ((11.5, 13.2), (14, 15.5))), Stall(18, 19, ((18, 19),))])
    figures.stalled([Stall(12, 13, ((12, 13),))])
    assert figures.slots().unavailable == [0, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0]


def test_the_outage_of_a_fault_is_the_longest_of_any_partition_until_recovery() -> None:
    faults = [Fault(Kind.KILL, (1,), at, at + 5.0, recovers=5.0) for at in (100.0, 200.0)]
    faults.append(Fault(Kind.KILL, (1,), 300.0, 305.0, recovers=5.0, effect=Effect.SEEN))
    outages = Outages(faults)
    outages.stalled([Stall(99, 104, ((99, 104),)), Stall(206, 208, ((206, 207), (207.5, 208)))])
    outages.stalled([Stall(103, 106, ((103, 106),)), Stall(211, 290, ((211, 290),))])
    assert outages.seconds == [4, 1.5, 0]
    (row,) = outages.rows()
    assert row == ("kill", 3, 1, 0, 0, 1.5, 4)


def test_an_empty_history_gets_no_report(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").touch()
    with pytest.raises(UserError, match="nothing to judge"):
        write_report(tmp_path / "out", tmp_path / "history.jsonl", {"place": "nowhere"})
    assert not (tmp_path / "out").exists()


def test_a_history_without_writes_gets_a_report(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("".join(events.write([Poll(("t", 0), "r", 9, ())])))
    assert write_report(tmp_path / "out", tmp_path / "history.jsonl", {"place": "nowhere"}) == []
    assert (tmp_path / "out" / "report.html").stat().st_size > 1000


def test_violations_in_topics_without_promises_are_reported_as_controls(tmp_path: Path) -> None:
    weak: list[Event] = [replace(write(at, at + 1), offset=at, value=f"v{at}", acks=1) for at in range(2)]
    begun = Invoke("send", 0, ("t", 0), "v0", acks=1)
    history = [begun, *weak, Poll(("t", 0), "r", 9, ((1, "v1"),))]
    (tmp_path / "history.jsonl").write_text("".join(events.write(history)))
    for promised in ({"t"}, {"other"}):
        found = write_report(tmp_path, tmp_path / "history.jsonl", {}, Demands(frozenset(promised)))
        report = json.loads((tmp_path / "report.json").read_bytes())
        assert report["verdict"] == "passed"
        assert report["controls"] == ({"lost write": 1} if promised == {"t"} else {})
        assert len(found) == len(report["violations of controls"]) == len(report["controls"])
        assert ("settings promise nothing" in (tmp_path / "report.html").read_text()) == (promised == {"t"})


def test_an_outage_during_the_next_fault_does_not_count_for_the_fault_before_it() -> None:
    faults = [
        Fault(Kind.SLOW_DISK, (1,), 100, 104, recovers=15.5),
        Fault(Kind.TIER_AWAY, (), 100, 106, recovers=15.5),
        Fault(Kind.STOP, (2,), 108, 115, recovers=15.5),
    ]
    outages = Outages(faults)
    outages.stalled([Stall(105, 105.5, ((105, 105.5),)), Stall(107.9, 116, ((107.9, 116),))])
    assert outages.seconds == pytest.approx([0.5, 0.5, 8])


def test_progress_is_judged_if_a_fault_lasts_longer_than_its_allowed_time_and_the_patience() -> None:
    places = (("t", 0),)
    faults = [
        Fault(Kind.STOP, (1,), 0, 14, places, within=8),
        Fault(Kind.STOP, (1,), 20, 32, places, within=8),
        Fault(Kind.STOP, (1,), 40, 54, (), within=8),
    ]
    (row,) = Outages(faults).rows()
    assert (row.times, row.judged, row.untried) == (3, 1, 0)
    outages = Outages(faults)
    for untried in (False, True):
        outages.unjudged([Unjudged(faults[0], untried)])
        (row,) = outages.rows()
        assert (row.times, row.judged, row.untried) == (3, 0, untried)


def test_the_terminal_gets_the_verdict_as_a_table(tmp_path: Path) -> None:
    fault = Fault(Kind.KILL, (1,), 1.0, 2.0, recovers=5.0, effect=Effect.SEEN, late=(("t", 0),))
    (tmp_path / "history.jsonl").write_text("".join(events.write([fault, write(1.0, 4.5)])))
    printed: list[str] = []
    write_report(tmp_path / "out", tmp_path / "history.jsonl", {}, tell=printed.append)
    rows = [line.split() for line in printed]
    assert ["no", "recovery", "1"] in rows
    assert ["kill", "1", "1", "0", "0", "3.5", "s", "3.5", "s"] in rows


def test_a_fault_that_was_not_carried_out_does_not_count() -> None:
    figures = Figures()
    figures.add(Fault(Kind.TIER_UNMOUNTED, (), 1.0, 2.0, effect=Effect.OMITTED))
    figures.add(Fault(Kind.KILL, (1,), 3.0, 4.0, effect=Effect.SEEN))
    assert [fault.kind for fault in figures.faults] == [Kind.KILL]
