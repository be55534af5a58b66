"""Records what happens in a run: traces requests at every node, reads the state changes of followers, and takes what
the scenario itself does. ``take`` returns it as events, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.events import Event, EventKind, without_repetitions
from milena.lab.scenarios.exchange_events import EpochName, ExchangeEvents, Fields, broker_name, watched_at
from milena.lab.scenarios.script import THE_PARTITION
from milena.node.serving.lab_commands import LabCommandError

OBSERVER: Final = "scenario-observer"
"""The client id of requests with which the scenario looks at a node: they are no part of the run."""
TIER: Final = "tier"
BUILDING: Final = "BuildingRemoteLogAux"
FENCED: Final = "FENCED"
"""The event of a change of state after FENCED_LEADER_EPOCH."""


SegmentName: TypeAlias = Callable[[Fields], str]
"""Names a remote segment, given by its id and its offsets."""


class _Exchange(NamedTuple):
    node: str
    fields: Fields


class _Change(NamedTuple):
    node: str
    fields: Fields
    ended: bool
    """Whether the follower had already left the state."""


class _Leadership(NamedTuple):
    partition: str
    leader: str | None
    leader_epoch: int
    isr: Sequence[str]


class _Segment(NamedTuple):
    broker: str
    action: str
    """``copy`` or ``delete``."""
    fields: Fields


class Recorder:
    """The events of one run. ``topics``: the names of the topics to show, by name and id; the caller adds to it."""

    def __init__(
        self, clock: Callable[[], float], command: Callable[..., Awaitable[Any]], *, transactions: bool = False
    ) -> None:
        """``transactions``: record their requests, too."""
        self.topics: dict[str, str] = {}
        self._clock = clock
        self._command = command
        self._transactions = transactions
        self._began = clock()
        self._rules: dict[str, list[int]] = {}
        self._changes: dict[str, int] = {}
        """The number of the last state change that was read, by broker."""
        self._leaderships: dict[str, _Leadership] = {}
        self._found: list[tuple[float, Event | _Exchange | _Change | _Leadership | _Segment]] = []
        self._exchanges = ExchangeEvents(self.topics)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run, on the scenario's clock."""
        return self._clock() - self._began

    async def watch(self, node: str) -> None:
        """Trace the requests that a node receives from now on. Call it after each start of the node."""
        apis = watched_at(node, transactions=self._transactions)
        self._rules[node] = [(await self._command(node, "trace", api=api))["rule"] for api in apis]
        self._changes[node] = 0

    async def collect(self, node: str) -> None:
        """Read what a node has recorded. Call it before the node ends, and before ``take``."""
        with contextlib.suppress(LabCommandError):  # the node has ended by itself
            for rule in self._rules.get(node, ()):
                for fields in await self._command(node, "traced", rule=rule, take=True):
                    if fields["client_id"] != OBSERVER:
                        self._found.append((fields["answered_at"], _Exchange(node, fields)))
            if node != CONTROLLER and node in self._rules:
                self._note_changes(node, await self._command(node, "follower_transitions", since=self._changes[node]))

    async def end(self) -> None:
        """Remove the rules from all nodes, which may continue to run after the scenario."""
        for node in list(self._rules):
            with contextlib.suppress(LabCommandError):  # the node has ended by itself
                for rule in self._rules.pop(node):
                    await self._command(node, "release", rule=rule)

    def forget(self, node: str) -> None:
        """Forget the rules of a node that has ended."""
        self._rules.pop(node, None)

    def _note_changes(self, node: str, changes: Sequence[Fields]) -> None:
        for index, fields in enumerate(changes):
            self._changes[node] = fields["number"]
            ended = any(_replica(later) == _replica(fields) for later in changes[index + 1 :])
            self._found.append((fields["at"], _Change(node, fields, ended)))

    def add(self, kind: EventKind, source: str, text: str, **fields: Any) -> None:  # noqa: ANN401 - fields of Event
        """Add an event of the scenario itself."""
        event = Event(at=self.seconds, kind=kind, source=source, text=text, **fields)
        self._found.append((self._began + event.at, event))

    def note_partition(self, name: str, fields: Fields) -> None:
        """Note the leader and the ISR of a partition at the controller; a change since the last call is an event."""
        leader = broker_name(fields["leader"]) if fields["leader"] >= 0 else None
        found = _Leadership(name, leader, fields["leader_epoch"], [broker_name(one) for one in fields["isr"]])
        if self._leaderships.get(name) != found:
            self._leaderships[name] = found
            self._found.append((self._clock(), found))

    def note_segment(self, broker: str, action: str, fields: Fields) -> None:
        """Note that a broker has copied a segment to the tier or deleted it there. ``fields``: its id and offsets."""
        self._found.append((self._clock(), _Segment(broker, action, fields)))

    def take(self, epoch: EpochName, segment: SegmentName) -> list[Event]:
        """Return the events since the last call. ``epoch`` and ``segment`` name leader epochs and remote segments as
        the document does."""
        found, self._found = sorted(self._found, key=lambda one: one[0]), []
        events: list[Event] = []
        for at, one in found:
            seconds = at - self._began
            match one:
                case Event():
                    events.append(one)
                case _Exchange(node, fields):
                    events += self._exchanges.of(node, seconds, fields, epoch)
                case _Change():
                    events += self._changed(seconds, one, segment)
                case _Leadership():
                    events.append(_led(seconds, one, epoch))
                case _Segment(broker, action, fields):
                    events.append(_stored(seconds, broker, action, segment(fields)))
        return without_repetitions(events)

    def _changed(self, at: float, change: _Change, segment: SegmentName) -> list[Event]:
        node, fields, ended = change
        if fields["topic"] not in self.topics:
            return []
        texts = []
        if (source := fields.get("segment")) is not None:
            texts.append(f"{BUILDING}, epochs from {segment(source)}")
        if fields["to"] != BUILDING or not ended:
            texts.append(_entered(fields))
        prefix = _prefix(f"{fields['topic']}-{fields['partition']}")
        return [Event(at=at, kind=EventKind.STATE, source=node, text=prefix + text) for text in texts]


def _replica(change: Fields) -> tuple[str, int]:
    return change["topic"], change["partition"]


def _entered(change: Fields) -> str:
    if change.get("event") == FENCED:
        return f"{change['to']}, fenced until it knows the new leader epoch"
    at = f" at offset {change['offset']}" if change["to"] == "Fetching" else ""
    return f"{change['to']}{at}"


def _prefix(partition: str) -> str:
    """The name of a partition in front of its event; none for the partition that most scenarios have alone."""
    return "" if partition == str(THE_PARTITION) else f"{partition} "


def _led(at: float, found: _Leadership, epoch: EpochName) -> Event:
    isr = f"ISR [{', '.join(found.isr)}]"
    text = f"no leader, {isr}"
    if found.leader is not None:
        text = f"leader {found.leader} in {epoch(found.leader_epoch)}, {isr}"
    return Event(at=at, kind=EventKind.STATE, source=CONTROLLER, text=_prefix(found.partition) + text)


def _stored(at: float, broker: str, action: str, segment: str) -> Event:
    done = {"copy": "stored", "delete": "deleted"}[action]
    return Event(at=at, kind=EventKind.REQUEST, source=broker, target=TIER, api=action, text=segment, result=done)
