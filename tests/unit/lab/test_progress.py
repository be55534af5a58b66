"""The progress that is required of a cluster during faults and after them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.lab.histories.checker import check
from milena.lab.histories.events import Event, Poll, RequestOutcome, Send, Void, from_line, to_line
from milena.lab.histories.faults import Fault, Kind
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.keyed import KeyedWrite
from milena.lab.histories.machine import MachineStalls
from milena.lab.histories.parts import Demands
from milena.lab.histories.progress import Due, Stalls
from tests.fixtures.properties import examples

P = ("t", 0)
OK, UNKNOWN, FAILED = RequestOutcome.OK, RequestOutcome.UNKNOWN, RequestOutcome.FAILED
CUT = Fault(Kind.ISOLATE, (1,), 100.0, 160.0, writable=(P,), within=10.0, recovers=20.0, groups=("g",))
CRIPPLED = replace(CUT, writable=(), groups=())


def write(begun: float, ended: float, outcome: RequestOutcome = OK, acks: int = -1) -> Send:
    offset = int(begun * 10) if outcome is OK else -1
    return Send(P, f"v{begun}", begun, ended, outcome, offset, acks)


def writes(begun: int, ended: int) -> list[Event]:
    return [write(at, at + 0.5) for at in range(begun, ended)]


def poll(at: float, *offsets: int, session: str = "reader") -> Poll:
    return Poll(P, session, at, tuple((offset, f"v{offset // 10}") for offset in offsets))


def commit(begun: float, ended: float, outcome: RequestOutcome = OK) -> OffsetCommit:
    return OffsetCommit("g", "", begun, ended, outcome, "m", 1, "", P, int(begun))


def names(*history: Event, patience: float = 5.0) -> list[str]:
    found = check(history, Demands(patience=patience))
    return [one.anomaly.value for one in found if one.anomaly.value.startswith("no progress")]


WRITES, READS, COMMITS = (f"no progress of {what}" for what in ("writes", "reads", "commits"))


@pytest.mark.parametrize(
    ("found", "history"),
    [
        ([], [CUT, *writes(90, 200)]),
        ([WRITES], [CUT, *writes(90, 100), write(100, 161), *writes(161, 200)]),
        ([], [CUT, *writes(90, 100), write(100, 114), *writes(114, 200)]),
        ([], [CRIPPLED, *writes(90, 100), write(100, 179), *writes(179, 200)]),
        ([WRITES], [CRIPPLED, *writes(90, 100), write(100, 190), *writes(190, 200)]),
        ([WRITES], [CUT, *writes(90, 120), write(120, 159, UNKNOWN)]),
        ([WRITES], [CUT, *writes(90, 120), write(120, 159, FAILED)]),
        ([], [CUT, *writes(90, 120), write(120, 159, UNKNOWN, acks=1)]),
        ([WRITES], [CUT, write(120, 159, UNKNOWN), write(130, 131, acks=1)]),
        ([], [CUT, *writes(90, 120), *writes(155, 200)]),
        ([], [CUT, write(90, 121, UNKNOWN), write(95, 112), write(112, 116)]),
        ([], [*writes(90, 100), write(100, 159)]),
        ([], [CUT, write(20, 99)]),
        ([], [CUT, replace(CRIPPLED, begun=105.0), *writes(90, 100), write(100, 159)]),
        ([WRITES], [CUT, KeyedWrite(P, "k", "v", 111, 159, OK, 3)]),
        ([], [CUT, KeyedWrite(("t", 1), "k", "v", 111, 159, OK, 3)]),
        ([COMMITS], [CUT, commit(99, 100), commit(100, 150), commit(150, 151)]),
        ([], [CRIPPLED, commit(99, 100), commit(100, 150), commit(150, 151)]),
        ([], [CUT, commit(99, 100), commit(100, 114), commit(150, 151)]),
    ],
)
def test_a_lack_of_writes_or_commits_is_found_where_progress_is_required(
    found: list[str], history: list[Event]
) -> None:
    assert names(*history) == found


ALONG = [poll(at + 0.6, at * 10) for at in range(90, 120)]
"""A poll for each second with the record that was acknowledged in it; the last write is at 120."""


@pytest.mark.parametrize(
    ("found", "polls"),
    [
        ([], [*ALONG]),
        ([], [*ALONG, poll(123, 1200), poll(128, 1300)]),
        ([READS], [*ALONG, poll(150, 1200)]),
        ([READS], [*ALONG, poll(130), poll(140)]),
        ([READS], [poll(91, 900), poll(120, 910, 1190)]),
        ([], [*ALONG, poll(130, 900, session="behind"), poll(150, 910, session="behind")]),
        ([], [*ALONG, poll(123, 1200, session="other"), poll(150, 1200)]),
        ([], [*ALONG[:20], *[poll(at + 0.6, at * 10, session="next") for at in range(115, 121)]]),
    ],
)
def test_a_reader_at_the_log_end_must_get_acknowledged_records_in_time(found: list[str], polls: list[Event]) -> None:
    assert names(CUT, *writes(90, 121), *polls) == found


def test_readers_of_a_former_leader_may_get_nothing_until_it_hears_of_its_successor() -> None:
    history: list[Event] = [*writes(90, 200), poll(99, 980, session="a"), poll(170, 1690, session="a")]
    assert names(CUT, *history) == [READS]
    assert names(replace(CUT, stale=True), *history) == []
    late = [*history[:-1], poll(195, 1690, session="a")]
    assert names(replace(CUT, stale=True), *late) == [READS]


def test_a_partition_that_accepts_no_write_is_reported_once_for_each_due_time() -> None:
    history: list[Event] = [CUT, write(95, 300, UNKNOWN)]
    assert [str(one) for one in check(history)] == [
        "no progress of writes: t-0: no write was acknowledged from 95.000 to 300.000, of which 170.0 s count"
    ]


def test_a_fault_is_a_line_of_a_history() -> None:
    assert from_line(to_line(CUT)) == CUT
    with pytest.raises(ValueError, match=r"Invalid enum value .rust."):
        from_line(to_line(CUT).replace("isolate", "rust"))


TICKS = 60


def random_faults(random: Random) -> list[Fault]:
    faults = []
    for _ in range(random.randrange(4)):
        begun = random.randrange(TICKS)
        mended = begun + random.randrange(20)
        writable = (P,) if random.random() < 0.6 else ()
        within, recovers = random.randrange(8), random.randrange(8)
        faults.append(Fault(Kind.KILL, (1,), begun, mended, writable, within, recovers))
    return faults


def is_due(faults: list[Fault], tick: int) -> bool:
    """Whether progress is due in the second that begins at ``tick``; the reference implementation."""
    if all(tick < fault.begun for fault in faults):
        return False
    for fault in faults:
        end = fault.mended + fault.recovers
        in_time = fault.begun <= tick < fault.begun + fault.within or fault.mended <= tick < end
        if in_time if fault.writable else fault.begun <= tick < end:
            return False
    return True


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(200))
def test_stalls_and_due_times_equal_those_of_a_count_second_by_second(seed: int) -> None:
    random = Random(seed)
    faults = random_faults(random)
    tries = []
    for _ in range(random.randrange(8)):
        begun = random.randrange(TICKS)
        tries.append((begun, begun + random.randrange(1, 25), random.random() < 0.6))
    stalls = Stalls()
    for begun, ended, done in tries:
        stalls.tried(begun, ended, done=done)
    due = Due(faults, lambda fault: P in fault.writable, MachineStalls())
    patience = random.randrange(6)
    found = [(s.begun, s.ended, due.seconds(s.waited)) for s in stalls.longer_than(patience)]
    expected = []
    marks = (
        sorted([min(t[0] for t in tries), *(t[1] for t in tries if t[2]), max(t[1] for t in tries)]) if tries else []
    )
    for before, after in pairwise(marks):
        waited = [at for at in range(before, after) if any(begun <= at < ended for begun, ended, _ in tries)]
        if len(waited) > patience:
            expected.append((before, after, sum(is_due(faults, at) for at in waited)))
    assert found == expected


def test_a_lost_write_with_acks_1_is_reported_only_for_topics_judged_as_promised() -> None:
    weak, last = write(1, 2, acks=1), write(2, 3, acks=1)
    history: list[Event] = [weak, last, poll(9, last.offset), Void(P, 5.0, "unclean")]
    assert check(history) == []
    for topics, found in (({"t"}, ["lost write"]), ({"other"}, [])):
        assert [one.anomaly.value for one in check(history, Demands(frozenset(topics)))] == found
