"""An event of a run, in the documents' terms: the one type that text, ``--json``, pages and the console show.

::

    B -> A Fetch offset 0, no epoch: OFFSET_MOVED_TO_TIERED_STORAGE
    B -> A ListOffsets EARLIEST_LOCAL_TIMESTAMP: 6, LE-2
    B: BuildingRemoteLogAux, epochs from seg-4-5
    A -> controller AlterPartition [A@5, B@12]: INELIGIBLE_REPLICA
    read at B: 0: msg 0 (uuid-1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

SHOWN: Final = 3
"""How often a step shows the same event. A node repeats a request until its answer changes."""


class EventKind(StrEnum):
    """What an event is about."""

    REQUEST = "request"
    """A request with its answer."""
    STATE = "state"
    """A follower has entered a state."""
    READ = "read"
    """A consumer has read a record."""
    ACTION = "action"
    """The scenario has done something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """``at``: seconds since the start of the run, on the scenario's clock; of a request, when it was answered.
    ``source`` and ``target``: A to E, ``controller``, ``consumer``, ``producer``, ``scenario``."""

    at: float
    kind: EventKind
    source: str
    text: str = ""
    target: str | None = None
    api: str | None = None
    result: str = ""
    error: bool = False
    times: int = 1
    """How often it occurred here, if it is shown once for several occurrences."""

    @property
    def line(self) -> str:
        """Return the event as one line."""
        repeated = f" ({self.times} times)" if self.times > 1 else ""
        match self.kind:
            case EventKind.ACTION:
                return self.text + repeated
            case EventKind.STATE:
                return f"{self.source}: {self.text}{repeated}"
            case EventKind.READ:
                return f"read at {self.target}: {self.text}{repeated}"
        text = f" {self.text}" if self.text else ""
        return f"{self.source} -> {self.target} {self.api}{text}: {self.result}{repeated}"

    def as_json(self) -> dict[str, object]:
        """Return the event as JSON values, with its line."""
        return {
            "at": round(self.at, 6),
            "kind": self.kind.value,
            "source": self.source,
            "target": self.target,
            "api": self.api,
            "text": self.text,
            "result": self.result,
            "error": self.error,
            "times": self.times,
            "line": self.line,
        }


def without_repetitions(events: Iterable[Event]) -> list[Event]:
    """Return the events with each line at most ``SHOWN`` times; the last one counts the others."""
    shown: list[Event] = []
    seen: Counter[str] = Counter()
    last: dict[str, int] = {}
    for event in events:
        line = event.line
        seen[line] += 1
        if event.kind is EventKind.ACTION or seen[line] <= SHOWN:
            last[line] = len(shown)
            shown.append(event)
    for line, index in last.items():
        if (more := seen[line] - SHOWN) > 0 and shown[index].kind is not EventKind.ACTION:
            shown[index] = replace(shown[index], times=more + 1)
    return shown
