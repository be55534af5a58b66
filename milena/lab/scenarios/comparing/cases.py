"""A comparison as data: a file in ``milena/lab/scenarios`` with ``cases`` in place of ``steps``.

::

    id, title, document, note, only   as in every scenario (``lab.scenarios.script``)
    cases:
      - name, title
        leader: log                   {replica: A, epochs: {1: 0, 3: 21}, log_end_offset: 21}; one record per offset
        follower: log                 and its high_watermark (default: the log end offset)
        expect: {algorithm: ...}      ``exchanges``, ``request_bits``, ``response_bits``, ``truncated_to``, ``differ``
    longer:
      title
      expect: {epochs: {algorithm: round trips}}

An epoch of ``longer`` is one leadership: A writes a record in epoch 0 and stops, B one in epoch 1, and so on, and the
last one leads the other. ``differ`` are the first and last offset at which the logs differ in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milena.lab.scenarios.comparing.algorithms import ALGORITHMS
from milena.lab.scenarios.script import CASES, Fields, ScriptError, check_names
from milena.protocol.types import LeaderEpoch, Offset

KEYS: Final = frozenset({"id", "title", "document", "note", "only", CASES, "longer"})
CASE_KEYS: Final = frozenset({"name", "title", "leader", "follower", "expect"})
LOG_KEYS: Final = frozenset({"replica", "epochs", "log_end_offset", "high_watermark"})
RESULT_KEYS: Final = frozenset({"exchanges", "request_bits", "response_bits", "truncated_to", "differ"})
WRITERS: Final = "AB"


@dataclass(frozen=True, slots=True)
class LogPlan:
    """A replica's log: its epochs with their start offsets, and one record at each offset."""

    replica: str
    epochs: Mapping[LeaderEpoch, Offset]
    log_end_offset: Offset
    high_watermark: Offset

    def drawn(self) -> str:
        epochs = ", ".join(f"LE-{epoch} from {start}" for epoch, start in self.epochs.items())
        return f"{epochs}; log end {self.log_end_offset}"


@dataclass(frozen=True, slots=True)
class Case:
    """Two logs, and the expected results of each algorithm."""

    name: str
    title: str
    leader: LogPlan
    follower: LogPlan
    expect: Mapping[str, Fields]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A whole file. ``longer``: number of leaderships to the round trips of each algorithm."""

    id: str
    title: str
    cases: Sequence[Case]
    longer_title: str
    longer: Mapping[int, Mapping[str, int]]
    note: str = ""


def comparison_of(data: Fields) -> Comparison:
    """Parse a comparison. Raises ScriptError."""
    name = data["id"]
    check_names(f"{name} has no", data, KEYS)
    longer = data.get("longer") or {}
    expected = longer.get("expect") or {}
    for epochs, of_algorithms in expected.items():
        if not isinstance(epochs, int) or epochs < 2:
            raise ScriptError(f"{name}, longer: {epochs!r} is not a number of at least 2 epochs")
        check_names(f"{name}, longer: no algorithm", of_algorithms, ALGORITHMS)
    cases = [_case(f"{name}, case {number}", case) for number, case in enumerate(data[CASES], 1)]
    return Comparison(
        name, data["title"], cases, longer.get("title", ""), expected, " ".join(str(data.get("note", "")).split())
    )


def alternating(epochs: int) -> tuple[LogPlan, LogPlan]:
    """Return the logs of leader and follower after ``epochs`` unclean elections, each followed by one record."""
    logs: tuple[dict[LeaderEpoch, Offset], dict[LeaderEpoch, Offset]] = ({}, {})
    for epoch in range(epochs):
        log = logs[epoch % 2]
        log[LeaderEpoch(epoch)] = Offset(len(log))
    both = [
        LogPlan(replica, log, Offset(len(log)), Offset(len(log))) for replica, log in zip(WRITERS, logs, strict=True)
    ]
    last = (epochs - 1) % 2
    return both[last], both[1 - last]


def _case(place: str, data: Fields) -> Case:
    _needs(place, data, CASE_KEYS, CASE_KEYS - {"expect"})
    expect = data.get("expect") or {}
    check_names(f"{place}: no algorithm", expect, ALGORITHMS)
    for algorithm, fields in expect.items():
        check_names(f"{place}, {algorithm} has no", fields, RESULT_KEYS)
    leader, follower = (_log(f"{place}, {role}", data[role]) for role in ("leader", "follower"))
    return Case(data["name"], data["title"], leader, follower, expect)


def _log(place: str, data: Fields) -> LogPlan:
    _needs(place, data, LOG_KEYS, LOG_KEYS - {"high_watermark"})
    end = Offset(data["log_end_offset"])
    epochs = {LeaderEpoch(epoch): Offset(start) for epoch, start in data["epochs"].items()}
    starts = [0, *epochs.values(), end]
    if not epochs or next(iter(epochs.values())) != 0 or starts != sorted(starts) or list(epochs) != sorted(epochs):
        raise ScriptError(f"{place}: epochs and their start offsets rise from 0 to the log end, not {data['epochs']}")
    return LogPlan(data["replica"], epochs, end, Offset(data.get("high_watermark", end)))


def _needs(place: str, data: object, known: frozenset[str], required: Iterable[str]) -> None:
    if not isinstance(data, Mapping):
        raise ScriptError(f"{place} has the fields {', '.join(sorted(known))}; it is not {data!r}")
    check_names(f"{place} has no", data, known)
    if lacking := sorted(set(required) - set(data)):
        raise ScriptError(f"{place} needs {', '.join(lacking)}")
