"""Machine stalls: how they are measured, and which checks they suspend."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from milena.lab.chaos.faults import Step
from milena.lab.chaos.health import NotHealthy
from milena.lab.chaos.journal import HISTORY, FileJournal, events
from milena.lab.chaos.machine import LIMIT, TICK, Detector, Machine, lateness
from milena.lab.chaos.nemesis import is_explained
from milena.lab.chaos.processor_time import TICKS, Descendants
from milena.lab.chaos.reporting.report import _data, _judged, lines
from milena.lab.chaos.runner import _unhealthy
from milena.lab.chaos.verdict import Verdict
from milena.lab.histories.anomalies import Anomaly, Violation
from milena.lab.histories.checker import check
from milena.lab.histories.events import Event, FinalLog, RequestOutcome, Send, from_line, to_line, write
from milena.lab.histories.faults import Fault, Kind
from milena.lab.histories.files import HistoryFile, violations_of
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.machine import MachineStall, SessionTimeout
from milena.lab.histories.parts import DEFAULT, Judge
from milena.runtime.clock import SystemClock
from milena.testing.chaos import NOT_JUDGED, exit_code
from milena.testing.chaos_header import header, processor

P = ("t", 0)
OK, UNKNOWN = RequestOutcome.OK, RequestOutcome.UNKNOWN
HANG = Fault(Kind.HANG, (1,), 1.0, 2.0, writable=(P,), recovers=3.0)
STALL = MachineStall(20.0, 25.0, 4.0, 40.0, 10.0)
BEFORE, STUCK, AFTER = (
    Send(P, "a", 3.0, 3.1, OK, 0),
    Send(P, "b", 21.0, 33.0, UNKNOWN),
    Send(P, "c", 33.0, 33.1, OK, 1),
)


def detector() -> Detector:
    return Detector(session=3.0, recovers=15.0, slack=5.0)


def measured(late: list[float]) -> list[MachineStall]:
    """The stalls that are detected when consecutive timers fire late by these seconds."""
    found, now, one = [], 0.0, detector()
    for seconds in late:
        now += TICK + seconds
        found.append(one.add(now, seconds, 12.0))
    found.append(one.end(now))
    return [stall for stall in found if stall is not None]


def test_timers_that_fire_on_time_are_no_stall() -> None:
    assert measured([0.0] * 500) == []
    assert measured([0.009] * 500) == [], "as on a quiet machine"


def test_one_long_delay_is_a_stall_from_the_moment_the_timer_was_due() -> None:
    (stall,) = measured([0.0] * 20 + [4.0] + [0.0] * 200)
    assert stall.begun == pytest.approx(21 * TICK, abs=0.02)
    assert stall.seconds == pytest.approx(4.0, abs=0.02)
    assert (stall.load, stall.recovers) == (12.0, 15.0), "sessions have expired meanwhile"


def test_many_short_delays_add_up_to_a_stall() -> None:
    (stall,) = measured([0.0] * 100 + [0.1] * 15 + [0.0] * 200)
    assert stall.seconds == pytest.approx(15 * 0.09)
    assert stall.recovers == 5.0, "too short for a session to expire"
    assert measured([0.0] * 100 + [0.1] * 9 + [0.0] * 200) == [], f"less than {LIMIT} s in all"


def test_a_stall_that_lasts_to_the_end_is_reported() -> None:
    (stall,) = measured([0.2] * 30)
    assert stall.ended == pytest.approx(30 * 0.25)


async def test_a_process_that_was_not_scheduled_detects_a_stall(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, SystemClock())
    machine = Machine(detector(), journal)
    watching = asyncio.create_task(machine.watch_timers())
    await asyncio.sleep(TICK)
    time.sleep(LIMIT + 0.5)  # noqa: ASYNC251 - as a process that is not scheduled
    await asyncio.sleep(2 * TICK)
    watching.cancel()
    await asyncio.wait([watching])
    journal.close()
    (stall,) = events(tmp_path / HISTORY)
    assert isinstance(stall, MachineStall)
    assert machine.excuses(stall.ended) == stall.seconds > LIMIT
    assert machine.excuses(stall.ended + stall.recovers + 1) == 0, "the cluster had time to recover"


@pytest.mark.parametrize(
    ("passed", "own", "others", "late"),
    [
        (4.05, 0.0, 0.0, 4.0),  # the processors were used by other programs
        (4.05, 4.0, 0.0, 0.0),  # the runner itself used one processor
        (4.05, 0.0, 8.0, 0.0),  # its nodes used both processors all the time
        (4.05, 0.0, 4.0, 2.0),  # its nodes got half of them
    ],
)
def test_processor_time_of_the_run_itself_does_not_count_as_lateness(
    passed: float, own: float, others: float, late: float
) -> None:
    assert lateness(passed, own, others, 2) == pytest.approx(late)


def process(proc: Path, pid: int, parent: int, seconds: float) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    user = round(seconds * TICKS)
    (folder / "stat").write_text(f"{pid} (a name) 1 (2)) S {parent} 1 1 0 -1 0 0 0 0 0 {user} 0 0 0 20 0 1 0 0\n")


def test_the_processor_time_of_nodes_is_the_sum_over_all_descendants(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 50.0)
    process(tmp_path, 11, 10, 3.0)
    process(tmp_path, 12, 11, 1.0)
    process(tmp_path, 20, 1, 9.0)
    runner = Descendants(10, tmp_path)
    assert runner.used() == 0.0
    for pid, parent, seconds in ((10, 1, 60.0), (11, 10, 4.0), (12, 11, 3.0), (20, 1, 90.0)):
        process(tmp_path, pid, parent, seconds)
    assert runner.used() == pytest.approx(3.0), "neither its own time nor that of another program"
    shutil.rmtree(tmp_path / "12")
    process(tmp_path, 13, 11, 2.0)
    runner.look()
    process(tmp_path, 13, 11, 2.5)
    assert runner.used() == pytest.approx(0.5), "a new process counts once it was found"


def test_the_processor_time_of_a_busy_child_is_counted() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        used = Descendants(os.getpid())
        used._known[child.pid] = 0.0
        child.stdout.readline()
        assert used.used() >= 0.25
        child.stdin.close()


@pytest.mark.parametrize(
    ("steps", "explained"),
    [
        ((), False),
        ((Step(Kind.KILL, (1,), 5.0),), False),
        ((Step(Kind.KILL, (2,), 5.0),), True),
        ((Step(Kind.CLOCK, (1,), 5.0), Step(Kind.STOP, (2,), 5.0)), True),
        ((Step(Kind.CONTROLLER, (1000,), 5.0),), True),
        ((Step(Kind.CUT_ONE_WAY, (1000, 3), 5.0),), True),
    ],
)
def test_a_session_timeout_is_explained_by_faults_that_can_end_a_session(
    steps: tuple[Step, ...], explained: bool
) -> None:
    assert is_explained(2, steps) is explained


def test_a_lack_of_progress_during_a_stall_is_not_judged() -> None:
    history: list[Event] = [BEFORE, HANG, STUCK, AFTER]
    assert [one.anomaly for one in check(history)] == [Anomaly.NO_WRITES]
    assert check([*history, STALL]) == []


def test_a_lack_of_progress_that_a_stall_does_not_cover_is_an_anomaly() -> None:
    short = replace(STALL, begun=20.0, ended=21.0, recovers=5.0)
    assert [one.anomaly for one in check([BEFORE, HANG, STUCK, AFTER, short])] == [Anomaly.NO_WRITES]
    other = replace(STALL, begun=40.0, ended=41.0)
    assert [one.anomaly for one in check([BEFORE, HANG, STUCK, AFTER, other])] == [Anomaly.NO_WRITES]


def test_a_late_recovery_and_a_group_without_commits_are_not_judged_either() -> None:
    late = replace(HANG, begun=20.0, mended=22.0, late=(P,))
    trying = Send(P, "b", 21.0, 40.0, UNKNOWN)
    assert Anomaly.NOT_RECOVERED in {one.anomaly for one in check([late, trying])}
    assert Anomaly.NOT_RECOVERED not in {one.anomaly for one in check([late, trying, STALL])}
    commit = OffsetCommit("g", "", 21.0, 33.0, UNKNOWN, "m", -1, partition=P, offset=1)
    before = OffsetCommit("g", "", 3.0, 3.1, OK, "m", -1, partition=P, offset=1)
    after = OffsetCommit("g", "", 33.0, 33.1, OK, "m", -1, partition=P, offset=1)
    assert [one.anomaly for one in check([HANG, before, commit, after])] == [Anomaly.NO_COMMITS]
    assert check([HANG, before, commit, after, STALL]) == []


def test_lost_records_are_reported_despite_a_stall() -> None:
    lost = Send(P, "lost", 20.0, 21.0, OK, 1)
    history: list[Event] = [BEFORE, HANG, lost, FinalLog(P, ((0, "a", 0), (1, "c", 0))), STALL]
    assert Anomaly.LOST_WRITE in {one.anomaly for one in check(history)}


def test_violations_that_are_not_judged_are_reported_with_the_length_of_the_stall(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(write([BEFORE, HANG, STUCK, AFTER, STALL, SessionTimeout(2, 24.0)])))

    def body(judge: Judge) -> list[Violation]:
        assert violations_of(judge) == []
        return list(judge.not_judged())

    found = [one for part in HistoryFile(path).each(body) for one in part]
    assert [(one.anomaly, one.where) for one in found] == [(Anomaly.NO_WRITES, "t-0")]
    assert found[0].text.endswith("not judged: the machine stalled for 4.0 s")
    judged = _judged(path, {}, DEFAULT)
    data = _data(judged)
    assert data["verdict"] == "passed"
    assert data["machine stalls"] == [{"begun": 17.0, "ended": 22.0, "seconds": 4.0, "load": 40.0}]
    assert data["session timeouts"] == [{"broker": 2, "at": 21.0}]
    texts = list(lines(judged))
    assert "the machine stalled for 4.0 s; load 40.0" in texts
    assert "session timeouts of brokers that no fault explains: 1" in texts


def test_a_history_stores_machine_stalls_and_session_timeouts() -> None:
    for event in (STALL, SessionTimeout(2, 24.0)):
        assert from_line(to_line(event)) == event
    with pytest.raises(ValueError, match="ended is before begun"):
        from_line(to_line(replace(STALL, ended=1.0)))


LOST = Violation(Anomaly.LOST_WRITE, "t-0", "a is lost")


@pytest.mark.parametrize(
    ("verdict", "reason", "code"),
    [
        (Verdict([], [], [], 9), "", 0),
        (Verdict([], [], [], 9, stalled=4.0, not_judged=[LOST]), "", NOT_JUDGED),
        (Verdict([], [], [], 9, idle=["no fault was injected"]), "", 1),
        (Verdict([], [], [], 9, idle=["no fault was injected"], stalled=4.0), "", NOT_JUDGED),
        (Verdict([], [], [], 9, stalled=4.0), "not judged: the machine stalled for 4.0 s", NOT_JUDGED),
        (Verdict([LOST], [], [], 9, stalled=4.0), "not judged: the machine stalled for 4.0 s", 1),
        (Verdict([LOST], [], [], 9, stalled=4.0), "", 1),
    ],
)
def test_the_exit_code_separates_an_overloaded_machine_from_a_broken_product(
    verdict: Verdict, reason: str, code: int
) -> None:
    assert exit_code(verdict, [], reason) == code


def test_only_a_lack_of_progress_makes_a_failed_run_not_judged() -> None:
    away, late = NotHealthy("a broker is away"), TimeoutError()
    assert _unhealthy(ExceptionGroup("tasks", [away])) is away
    assert _unhealthy(ExceptionGroup("tasks", [ExceptionGroup("more", [late])])) is late
    assert _unhealthy(ExceptionGroup("tasks", [away, ValueError()])) is None
    assert _unhealthy(AssertionError()) is None


def test_a_report_has_a_header() -> None:
    facts = header("milena chaos --seed 1", ["milena", "no-such-library"])
    assert facts["command"] == "milena chaos --seed 1"
    assert set(facts) == {"command", "date", "versions", "build", "machine"}
    versions = facts["versions"]
    assert isinstance(versions, dict)
    assert set(versions) == {"milena", "python"}


def test_the_name_of_the_processor_is_read_from_the_system(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nmodel name : Some CPU @ 3 GHz\n")
    assert processor(file) == "Some CPU @ 3 GHz"
    assert processor(tmp_path / "missing")
