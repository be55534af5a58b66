"""The report on a run: ``report.json``, and ``report.html`` with the same as tables and plots.

``docs/reliability.md`` says what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from milena.command_line.errors import UserError
from milena.lab.chaos.journal import TRACE, events
from milena.lab.chaos.reporting.figures import Figures, Slots
from milena.lab.chaos.reporting.outages import FLOWS, KindOfFault, Outages
from milena.lab.chaos.reporting.story import located, names_of, story
from milena.lab.histories.anomalies import Anomaly, Violation, counts
from milena.lab.histories.faults import Fault
from milena.lab.histories.files import NOTHING, HistoryFile, violations_of
from milena.lab.histories.kinds import JEPSEN, is_judged
from milena.lab.histories.machine import total
from milena.lab.histories.parts import DEFAULT, Demands, Judge
from milena.report.contents import Band, Cell, Facts, Plot, Plots, Section, Series, Story, Table
from milena.report.page import page

PAGE: Final = "report.html"
SHOWN: Final = 200
"""Violations that a report lists in full."""
UNPROMISED: Final = "not promised"
UNSAFE: Final = "settings promise nothing, judged as if they did"
SECOND: Final = 1.0


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything that a report says."""

    about: Mapping[str, object]
    history: HistoryFile
    violations: Sequence[Violation]
    controls: Sequence[Violation]
    """Those in topics whose settings promise nothing, but which were judged as if they did (``Demands.promised``)."""
    not_judged: Sequence[Violation]
    """Lack of progress that does not count because the machine stalled."""
    figures: Figures
    outages: Outages
    slots: Slots

    @property
    def fails(self) -> bool:
        return any(one.fails for one in self.violations)

    @property
    def anomalies(self) -> dict[Anomaly, int | None]:
        """The count of each; None if the history could not show it."""
        found = counts(self.violations)
        return {
            one: found.get(one, 0) if one in found or is_judged(one, self.figures.kinds) else None for one in Anomaly
        }


def write_report(
    folder: Path,
    history: Path,
    about: Mapping[str, object],
    demands: Demands = DEFAULT,
    tell: Callable[[str], object] | None = None,
) -> list[Violation]:
    """Judge a history on disk and write report.json and report.html to a folder, which is made if it does not exist.
    ``about``: what the reader should know of the run, as JSON: place, seed, command, versions, duration, clients,
    settings. ``tell`` gets the verdict as lines of text. Return all violations, also those in topics that are
    ``promised``, which do not make a run fail.

    Raise OSError, BadLine, and UserError if there is nothing to judge.
    """
    judged = _judged(history, about, demands)
    if tell is not None:
        for line in lines(judged):
            tell(line)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_data(judged), indent=1, default=str)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")
    (folder / PAGE).write_text(_page(judged), encoding="utf-8")
    return [*judged.violations, *judged.controls]


def _judged(path: Path, about: Mapping[str, object], demands: Demands) -> Judged:
    figures = Figures()
    history = HistoryFile(path, figures.add)
    if not history.parts:
        raise UserError(f"{path}: {NOTHING}")
    outages = Outages(figures.faults)

    not_judged: list[Violation] = []

    def body(judge: Judge) -> list[Violation]:
        figures.stalled(judge.stalls(SECOND))
        outages.stalled(judge.stalls(FLOWS))
        outages.unjudged(judge.unjudged())
        violations = violations_of(judge)
        not_judged.extend(judge.not_judged())
        return violations

    safe: list[Violation] = []
    controls: list[Violation] = []
    for found in history.each(body, demands):
        for one in found:
            (controls if one.where.rpartition("-")[0] in demands.promised else safe).append(one)
    return Judged(about, history, safe, controls, not_judged, figures, outages, figures.slots())


def _data(judged: Judged) -> dict[str, object]:
    slots, begun = judged.slots, judged.slots.begun
    return {
        "about": dict(judged.about),
        "verdict": "failed" if judged.fails else "passed",
        "events": judged.history.events,
        "cut off at line": judged.history.cut_off,
        "operations": [
            {"operation": name, "outcome": outcome, "count": count}
            for (name, outcome), count in sorted(judged.figures.operations.items())
        ],
        "anomalies": {anomaly.value: count for anomaly, count in judged.anomalies.items()},
        "violations": _listed(judged.violations),
        "controls": {anomaly.value: count for anomaly, count in counts(judged.controls).items()},
        "violations of controls": _listed(judged.controls),
        "not judged": _listed(judged.not_judged),
        "machine stalls": [
            {"begun": one.begun - begun, "ended": one.ended - begun, "seconds": one.seconds, "load": one.load}
            for one in judged.figures.machine_stalls
        ],
        "session timeouts": [{"broker": one.broker, "at": one.at - begun} for one in judged.figures.session_timeouts],
        "faults": [row._asdict() for row in judged.outages.rows()],
        "injected": [
            {
                "kind": fault.kind.value,
                "nodes": fault.nodes,
                "begun": fault.begun - begun,
                "mended": judged.figures.until(fault) - begun,
                "text": fault.text,
                "effect": fault.effect.value if fault.effect else None,
                "seconds": seconds,
            }
            for fault, seconds in zip(judged.figures.faults, judged.outages.seconds, strict=True)
        ],
        "over time": {
            "width": slots.width,
            "writes": slots.writes,
            "reads": slots.reads,
            "latency": slots.latency,
            "unavailable": slots.unavailable,
        },
    }


def _listed(violations: Sequence[Violation]) -> list[dict[str, str]]:
    return [{"anomaly": one.anomaly.value, "where": one.where, "text": one.text} for one in violations[:SHOWN]]


def _page(judged: Judged) -> str:
    violations = len(judged.violations)
    verdict = f"{violations:,} anomal{'y' if violations == 1 else 'ies'} found" if violations else "No anomaly found"
    place = judged.about.get("place")
    sections: list[Section] = [_story(judged), _anomalies(judged), _faults(judged.outages.rows())]
    if judged.controls:
        sections.append(_violations(f"What was found where {UNSAFE}", judged.controls))
    if judged.not_judged:
        sections.append(_violations("Not judged, because the machine stalled", judged.not_judged))
    sections += [_plots(judged.slots, judged.figures, judged.outages.seconds)]
    sections += [_operations(judged), _machine(judged), Facts("The run", judged.about), _terms()]
    controls = f"; {len(judged.controls):,} where {UNSAFE}" if judged.controls else ""
    operations = sum(judged.figures.operations.values())
    stalled = total(judged.figures.machine_stalls)
    if judged.not_judged:
        controls += f"; {len(judged.not_judged):,} not judged: the machine stalled for {stalled:.1f} s"
    return page(
        f"Chaos on {place}" if place else "Chaos",
        f"{verdict} in {operations:,} operations, under {len(judged.figures.faults):,} faults{controls}.",
        sections,
        good=not judged.fails,
    )


def _story(judged: Judged) -> Story:
    """The run on a time axis, with the lines of its log if that is beside the history."""
    path = judged.history.path
    log = path.parent / TRACE
    trace = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    found = [*judged.violations, *judged.controls]
    shown = located(found[:SHOWN], events(path) if found else ())
    safe = len(judged.violations)
    violations = [*shown[:safe], *(replace(one, anomaly=f"{one.anomaly} ({UNPROMISED})") for one in shown[safe:])]
    return Story(story(names_of(judged.figures), judged.figures, judged.slots, violations, trace))


def lines(judged: Judged) -> Iterator[str]:
    """What was found, and each kind of fault, for a terminal."""
    found = {anomaly.value: count for anomaly, count in judged.anomalies.items()}
    none = sum(count == 0 for count in found.values())
    unknown = sum(count is None for count in found.values())
    yield f"{'anomaly':28} {'found':>6}"
    for name, count in found.items():
        if count:
            yield f"{name:28} {count:6}"
    yield f"{f'{none} others':28} {0:6}" + (f"   ({unknown} not judged)" if unknown else "")
    if stalls := judged.figures.machine_stalls:
        load = max(one.load for one in stalls)
        yield f"the machine stalled for {total(stalls):.1f} s; load {load:.1f}"
        yield f"lack of progress that is not judged for that reason: {len(judged.not_judged)}"
    if timeouts := judged.figures.session_timeouts:
        yield f"session timeouts of brokers that no fault explains: {len(timeouts)}"
    yield f"{'fault':28} {'injected':>8} {'seen':>5} {'judged':>7} {'untried':>8} {'median':>12} {'worst':>12}"
    for row in judged.outages.rows():
        figures = f"{_seconds(row.median):>12} {_seconds(row.worst):>12}"
        yield f"{row.kind:28} {row.times:8} {row.seen:5} {row.judged:7} {row.untried:8} {figures}"


def _anomalies(judged: Judged) -> Table:
    """Those that were found first, then the others."""
    found = sorted(judged.anomalies.items(), key=lambda one: (-(one[1] or 0), one[1] is None))
    rows: list[tuple[Cell, ...]] = [
        (one.value, JEPSEN.get(one, ""), "not judged" if count is None else count) for one, count in found
    ]
    cut = judged.history.cut_off
    died = f" Line {cut} was not written to its end, and counts for nothing." if cut else ""
    return Table(
        "Anomalies",
        ("anomaly", "in Jepsen's terms", "found"),
        rows,
        f"“Not judged”: the history has no operations that could show it.{died}",
        frozenset(at for at, (_, count) in enumerate(found) if count),
        halves=True,
    )


def _faults(rows: Sequence[KindOfFault]) -> Table:
    return Table(
        "Faults",
        ("fault", "injected", "seen", "progress judged", "not tried", "median", "worst"),
        [
            (row.kind, row.times, row.seen, row.judged, row.untried, _seconds(row.median), _seconds(row.worst))
            for row in rows
        ],
        "Seen: so many were noticed over the wire, or by the node, while they lasted. "
        "Progress judged: so many lasted for so long that a partition without an acknowledgement would be an anomaly, "
        "with clients that tried to write to each. Not tried: the others of those, which show neither progress nor "
        "the lack of it. "
        "Seconds until writes flowed again: for each fault the longest time for which writes with acks=all to any one "
        "partition waited and none was acknowledged, from the fault's begin until the cluster should have recovered, "
        "or the next fault began.",
    )


def _machine(judged: Judged) -> Table:
    begun = judged.slots.begun
    rows: list[tuple[Cell, ...]] = [
        ("stall", f"{one.begun - begun:.1f} s", f"{one.seconds:.1f} s late until {one.ended - begun:.1f} s", one.load)
        for one in judged.figures.machine_stalls
    ]
    rows += [
        ("session timeout", f"{one.at - begun:.1f} s", f"broker {one.broker}, which no fault explains", None)
        for one in judged.figures.session_timeouts
    ]
    return Table(
        "The machine",
        ("measurement", "at", "what", "load"),
        rows,
        "" if rows else "No stall was measured, and no session timed out that no fault explains.",
    )


TERMS: Final = (
    ("anomaly", "The history contradicts a promise of Kafka. The report names the rule and the operations."),
    ("operation", "One request of a client: a write, a poll, a commit, a topic change. Outcomes: ok, failed, unknown."),
    ("acks=all", "The leader acknowledges a write when all in-sync replicas have it. Only such writes are promised."),
    ("fault", "Something that the runner did to the cluster on purpose; run.log and plan.txt list all of them."),
    ("seen", "Another node, or the node itself, noticed the fault."),
    ("progress judged", "The fault lasted so long that a partition without an acknowledged write is an anomaly."),
    ("not judged", "No anomaly, and no proof of its absence: no operation could show it, or the machine stalled."),
    (
        "machine stall",
        "Timers of the runner fired late by 1 s or more within 5 s, the processor time of the runner and of the "
        "processes that it started not counted. Progress is not judged then. Lost, wrong or reordered records are "
        "always reported.",
    ),
    ("session timeout", "The controller had no heartbeat of a broker for broker.session.timeout.ms and fenced it."),
    ("load", "The load average of the machine over one minute: processes that run or wait for a processor."),
    ("build", "compiled: hot modules as extensions made by mypyc; pure: Python only."),
)


def _terms() -> Table:
    return Table("Terms", ("term", "meaning"), TERMS, folded=True)


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value > FLOWS else f"below {FLOWS} s"


def _violations(title: str, violations: Sequence[Violation]) -> Table:
    more = f"The first {SHOWN} of {len(violations):,}." if len(violations) > SHOWN else ""
    rows = [(one.anomaly.value, one.where, one.text) for one in violations[:SHOWN]]
    return Table(title, ("anomaly", "where", "what"), rows, more, folded=len(rows) > 20)


def _plots(slots: Slots, figures: Figures, seconds: Sequence[float]) -> Plots:
    xs = [at * slots.width for at in range(len(slots.unavailable))]
    in_ms = {name: [None if y is None else y * 1000 for y in ys] for name, ys in slots.latency.items()}
    bands = [
        Band(
            fault.kind.value,
            fault.begun - slots.begun,
            figures.until(fault) - slots.begun,
            f"node {', '.join(map(str, fault.nodes))}; {_said(fault)}; writes flowed again after {_seconds(waited)}",
        )
        for fault, waited in zip(figures.faults, seconds, strict=True)
    ]
    return Plots(
        "Over time",
        "seconds",
        [
            Plot(
                "Acknowledged writes",
                "per second",
                [Series(name, xs, ys, "stack") for name, ys in slots.writes.items()],
            ),
            Plot("Records read", "per second", [Series(name, xs, ys, "stack") for name, ys in slots.reads.items()]),
            Plot("Latency of writes", "ms", [Series(name, xs, ys) for name, ys in in_ms.items()], logarithmic=True),
            Plot("Unavailable partitions", "count", [Series("unavailable", xs, slots.unavailable, "area")]),
        ],
        bands,
        "A partition is unavailable in a second if writes to it with acks=all were under way throughout that second "
        "and none was acknowledged. Shaded: faults, from injected to mended.",
    )


def _said(fault: Fault) -> str:
    return "; ".join(text for text in (fault.text, fault.effect.value if fault.effect else "") if text)


def _operations(judged: Judged) -> Table:
    rows = [(name, outcome, count) for (name, outcome), count in sorted(judged.figures.operations.items())]
    return Table("Operations", ("operation", "outcome", "count"), rows)
