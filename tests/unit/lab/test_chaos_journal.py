"""The history on disk: operations without an end get an unknown outcome, and an incomplete line is ignored."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from milena.lab.chaos.faults import Fault, Kind
from milena.lab.chaos.journal import HISTORY, FileJournal, events, faults
from milena.lab.chaos.reporting.report import write_report
from milena.lab.chaos.topics import PLAIN, WEAK
from milena.lab.chaos.verdict import judge
from milena.lab.histories.events import Event, FinalLog, Invoke, RequestOutcome, Send, TopicChange, from_line, to_line
from milena.lab.histories.faults import Effect
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.keyed import KeyedWrite
from milena.runtime.clock import SystemClock

PLACE = ("plain", 0)
OK = RequestOutcome.OK


def written(folder: Path, *noted: Event) -> Path:
    journal = FileJournal(folder, SystemClock())
    for event in noted:
        journal.note(event)
    journal.close()
    return folder / HISTORY


def test_a_completed_operation_is_read_once(tmp_path: Path) -> None:
    send = Send(PLACE, "a", 1.0, 2.0, OK, 7)
    path = written(tmp_path, Invoke("send", 1.0, PLACE, "a"), send)
    assert list(events(path)) == [send]


def test_an_operation_without_an_end_has_an_unknown_outcome(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        Invoke("send", 1.0, PLACE, "a", acks=1),
        Invoke("keyed", 1.0, PLACE, None, "key"),
        Invoke("keyed", 1.0, PLACE, None, "other"),
        KeyedWrite(PLACE, "other", None, 1.0, 2.0, OK, 3),
        Invoke("offset commit", 2.0, PLACE, "5", "group"),
        Invoke("change", 3.0, value="topic", acks=1),
    )
    _, send, keyed, commit, change = events(path)
    assert isinstance(send, Send) and (send.value, send.acks) == ("a", 1)
    assert isinstance(keyed, KeyedWrite) and (keyed.key, keyed.value) == ("key", None)
    assert isinstance(commit, OffsetCommit) and (commit.group, commit.offset) == ("group", 5)
    assert isinstance(change, TopicChange) and (change.name, change.exists) == ("topic", True)
    assert {one.outcome for one in (send, keyed, commit, change)} == {RequestOutcome.UNKNOWN}


def test_each_event_is_written_at_once(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, SystemClock())
    journal.note(Invoke("send", 1.0, PLACE, "a"))
    assert "invoke" in (tmp_path / HISTORY).read_text()
    journal.close()


def test_an_incomplete_last_line_is_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, Invoke("send", 1.0, PLACE, "a"))
    with path.open("a") as file:
        file.write('{"event":"send","parti')
    (send,) = events(path)
    assert isinstance(send, Send) and send.outcome is RequestOutcome.UNKNOWN


def test_faults_are_lines_of_the_history(tmp_path: Path) -> None:
    fault = Fault(Kind.KILL, (1,), 1.0, 2.0, (PLACE,), 3.0, 4.0, text="text")
    journal = FileJournal(tmp_path, SystemClock())
    journal.note(fault)
    journal.close()
    assert list(faults(tmp_path / HISTORY)) == [fault]
    assert list(events(tmp_path / HISTORY)) == [fault]


def test_a_fault_that_was_not_mended_lasts_for_ever(tmp_path: Path) -> None:
    over = Fault(Kind.KILL, (1,), 1.0, 2.0, recovers=15.5, effect=Effect.SEEN, late=(PLACE,))
    path = written(
        tmp_path,
        Invoke("fault", 1.0, value="kill", key="1"),
        Invoke("fault", 1.0, value="cut-one-way", key="2 1000"),
        over,
        Invoke("send", 2.0, PLACE, "a"),
        Send(PLACE, "a", 2.0, 60.0, RequestOutcome.UNKNOWN),
    )
    assert [event for event in events(path) if isinstance(event, Fault)] == [
        over,
        Fault(Kind.CUT_ONE_WAY, (2, 1000), 1.0, inf),
    ]
    assert [str(one).partition(":")[0] for one in judge(path, [PLAIN], unsafe=False).violations] == ["no recovery"]
    write_report(tmp_path / "report", path, {})
    assert "Infinity" not in (tmp_path / "report" / "report.json").read_text()


@pytest.mark.parametrize(("value", "key"), [("flood", "1"), ("kill", "one")])
def test_a_line_that_names_no_fault_is_refused(value: str, key: str) -> None:
    with pytest.raises(ValueError, match=r"flood|one"):
        from_line(to_line(Invoke("fault", 1.0, value=value, key=key)))


def test_a_record_of_a_write_without_an_end_is_no_phantom(tmp_path: Path) -> None:
    path = written(tmp_path, Invoke("send", 1.0, PLACE, "a"), FinalLog(PLACE, ((0, "a", 0),), dense=True))
    assert not judge(path, [PLAIN], unsafe=False).violations


def test_writes_with_acks_1_are_judged_as_promised_only_in_an_unsafe_run(tmp_path: Path) -> None:
    place = (WEAK.name, 0)
    path = written(tmp_path, Send(place, "a", 1.0, 2.0, OK, 0, acks=1, once=False), FinalLog(place, (), dense=True))
    assert not judge(path, [PLAIN, WEAK], unsafe=False).violations
    verdict = judge(path, [PLAIN, WEAK], unsafe=True)
    assert not verdict.violations
    assert [one.anomaly.value for one in verdict.controls] == ["lost write"]


def test_losses_of_a_safe_topic_are_violations_in_an_unsafe_run_too(tmp_path: Path) -> None:
    path = written(tmp_path, Send(PLACE, "a", 1.0, 2.0, OK, 0), FinalLog(PLACE, (), dense=True))
    assert [one.anomaly.value for one in judge(path, [PLAIN, WEAK], unsafe=True).violations] == ["lost write"]
