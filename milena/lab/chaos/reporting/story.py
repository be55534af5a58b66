"""The story of a run as data for the page: nodes, faults, leaders, rates, violations and the trace on one time axis.

``console/static/timeline.js`` describes its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milena.lab.chaos.reporting.figures import Figures, Slots
from milena.lab.histories.anomalies import Violation
from milena.lab.histories.events import Event, Send
from milena.lab.histories.faults import Kind
from milena.lab.histories.keyed import KeyedWrite
from milena.lab.histories.seen import BrokerSeen, PartitionSeen

CONTROLLER: Final = "controller"
LINES: Final = 50_000
"""The most lines of a trace that a page has: the last ones."""
_LINE: Final = re.compile(r" *(\d+\.\d+) (.*)", re.DOTALL)
_WORD: Final = re.compile(r"[^\s,;()'\"]+")
_TIME: Final = re.compile(r"\bat (\d+\.\d{2,})\b")
_FAULT: Final = re.compile(rf"(?:{'|'.join(re.escape(kind.value) for kind in Kind)})\b")
_WARNING: Final = re.compile(r" *(?:warning|error|critical)\b|the machine stalled|the session of broker")
_OF_NODE: Final = re.compile(r" *(?:debug|info) ")


@dataclass(frozen=True, slots=True)
class Found:
    """A violation on the time axis: ``at`` is None if no time is known."""

    anomaly: str
    where: str
    text: str
    at: float | None


def story(
    nodes: Mapping[int, str],
    figures: Figures,
    slots: Slots,
    violations: Sequence[Found],
    trace: Iterable[str],
) -> dict[str, object]:
    """Return the story. ``nodes``: names by id, in order. ``trace``: lines with their times in front."""
    lines = sorted([*_changes(figures.seen), *_traced(trace), *_ends(violations)], key=lambda line: line[0])[-LINES:]
    times = [line[0] for line in lines]
    ends = [fault.begun for fault in figures.faults] + [one.at for one in figures.seen] + times
    seconds = max([figures.last if figures.last >= 0 else 0.0, *ends], default=0.0)
    return {
        "seconds": seconds,
        "nodes": [{"id": node, "name": name} for node, name in nodes.items()],
        "brokers": [
            {"at": one.at, "node": one.broker, "fenced": one.fenced}
            for one in figures.seen
            if isinstance(one, BrokerSeen)
        ],
        "faults": [
            {
                "kind": fault.kind.value,
                "nodes": fault.nodes,
                "begun": fault.begun,
                "mended": min(fault.mended, seconds),
                "text": fault.text,
                "effect": fault.effect.value if fault.effect else None,
            }
            for fault in figures.faults
        ],
        "partitions": _partitions(figures.seen),
        "rates": {"begun": slots.begun, "width": slots.width, "series": _rates(slots)},
        "violations": [
            {"anomaly": one.anomaly, "where": one.where, "text": one.text, "at": one.at} for one in violations
        ],
        "trace": lines,
    }


def names_of(figures: Figures) -> dict[int, str]:
    """Return the names of the nodes that a run has seen or given faults. A node that never was a broker is the
    controller."""
    brokers = {one.broker for one in figures.seen if isinstance(one, BrokerSeen)}
    nodes = {node for fault in figures.faults for node in fault.nodes if node > 0} | brokers
    return {node: f"broker {node}" if node in brokers or not brokers else CONTROLLER for node in sorted(nodes)}


def located(violations: Sequence[Violation], events: Iterable[Event]) -> list[Found]:
    """Return the violations with their times: when the record that the text names was acknowledged, or a time that the
    text has."""
    words = [[word.rstrip(".:") for word in _WORD.findall(one.text)] for one in violations]
    wanted = {word for its in words for word in its}
    times: dict[str, float] = {}
    for event in events if violations else ():
        if isinstance(event, Send | KeyedWrite) and event.value is not None and event.value in wanted:
            times[event.value] = event.ended
    found = []
    for one, its in zip(violations, words, strict=True):
        at = next((times[word] for word in its if word in times), None)
        if at is None and (match := _TIME.search(one.text)):
            at = float(match[1])
        found.append(Found(one.anomaly.value, one.where, one.text, at))
    return found


def time_of(line: str) -> float:
    """Return the time in front of a line of a trace; 0 if there is none."""
    match = _LINE.fullmatch(line)
    return float(match[1]) if match else 0.0


def _traced(trace: Iterable[str]) -> Iterator[tuple[float, str, str]]:
    for line in trace:
        if match := _LINE.fullmatch(line.rstrip("\n")):
            text = match[2].strip()
            yield float(match[1]), text, _kind(match[2])


def _kind(text: str) -> str:
    if text.startswith(("violation:", "the run has failed")):
        return "violation"
    if _FAULT.match(text):
        return "fault"
    if _WARNING.match(text):
        return "warning"
    return "log" if _OF_NODE.match(text) else "client"


def _changes(seen: Sequence[PartitionSeen | BrokerSeen]) -> Iterator[tuple[float, str, str]]:
    """Yield a line for each change of a leader, an ISR or a registration."""
    for one in seen:
        if isinstance(one, BrokerSeen):
            yield one.at, f"broker {one.broker} is {'fenced' if one.fenced else 'registered and not fenced'}", "leader"
            continue
        topic, number = one.partition
        leader = "no leader" if one.leader < 0 else f"leader {one.leader}"
        isr = ", ".join(map(str, one.isr)) or "empty"
        yield one.at, f"{topic}-{number}: {leader}, leader epoch {one.leader_epoch}, ISR {isr}", "leader"


def _ends(violations: Sequence[Found]) -> Iterator[tuple[float, str, str]]:
    """Yield a line for each violation at the time of what it is about."""
    for one in violations:
        if one.at is not None:
            yield one.at, f"{one.anomaly}: {one.where}: {one.text}", "violation"


def _partitions(seen: Sequence[PartitionSeen | BrokerSeen]) -> list[dict[str, object]]:
    found: dict[str, list[dict[str, object]]] = {}
    for one in seen:
        if isinstance(one, PartitionSeen):
            state = {"at": one.at, "leader": one.leader, "epoch": one.leader_epoch, "isr": one.isr}
            found.setdefault(f"{one.partition[0]}-{one.partition[1]}", []).append(state)
    return [{"name": name, "states": states} for name, states in found.items()]


def _rates(slots: Slots) -> list[dict[str, object]]:
    def total(of: Mapping[str, Sequence[float]]) -> list[float]:
        return [round(sum(values), 2) for values in zip(*of.values(), strict=True)]

    unavailable: dict[str, object] = {"name": "unavailable", "unit": "partitions", "values": list(slots.unavailable)}
    return [
        {"name": "acknowledged writes", "unit": "per second", "values": total(slots.writes)},
        {"name": "records read", "unit": "per second", "values": total(slots.reads)},
        *([unavailable] if any(slots.unavailable) else []),
    ]
