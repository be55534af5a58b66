"""The verdict also reports what a run could not show: idle clients, partitions without writes, losses not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from milena.commands import history
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import Fault, Kind
from milena.lab.chaos.journal import HISTORY, FileJournal
from milena.lab.chaos.topics import PLAIN, TOPICS, WEAK
from milena.lab.chaos.verdict import Verdict, judge
from milena.lab.histories.events import Event, FinalLog, Poll, RequestOutcome, Send, TopicChange
from milena.lab.histories.faults import Effect
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.runtime.clock import SystemClock

OK, UNKNOWN = RequestOutcome.OK, RequestOutcome.UNKNOWN
KEYED = TOPICS["compacted"]
AT = (PLAIN.name, 0)
BY_KEY = (KEYED.name, 0)
HANG = Fault(Kind.HANG, (1,), 1.0, 2.0, effect=Effect.SEEN)


class Library:
    name = "java"
    can = frozenset({"produce", "consume", "group", "admin"})


LIBRARIES = [cast(Clients, Library())]


def judged(folder: Path, *noted: Event, unsafe: bool = False) -> Verdict:
    journal = FileJournal(folder, SystemClock())
    for event in noted:
        journal.note(event)
    journal.close()
    return judge(folder / HISTORY, [PLAIN, KEYED, WEAK], unsafe=unsafe, libraries=LIBRARIES)


def write(topic: str, at: float = 3.0, outcome: RequestOutcome = OK, acks: int = -1, lasts: float = 0.1) -> Send:
    return Send((topic, 0), f"java/{topic}:{at}", at, at + lasts, outcome, acks=acks, once=acks == -1)


TO_PLAIN, TO_WEAK = write(PLAIN.name), write(WEAK.name, acks=1)
BY_KEYS = KeyedWrite(BY_KEY, "k", "java/compacted:0", 3.0, 3.1, OK, 0)
TAIL = Poll(AT, "java/tail", 4.0, ((0, TO_PLAIN.value),))
AGAIN = Poll(AT, "java/from the start, 3", 4.0, ((0, TO_PLAIN.value),))
ALL = FullRead(BY_KEY, 4.0, 5.0, 1, (("k", 0, "java/compacted:0"),), reader="java/everything")
SHARED = Poll(AT, "java/member 2, assignment 1", 4.0, ((0, TO_PLAIN.value),))
COMMIT = OffsetCommit("readers-java", "", 4.0, 4.1, OK, "java/member 2, assignment 1", -1, partition=AT, offset=1)
KEPT = OffsetCommit("kept-java-0", "", 4.0, 4.1, OK, "java/single 0, assignment 1", -1, partition=AT, offset=1)
OF_TEAM = OffsetCommit("team-3", "", 4.0, 4.1, OK, "chaos-1", 2, partition=AT, offset=1)
OF_SOLO = OffsetCommit("solo-0", "", 4.0, 4.1, OK, "", -1, partition=AT, offset=1)
MADE = TopicChange("made-java-0", True, OK, {}, 3.0)
WORK: list[Event] = [TO_PLAIN, TO_WEAK, BY_KEYS, TAIL, AGAIN, ALL, SHARED, COMMIT, KEPT, OF_TEAM, OF_SOLO, MADE, HANG]


def test_a_library_that_uses_all_its_functions_is_not_reported(tmp_path: Path) -> None:
    assert judged(tmp_path, *WORK).idle == []


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ([TO_PLAIN], "java has written nothing to plain"),
        ([TO_WEAK, BY_KEYS], "java has written nothing to compacted and weak"),
        ([TO_PLAIN, TO_WEAK, BY_KEYS], "java has written nothing"),
        ([TAIL], "java has read nothing at the tail"),
        ([AGAIN, ALL], "java has read nothing from the start and of compacted topics"),
        ([TAIL, AGAIN, ALL], "java has read nothing"),
        ([SHARED], "java has read nothing in its group"),
        ([COMMIT], "java has committed nothing"),
        ([KEPT], "java has kept no commit"),
        ([OF_TEAM], "the group team has committed nothing"),
        ([OF_SOLO], "the group solo has committed nothing"),
        ([MADE], "java has made, configured and deleted no topic"),
        ([HANG], "no fault was injected"),
    ],
)
def test_functions_that_a_library_has_not_used_are_reported(without: list[Event], message: str, tmp_path: Path) -> None:
    assert message in judged(tmp_path, *(event for event in WORK if event not in without)).idle


def test_a_run_without_a_library_is_reported_as_idle(tmp_path: Path) -> None:
    judged(tmp_path, *WORK)
    assert judge(tmp_path / HISTORY, [PLAIN], unsafe=False).idle == ["no client library has worked"]


STOP = Fault(Kind.STOP, (1,), 10.0, 30.0, (AT,), within=8.0, recovers=15.5, effect=Effect.SEEN)
BEFORE, AFTER = write(PLAIN.name, 9.0), write(PLAIN.name, 31.0)


@pytest.mark.parametrize(
    ("tried", "untried"),
    [
        ([], True),
        (
            [write(PLAIN.name, 26.0)],
            True,
        ),  # too late: the end of the fault comes before a lack of progress is an anomaly
        ([write(PLAIN.name, 11.0)], True),  # progress is not due yet
        ([write(PLAIN.name, 20.0, UNKNOWN)], False),
        ([write(PLAIN.name, 11.0, lasts=9.0)], False),
        ([write(PLAIN.name, 20.0, acks=1)], True),
    ],
)
def test_progress_of_a_partition_is_not_judged_if_no_client_tried_to_write(
    tried: list[Event], untried: bool, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, *WORK, BEFORE, *tried, AFTER, STOP)
    message = "no client tried to write to plain-0 while stop was to be judged"
    assert (message in verdict.idle) is untried


@pytest.mark.parametrize(("tried", "untried"), [([], True), ([18.2], False), ([18.8], False), ([23.2], True)])
def test_in_a_short_judged_period_a_write_soon_after_its_start_counts_as_an_attempt(
    tried: list[float], untried: bool, tmp_path: Path
) -> None:
    verdict = judged(
        tmp_path, *WORK, BEFORE, *(write(PLAIN.name, at) for at in tried), AFTER, replace(STOP, mended=23.5)
    )
    assert any("no client tried" in text for text in verdict.idle) is untried


def test_the_command_reports_partitions_to_which_no_client_tried_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(tmp_path, *WORK, BEFORE, AFTER, STOP)
    assert history.main(["check", str(tmp_path / HISTORY)]) == 0
    message = "not judged: plain-0: no client tried to write for long enough during stop, 1 times"
    assert capsys.readouterr().out.splitlines()[0] == message


def test_a_late_recovery_is_no_violation_if_no_client_tried_to_write(tmp_path: Path) -> None:
    late = Fault(Kind.KILL, (1,), 10.0, 12.0, recovers=15.5, effect=Effect.SEEN, late=(AT,))
    verdict = judged(tmp_path / "idle", *WORK, BEFORE, late)
    assert not verdict.violations and any("no client tried" in text for text in verdict.idle)
    tried = judged(tmp_path / "busy", *WORK, BEFORE, write(PLAIN.name, 13.0, UNKNOWN, lasts=14.0), late)
    assert [one.anomaly.value for one in tried.violations] == ["no recovery"]


WEAKLY = (WEAK.name, 0)
CUT = Fault(Kind.ISOLATE, (1,), 10.0, 20.0, effect=Effect.SEEN, doomed=(WEAKLY,), doomed_from=10.5, doomed_until=12.5)


def weak(client: str, at: float) -> Send:
    return Send(WEAKLY, f"{client}/weak:{at}", at, at + 0.1, OK, int(10 * at), acks=1, once=False)


def test_an_unsafe_run_reports_clients_whose_expected_losses_were_not_seen(tmp_path: Path) -> None:
    lost, kept, before, behind = weak("java", 11.0), weak("aio", 11.5), weak("other", 10.2), weak("other", 12.45)
    stays = [one for one in (kept, before, behind) if one is not kept]
    log = FinalLog(WEAKLY, tuple((one.offset, one.value, 0) for one in stays))
    seen = judged(tmp_path / "seen", *WORK, lost, kept, before, behind, log, CUT, unsafe=True)
    assert not seen.blind
    assert dict(seen.losses["weak"]) == {"java": 2, "aio": 1}  # one of the two was written before the cut
    with_kept = FinalLog(WEAKLY, tuple((one.offset, one.value, 0) for one in (before, kept, behind)))
    blind = judged(tmp_path / "blind", *WORK, lost, kept, before, behind, with_kept, CUT, unsafe=True)
    assert blind.blind == ["aio in weak"]
    assert judged(tmp_path / "safe", *WORK, lost, kept, with_kept, CUT).blind == []
