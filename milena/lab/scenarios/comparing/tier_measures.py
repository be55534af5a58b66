"""What is measured of the tier in a run, for the tables of ``side_by_side``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from milena.lab.scenarios.events import Event, EventKind
from milena.lab.scenarios.played import PlayedRun
from milena.lab.scenarios.script import BROKERS

NOTHING: Final = "-"
BUILT: Final = re.compile(r"BuildingRemoteLogAux, epochs from (.*)")
READ: Final = re.compile(r"\d+: (?P<value>.*?)(?: \((?P<source>\S+)\))?")
"""The text of a read: offset, value, and the segment that served it."""
B: Final = "b="
MOVED: Final = "OFFSET_MOVED_TO_TIERED_STORAGE"
OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"
LOCAL_START: Final = "EARLIEST_LOCAL_TIMESTAMP"


def _gone(run: PlayedRun) -> int:
    """Return the number of acknowledged records that neither the leader's log nor a segment in the tier has."""
    if not run.steps:
        return 0
    last = run.steps[-1]
    stored = {value for segment in last.segments for value, _ in segment.segment.log.values()}
    return len([value for value in last.lost if value not in stored])


def _refused_reads(run: PlayedRun) -> int:
    return sum(
        event.times
        for event in run.events
        if event.api == "Fetch" and event.source not in BROKERS and event.result == OUT_OF_RANGE
    )


def _reads(events: Iterable[Event]) -> Iterator[re.Match[str]]:
    for event in events:
        if event.kind is EventKind.READ and (read := READ.fullmatch(event.text)) is not None:
            yield read


def _sources(run: PlayedRun) -> str:
    return ", ".join(sorted({read["source"] for read in _reads(run.events) if read["source"]})) or NOTHING


def _last_b(run: PlayedRun) -> str:
    """Return the value of the key ``b`` in the last step that reads; "lost" if it reads none, and "-" if the
    run writes none."""
    if not any(event.api == "Produce" and B in event.text for event in run.events):
        return NOTHING
    last: list[str] = []
    for step in run.steps:
        last = [read["value"] for read in _reads(step.events)] or last
    return next((value for value in reversed(last) if value.startswith(B)), "lost")


def _moved(run: PlayedRun) -> int:
    return sum(event.times for event in run.events if event.source in BROKERS and event.result == MOVED)


def _local_start(run: PlayedRun) -> str:
    found = (event for event in run.events if event.api == "ListOffsets" and LOCAL_START in event.text)
    return "; ".join(dict.fromkeys(event.result for event in found if event.source in BROKERS)) or NOTHING


def _built_from(run: PlayedRun) -> str:
    found = (BUILT.fullmatch(event.text) for event in run.events if event.kind is EventKind.STATE)
    return ", ".join(dict.fromkeys(match[1] for match in found if match)) or NOTHING


TIER_COLUMNS: Final[Mapping[str, Callable[[PlayedRun], int | str]]] = {
    "gone records": _gone,
    "refused reads": _refused_reads,
    "value of b": _last_b,
    "read from": _sources,
    "moved to the tier": _moved,
    "earliest local offset": _local_start,
    "epochs from": _built_from,
}
"""``gone records``: acknowledged ones that neither the leader's log nor a segment in the tier has. ``refused reads``:
fetches by consumers with OFFSET_OUT_OF_RANGE. ``value of b``: what the last reads return for the key b. ``moved to the
tier``: fetches by followers with OFFSET_MOVED_TO_TIERED_STORAGE. ``earliest local offset``: the leader's first answer.
``epochs from``: the segments from which followers took their leader epochs."""
