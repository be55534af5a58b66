"""What a history is made of: operations of clients with their outcomes, and what happened to the cluster: plain data.

Times are seconds on any one clock. Values are texts that differ within a partition. Events come in any order that keeps
each client's own; a history on disk is one JSON object per line, ``{"event": "send", ...}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

from milena.lab.histories.group_events import GROUP_KINDS, GroupEvent
from milena.lab.histories.group_events import RequestOutcome as RequestOutcome
from milena.lab.histories.group_events import TopicPartition as TopicPartition

ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Send:
    """One record. ``offset`` is -1 where nobody said. ``lane`` names what keeps an order: a producer and its partition
    for one that numbers its batches or has one under way at a time; "" for none. ``once``: it is idempotent. Such a
    one begins another lane with each id that it takes: what it gave up under the last one may come later, or never."""

    partition: TopicPartition
    value: str
    begun: float
    ended: float
    outcome: RequestOutcome
    offset: int = -1
    acks: int = ACKS_ALL
    lane: str = ""
    once: bool = True


@dataclass(frozen=True, slots=True)
class Poll:
    """What one call gave of one partition. Within a ``session`` the reader was neither moved nor given a new
    assignment, so that what it reads must follow on. One without records says that somebody has read to the end."""

    partition: TopicPartition
    session: str
    at: float
    records: tuple[tuple[int, str], ...]
    """(offset, value)."""


@dataclass(frozen=True, slots=True)
class Void:
    """The promises for what was sent to a partition before ``at`` hold no longer: ``reason``. What may void them:
    an unclean election, or an ISR all of whose members have lost what they had not synced (``lab.invariants``).
    ``since``: from then to ``at`` there were two logs, as while a leader does not know of its end; None is ``at``.
    What lay before the offset ``kept`` is with all who may lead, and stays."""

    partition: TopicPartition
    at: float
    reason: str
    since: float | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class AllowedDeletion:
    """What lies before an offset of a partition may be deleted: ``reason``. None: as much as retention lets go, which
    this history cannot tell."""

    partition: TopicPartition
    before: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class FinalLog:
    """A partition's whole log as it is read when everything is mended. ``start``: what lies before is deleted."""

    partition: TopicPartition
    records: tuple[tuple[int, str, int], ...]
    """(offset, value, leader epoch)."""
    start: int = 0
    dense: bool = False
    """Nothing in it is hidden or may be compacted: offsets follow each other."""
    holes: tuple[tuple[int, int], ...] = ()
    """(first, last offset) of what was refused with an error, since the objects that alone held it are lost."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A reader was refused these offsets, and went on behind them in another session: what held them is lost."""

    partition: TopicPartition
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic was created, with a configuration, or deleted, at some time after ``begun``."""

    name: str
    exists: bool
    outcome: RequestOutcome
    config: Mapping[str, str] = field(default_factory=dict)
    begun: float = 0.0


@dataclass(frozen=True, slots=True)
class FinalTopic:
    """A topic that exists in the end, with what was set for it."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)


Event: TypeAlias = Send | Poll | Void | AllowedDeletion | Hole | FinalLog | TopicChange | FinalTopic | GroupEvent
KINDS: Final[Mapping[str, type[Any]]] = {
    "send": Send,
    "poll": Poll,
    "void": Void,
    "deletion": AllowedDeletion,
    "hole": Hole,
    "log": FinalLog,
    "change": TopicChange,
    "topic": FinalTopic,
    **GROUP_KINDS,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}


def to_line(event: Event) -> str:
    """One line of JSON, without its end."""
    values: dict[str, Any] = {"event": _NAMES[type(event)]}
    for one in fields(event):
        value = getattr(event, one.name)
        values[one.name] = value.value if isinstance(value, RequestOutcome) else value
    return json.dumps(values, separators=(",", ":"))


def from_line(line: str) -> Event:
    """Raises ValueError for what is no event."""
    values = {name: _frozen(value) for name, value in json.loads(line).items()}
    kind = KINDS.get(values.pop("event", ""))
    if kind is None:
        raise ValueError(f"no event of a history: {line[:80]}")
    if "outcome" in values:
        values["outcome"] = RequestOutcome(values["outcome"])
    try:
        event: Event = kind(**values)
    except TypeError as error:
        raise ValueError(f"{error}: {line[:80]}") from None
    return event


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def write(events: Iterable[Event]) -> Iterator[str]:
    """The lines of a history, with their ends."""
    return (to_line(event) + "\n" for event in events)


def read(lines: Iterable[str]) -> Iterator[Event]:
    """The events in the lines of a file; empty ones are passed over. Raises ValueError."""
    return (from_line(line) for line in lines if line.strip())
