"""In a long generated history exactly the planted anomalies are found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from milena.lab.histories.events import Invoke, from_line, read
from milena.lab.histories.files import judge_file
from milena.lab.histories.invocations import OpenOperations
from tests.unit.lab.long_histories import PLANTED, long_history

OPERATIONS = 12_000


def test_exactly_the_planted_anomalies_are_found(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("w") as file:
        file.writelines(long_history(OPERATIONS))
    assert [(one.anomaly, one.where) for one in judge_file(path)] == list(PLANTED)


def test_a_long_history_has_the_requested_length_and_is_deterministic() -> None:
    text = "".join(long_history(OPERATIONS))
    assert text == "".join(long_history(OPERATIONS))
    kinds = Counter(type(event).__name__ for event in read(text.splitlines()))
    operations = ("Send", "Poll", "KeyedWrite", "FullRead", "OffsetCommit", "OffsetFetch")
    assert OPERATIONS <= sum(kinds[name] for name in operations) < OPERATIONS + 200
    assert min(kinds[name] for name in operations) >= 20 and kinds["Fault"] == 20


def test_each_write_has_an_invoke_event() -> None:
    under_way, begun = OpenOperations(), 0
    for line in "".join(long_history(2_000)).splitlines():
        event = from_line(line)
        under_way.add(event)
        begun += isinstance(event, Invoke)
    assert begun > 1_000 and not list(under_way.ends())
