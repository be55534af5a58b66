"""The page of one run of `milena sim`."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from milena.lab.chaos.journal import Recording
from milena.lab.chaos.reporting.figures import Figures
from milena.lab.chaos.reporting.story import Found, located, names_of, story, time_of
from milena.lab.chaos.simulated.seeds import Report
from milena.report.contents import Facts, Section, Story, Table
from milena.report.page import page


def page_of_seed(command: str, recording: Recording, trace: Sequence[str], outcome: Report | Exception) -> str:
    """Return the page of a run. ``command`` repeats it. ``trace``: its lines, with the nodes' logs. ``outcome``: what
    the run returned or raised."""
    figures = Figures()
    for event in recording.events:
        figures.add(event)
    figures.seen += recording.seen
    facts: dict[str, object] = {"command": command}
    if isinstance(outcome, Report):
        found = located(outcome.found, recording.events)
        facts |= {"digest": outcome.digest, "virtual seconds": f"{outcome.seconds:.1f}"}
    else:
        found = [_of_error(outcome, trace)]
    count = len(found)
    verdict = f"failed, {count} violation{'' if count == 1 else 's'}" if count else "passed, no violations"
    sections: list[Section] = [
        Story(story(names_of(figures), figures, figures.slots(), found, trace)),
        _operations(figures),
        Facts("The run", facts),
    ]
    return page(command, verdict, sections, good=not count)


def _of_error(error: Exception, trace: Sequence[str]) -> Found:
    """The error that ended a run, at the time of the last line."""
    text = "".join(traceback.format_exception_only(error)).strip()
    return Found(type(error).__name__, "", text, max(map(time_of, trace), default=0.0))


def _operations(figures: Figures) -> Table:
    rows = [(name, outcome, count) for (name, outcome), count in sorted(figures.operations.items())]
    return Table("Operations", ("operation", "outcome", "count"), rows, folded=True)
