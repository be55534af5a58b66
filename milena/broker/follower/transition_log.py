"""Changes of followers' states: each is a log event and, in a lab, an entry for the lab command
``follower_transitions``."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from milena.broker.follower.fetch_states import Event, FetchState
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.clock import Clock
from milena.runtime.log_levels import NUMBERS
from milena.runtime.logging import get_logger

KEPT: Final = 10_000
"""The number of entries kept in a lab; older ones are dropped."""


class SourceSegment(NamedTuple):
    """The remote segment whose leader epoch checkpoint a follower has read."""

    id: str
    start: Offset
    end: Offset
    """The last offset."""


class StateChange(NamedTuple):
    """One change of a follower's state."""

    topic: str
    partition: int
    leader_epoch: LeaderEpoch
    before: FetchState | None
    """None for the first state in a leader epoch."""
    after: FetchState
    event: Event | None
    offset: Offset
    """The log end offset after the change."""
    segment: SourceSegment | None
    """Of a change from BUILDING to FETCHING: the segment with the leader epochs; None if the tier had none to read."""


class TransitionLog:
    """The changes of all followers of a broker."""

    def __init__(self, clock: Clock, *, keeps: bool) -> None:
        """``keeps``: whether to keep the changes for ``since``."""
        self._clock = clock
        self._kept: deque[tuple[int, float, StateChange]] | None = deque(maxlen=KEPT) if keeps else None
        self._next = 1
        self._log = get_logger("follower")

    def add(self, change: StateChange) -> None:
        """Log a change, and keep it in a lab."""
        self._log.log(
            _level(change),
            "follower changed state",
            topic=change.topic,
            partition=change.partition,
            from_state=None if change.before is None else change.before.value,
            to_state=change.after.value,
            reason=None if change.event is None else change.event.name,
            offset=change.offset,
            leader_epoch=change.leader_epoch,
            **({} if change.segment is None else {"epochs_of_segment": change.segment.id}),
        )
        if self._kept is not None:
            self._kept.append((self._next, self._clock.monotonic(), change))
            self._next += 1

    @property
    def last(self) -> int:
        """The number of the newest change; 0 if there is none, or none is kept."""
        return self._next - 1

    def since(self, number: int) -> list[dict[str, object]]:
        """Return the kept changes with greater numbers as JSON values; none outside of a lab. ``at`` is in monotonic
        seconds of the node's clock."""
        return [_as_json(*entry) for entry in self._kept or () if entry[0] > number]


def _level(change: StateChange) -> int:
    """Return the level at which a change is logged: DEBUG for the first state and the end of a truncation, which every
    election causes for each partition."""
    if change.before is None or (change.before is FetchState.TRUNCATING and change.after is FetchState.FETCHING):
        return NUMBERS["DEBUG"]
    # A follower is fenced in every election until it has applied the new metadata: that is not an error.
    return NUMBERS["ERROR" if change.after is FetchState.FAILED and change.event is not Event.FENCED else "INFO"]


def _as_json(number: int, at: float, change: StateChange) -> dict[str, object]:
    shown: dict[str, object] = {
        "number": number,
        "at": at,
        "topic": change.topic,
        "partition": change.partition,
        "from": None if change.before is None else change.before.value,
        "to": change.after.value,
        "event": None if change.event is None else change.event.name,
        "offset": change.offset,
        "leader_epoch": change.leader_epoch,
    }
    if change.segment is not None:
        segment = change.segment
        shown["segment"] = {"id": segment.id, "start_offset": segment.start, "end_offset": segment.end}
    return shown
