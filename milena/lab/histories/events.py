"""The events of a history: operations of clients with their outcomes, and faults of the cluster. Plain data.

Times are seconds on one clock. Values are texts that are unique within a partition. The events of each client are in
order; those of different clients may be interleaved in any way. A history on disk has one JSON object per line,
``{"event": "send", ...}``. If several client libraries are used, the names of lanes and sessions are ``LIBRARY/...``,
and reports count them by library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeAlias

import msgspec

from milena.lab.histories.copies import Copies
from milena.lab.histories.faults import Fault, Kind
from milena.lab.histories.group_events import GROUP_KINDS, GroupEvent
from milena.lab.histories.group_events import RequestOutcome as RequestOutcome
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.histories.machine import MachineStall, SessionTimeout
from milena.lab.histories.seen import BrokerSeen, PartitionSeen
from milena.lab.histories.transactions.events import TRANSACTION_KINDS, TransactionEvent
from milena.protocol.types import TopicPartition

ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Send:
    """One record. ``offset`` is -1 if unknown. ``lane`` names a send sequence, whose order is guaranteed: a producer
    and its partition, if the producer is idempotent or has one batch in flight at a time; "" for none. ``once``: the
    producer is idempotent. Such a producer starts a new lane with each producer id, since records of unknown outcome
    under the former id may be appended later, or never."""

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
    """The result of one poll for one partition. Within a ``session`` the reader did not seek and its assignment did not
    change, so that the records must be consecutive. An empty poll means that a reader has reached the end."""

    partition: TopicPartition
    session: str
    at: float
    records: tuple[tuple[int, str], ...]
    """(offset, value)."""
    series: str = ""
    """A name for readers each of which continues where another of the series has stopped: together they have read all
    records from the log start to their highest offset, or, after an empty poll, to the end. "" for none."""


@dataclass(frozen=True, slots=True)
class Void:
    """The promises for records sent to a partition before ``at`` are void, because of ``reason``: an unclean election,
    or an ISR whose members have all lost unsynced data (``lab.invariants``). ``since``: from ``since``
    to ``at`` there were two logs, for example while a leader did not know that it was replaced; None means ``at``.
    Records below the offset ``kept`` are on all possible leaders, and stay."""

    partition: TopicPartition
    at: float
    reason: str
    since: float | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class AllowedDeletion:
    """Records below the offset ``before`` of a partition may be deleted, for ``reason``. None: retention may delete any
    number of records."""

    partition: TopicPartition
    before: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class FinalLog:
    """A partition's whole log, read after all faults have ended. ``start``: records below it were deleted."""

    partition: TopicPartition
    records: tuple[tuple[int, str, int], ...]
    """(offset, value, leader epoch)."""
    start: int = 0
    dense: bool = False
    """Whether the offsets must be consecutive: no record is hidden from readers or removed by compaction."""
    holes: tuple[tuple[int, int], ...] = ()
    """(first, last offset) of reads that were rejected with an error, since the only objects with these records are
    lost."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A read of these offsets was rejected, since their objects are lost; the reader continued after them in another
    session."""

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
    """A topic that exists at the end, with its configuration."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllTopics:
    """The topics that exist at the end were listed: ``count`` times ``FinalTopic``. Without this event
    the topics at the end are unknown."""

    count: int


@dataclass(frozen=True, slots=True)
class Invoke:
    """An operation has started: ``send``, ``keyed``, ``offset commit`` (``key``: the group, ``value``: the offset),
    ``change`` (``value``: the topic, ``acks``: 1 if it is made), ``transactional send`` (``key``: the transaction),
    ``commit`` (``key``: the transaction) or ``fault`` (``value``: its kind, ``key``: its nodes, separated by spaces).
    The event with the same ``begun`` is its end. An operation without an end has an unknown
    outcome; a fault without an end lasts until the end of the history."""

    operation: str
    begun: float
    partition: TopicPartition = ("", 0)
    value: str | None = None
    key: str = ""
    acks: int = ACKS_ALL


Event: TypeAlias = (
    Invoke
    | Send
    | Poll
    | Void
    | AllowedDeletion
    | Hole
    | FinalLog
    | Copies
    | TopicChange
    | FinalTopic
    | AllTopics
    | KeyedWrite
    | FullRead
    | Fault
    | MachineStall
    | SessionTimeout
    | PartitionSeen
    | BrokerSeen
    | GroupEvent
    | TransactionEvent
)
KINDS: Final[Mapping[str, type[Event]]] = {
    "invoke": Invoke,
    "send": Send,
    "poll": Poll,
    "void": Void,
    "deletion": AllowedDeletion,
    "hole": Hole,
    "log": FinalLog,
    "copies": Copies,
    "change": TopicChange,
    "topic": FinalTopic,
    "topics": AllTopics,
    "keyed": KeyedWrite,
    "read": FullRead,
    "fault": Fault,
    "machine stall": MachineStall,
    "session timeout": SessionTimeout,
    "partition seen": PartitionSeen,
    "broker seen": BrokerSeen,
    **GROUP_KINDS,
    **TRANSACTION_KINDS,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
_FIELDS: Final = {kind: tuple(one.name for one in fields(kind)) for kind in KINDS.values()}
_ENDS: Final = {
    kind: name for kind, names in _FIELDS.items() for name in ("ended", "mended") if name in names and "begun" in names
}
"""Kinds of events with a duration, and the field with their end."""
_SHARED: Final = frozenset(
    {"lane", "session", "series", "reader", "group", "node", "member", "instance", "key"}
    | {"transaction", "producer", "transactional_id"}
)
"""Fields whose texts occur in many events; equal texts share one object to save memory."""
_SHARED_FIELDS: Final = {kind: _SHARED & set(names) for kind, names in _FIELDS.items()}
_JSON: Final = msgspec.json.Decoder[Any]()


def to_line(event: Event) -> str:
    """Return the event as one line of JSON, without a line break."""
    values: dict[str, object] = {"event": _NAMES[type(event)]}
    for name in _FIELDS[type(event)]:
        value = getattr(event, name)
        values[name] = value.value if isinstance(value, Enum) else value
    return json.dumps(values, separators=(",", ":"))


def from_line(line: str | bytes) -> Event:
    """Return the event of a line. Raises ValueError if the line is not an event."""
    try:
        values = _JSON.decode(line)
        name = values.pop("event", None) if isinstance(values, dict) else None
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"not an event of a history: {_shown(line)}")
        if unknown := values.keys() - _FIELDS[kind]:
            raise ValueError(f"no field {min(unknown)!r}: {_shown(line)}")
        for name in _SHARED_FIELDS[kind]:
            if isinstance(text := values.get(name), str):
                values[name] = intern(text)
        event = msgspec.convert(values, kind)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{error}: {_shown(line)}") from None
    if "partition" in values:
        # No other code has a reference to the new event, so this changes it although its class is frozen.
        object.__setattr__(event, "partition", _partition(*values["partition"]))
    if isinstance(event, Invoke) and event.operation == "fault":
        Kind(event.value), [int(node) for node in event.key.split()]  # raise ValueError for invalid ones
    ended = _ENDS.get(kind)
    if ended is not None and getattr(event, ended) < values["begun"]:
        raise ValueError(f"{ended} is before begun: {_shown(line)}")
    return event


def _shown(line: str | bytes) -> str:
    return (line if isinstance(line, str) else line.decode(errors="replace"))[:80].rstrip()


@lru_cache(maxsize=4096)
def _partition(topic: str, number: int) -> TopicPartition:
    """Return the same tuple for all events of a partition, to save memory."""
    return topic, number


def write(events: Iterable[Event]) -> Iterator[str]:
    """Return the lines of a history, with line breaks."""
    return (to_line(event) + "\n" for event in events)


def read(lines: Iterable[str | bytes]) -> Iterator[Event]:
    """Return the events in the lines of a file; empty lines are skipped. Iteration raises ValueError."""
    return (from_line(line) for line in lines if line.strip())
