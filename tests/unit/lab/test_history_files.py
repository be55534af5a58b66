"""A history in a file is judged like one in memory, and invalid lines are reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.command_line.errors import UserError
from milena.commands.history import main
from milena.lab.histories.anomalies import Anomaly
from milena.lab.histories.checker import check
from milena.lab.histories.events import Event, Send, TopicChange, Void, to_line, write
from milena.lab.histories.faults import Fault
from milena.lab.histories.files import BadLine, HistoryFile, judge_file
from milena.lab.histories.group_events import OffsetCommit, OffsetFetch
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.histories.kinds import NEEDS
from milena.lab.histories.parts import Demands, judge, part_of
from tests.fixtures.properties import examples
from tests.unit.lab.mixed_histories import KEYED, OK, mixed


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(40))
def test_a_file_gets_the_same_verdict_as_its_events_in_memory(seed: int) -> None:
    history = mixed(seed)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        path.write_text("\n".join(write(history)))  # with empty lines
        verdict = check(history)
        assert judge_file(path) == verdict
        assert judge_file(path, Demands(patience=1e9)) == check(history, Demands(patience=1e9)) != verdict
    assert {one.anomaly for one in verdict} >= {Anomaly.TOPIC, Anomaly.DELETED_KEY_BACK, Anomaly.NO_WRITES}


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(10))
def test_the_verdict_of_a_history_is_that_of_its_parts(seed: int) -> None:
    history = mixed(seed)
    shared = [event for event in history if type(event) in (Fault, Void, TopicChange)]
    parts = {part for event in history if (part := part_of(event)) is not None}
    found = [
        one
        for part in sorted(parts, key=lambda part: part.sort_key)
        for one in judge(part, [event for event in history if part_of(event) == part], shared)
    ]
    assert [one for one in found if one.anomaly is not Anomaly.NO_WRITES] == [
        one for one in check(history) if one.anomaly is not Anomaly.NO_WRITES
    ]


def test_shared_events_are_passed_to_each_part(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history: list[Event] = [
        OffsetCommit("g", "n", 1, 2, OK, "m", 1, "", ("gone", 0), 7),
        OffsetFetch("g", "n", 5, 6, OK, ("gone", 0), -1),
    ]
    for events, names in ((history, ["lost commit"]), ([TopicChange("gone", False, OK, begun=3.0), *history], [])):
        path.write_text("".join(write(events)))
        assert [one.anomaly.value for one in judge_file(path)] == names


def test_reading_a_part_yields_only_its_events_and_the_shared_ones(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(write(mixed(1))))
    file = HistoryFile(path)
    for part in file.parts:
        shared = {id(event) for _, event in file.shared}
        assert all(part_of(event) == part for event in file.read(part) if id(event) not in shared)
    assert [str(part) for part in file.parts] == ["__consumer_offsets-0", "keyed-0", "t-0", "t-1", "t-2", "topics", "g"]


GOOD = to_line(Send(("t", 0), "v", 1.0, 2.0, OK, 0))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "Input data was truncated"),
        ("[]", "not an event of a history: []"),
        (GOOD.replace('"send"', '"sent"'), "not an event of a history: "),
        (GOOD.replace('"value":"v"', '"value":7'), "Expected `str`, got `int` - at `$.value`"),
        (GOOD.replace('"begun":1.0', '"begun":"soon"'), "Expected `float`, got `str` - at `$.begun`"),
        (GOOD.replace('"begun":1.0', '"begun":NaN'), "JSON is malformed: invalid character"),
        (GOOD.replace('"ended":2.0', '"ended":1e999'), "Number out of range"),
        (GOOD.replace('"begun":1.0', '"begun":3.0'), "ended is before begun"),
        ('{"event":"fault","kind":"kill","nodes":[1],"begun":2,"mended":1}', "mended is before begun"),
        (GOOD.replace('"begun":1.0,', ""), "missing required field `begun`"),
        (GOOD.replace('"ok"', '"fine"'), "Invalid enum value 'fine' - at `$.outcome`"),
        (GOOD.replace('"offset"', '"offest"'), "no field 'offest'"),
        (GOOD.replace('["t",0]', '["t"]'), "Expected `array` of length 2, got 1 - at `$.partition`"),
        ('{"event":"poll","partition":["t",0],"session":"s","at":1,"records":[[0]]}', "at `$.records[0]`"),
        ("[" * 100_000, ""),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(
    tmp_path: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n")
    with pytest.raises(BadLine) as caught:
        judge_file(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert said in str(caught.value)


def test_an_incomplete_last_line_is_reported_and_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{GOOD}\n{GOOD[:40]}")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == ("line 2 is incomplete and ignored\n1 events: no anomalies\n")
    path.write_text(f"{GOOD}\n{GOOD[:40]}\n")
    with pytest.raises(BadLine, match="line 2"):
        judge_file(path)


@pytest.mark.parametrize("text", ["", "\n", '{"event":"settled","at":1.0}\n', '{"event":"sett'])
def test_a_history_without_operations_is_not_judged(text: str, tmp_path: Path) -> None:
    """The absence of anomalies in it would prove nothing."""
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    for command in (["check"], ["report", "--out", str(tmp_path / "out")]):
        with pytest.raises(UserError, match="no operations of clients, so there is nothing to judge"):
            main([*command, str(path)])
    assert not (tmp_path / "out").exists()


def test_the_command_prints_anomalies_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    lost: list[Event] = [KeyedWrite(KEYED, "k", "v", 1, 2, OK, 3), FullRead(KEYED, 5, 6, 9, ())]
    path.write_text("".join(write(lost)))
    assert main(["check", str(path)]) == 1
    said = "lost value: keyed-0: up to 9, k has None at -1; v was acknowledged at 3"
    assert capsys.readouterr().out == f"{said}\n2 events: 1 anomaly\n"
    weak = [Send(("t", 0), f"v{at}", at, at + 1, OK, at, acks=1) for at in range(2)]
    path.write_text(
        "".join(write(weak)) + '{"event":"poll","partition":["t",0],"session":"s","at":9,"records":[[1,"v1"]]}'
    )
    assert main(["check", str(path)]) == 0
    assert main(["check", "--promised", "t", str(path)]) == 1


def test_each_anomaly_declares_the_events_that_it_needs() -> None:
    assert set(NEEDS) == set(Anomaly)


def test_a_report_has_all_anomalies_and_faults(tmp_path: Path) -> None:
    path, out = tmp_path / "history.jsonl", tmp_path / "out"
    history = mixed(3)
    path.write_text("".join(write(history)))
    (tmp_path / "about.json").write_text(json.dumps({"about": {"place": "<here>", "seed": 7}}))
    code = main(["report", str(path), "--about", str(tmp_path / "about.json"), "--out", str(out)])
    report = json.loads((out / "report.json").read_bytes())
    found = check(history)
    assert code == 1
    assert report["about"] == {"place": "<here>", "seed": 7}
    assert report["verdict"] == "failed"
    assert sum(filter(None, report["anomalies"].values())) == len(found)
    assert set(report["anomalies"]) == {one.value for one in Anomaly}
    assert report["violations"][0] == {
        "anomaly": found[0].anomaly.value, "where": found[0].where, "text": found[0].text,
    }  # fmt: skip
    assert [(fault["kind"], fault["times"]) for fault in report["faults"]] == [("kill", 1)]
    text = (out / "report.html").read_text()
    assert "Chaos on &lt;here&gt;" in text and "<here>" not in text
    for anomaly in Anomaly:
        assert anomaly.value in text
    assert "<script src" not in text and "<link" not in text


@pytest.mark.parametrize("text", ["{}", "[]", "7", '{"about": 7}', "not JSON"])
def test_a_file_that_does_not_describe_a_run_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(GOOD)
    (tmp_path / "about.json").write_text(text)
    with pytest.raises(UserError, match=r"about\.json: neither a report\.json nor a run\.json"):
        main(["report", str(tmp_path / "history.jsonl"), "--about", str(tmp_path / "about.json")])


MEASURED = """
import sys, tracemalloc
from pathlib import Path
from milena.lab.histories.checker import check
from milena.lab.histories.events import read
from milena.lab.histories.files import judge_file

path = Path(sys.argv[2])
tracemalloc.start()
assert (judge_file(path) if sys.argv[1] == "file" else check(read(path.open()))) == []
print(tracemalloc.get_traced_memory()[1])
"""


def peak(how: str, path: Path) -> int:
    """The peak of memory that Python allocated while it judged, in bytes. A separate process is used because tables
    of the interpreter grow at any time."""
    command = [sys.executable, "-c", MEASURED, how, str(path)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.slow
def test_a_file_of_many_partitions_is_judged_with_less_memory_than_its_events(tmp_path: Path) -> None:
    path, partitions = tmp_path / "history.jsonl", 20
    history = (
        Send(("t", at % partitions), f"value {at}", at, at + 1, OK, at // partitions, lane=f"p/{at % partitions}")
        for at in range(20_000)
    )
    path.write_text("".join(write(history)))
    assert peak("file", path) < peak("memory", path) / 2
