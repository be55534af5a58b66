"""The states of a follower for one partition, and their transitions (docs/kafka-semantics.md: Truncation by followers,
Offset out of range, Followers that begin in the tier).

::

    start --> TRUNCATING --(the common epoch's end is known)--> FETCHING <--> LOCATING
       |                                                            ^   (out of range: look up the leader's log bounds)
       '-----(the log is in the leader's epoch, or empty)-----------'
                                                                    ^
    FETCHING --(the next record is in the tier)--> LOCATING_LOCAL   |
                                                      |             |
              (the leader's local log start is known) BUILDING -----'   (epochs and producers were read from the tier)

    any of them --(fenced, or the log has failed)--> FAILED, until the metadata has another leader epoch

After a transition that pauses, the fetcher sends nothing for the partition for a while, at most
``replica.fetch.backoff.ms``. A follower also pauses if FETCHING ends by an event that it has handled since its last
accepted fetch: what it has done did not help. Everything here is a pure function of its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from milena.protocol.errors import ErrorCode
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import LeaderEpochCache


class FetchState(Enum):
    """What the fetcher requests from the leader for the partition."""

    TRUNCATING = "Truncating"
    """The end of this log's latest epoch in the leader's log (OffsetForLeaderEpoch)."""
    FETCHING = "Fetching"
    """Records (Fetch)."""
    LOCATING = "Locating"
    """The bounds of the leader's log (ListOffsets)."""
    LOCATING_LOCAL = "LocatingLocalStart"
    """The leader's local log start (ListOffsets, EARLIEST_LOCAL): the next record is in the tier."""
    BUILDING = "BuildingRemoteLogAux"
    """Nothing: the auxiliary state before the local log start is read from the tier (KIP-405). A new attempt requests
    the local log start again."""
    FAILED = "Failed"
    """Nothing: the partition is not fetched."""


class Event(Enum):
    """The result of a response that was applied, or of a change to the log."""

    EPOCHS_AGREE = auto()
    """The log was truncated to the end of the largest common epoch."""
    EPOCHS_UNDECIDED = auto()
    """The log was truncated, and the end of an older epoch must be requested."""
    RECORDS = auto()
    """The leader's response was applied, with or without records."""
    DIVERGED = auto()
    """The log was truncated by the diverging epoch in a Fetch response."""
    OUT_OF_RANGE = auto()
    """The fetch offset is not in the leader's log."""
    LOCATED = auto()
    """The log was changed to the leader's log start or log end; or the leader's local log start is known."""
    MOVED_TO_TIER = auto()
    """The leader has the next record only in the tier, or only records in the tier remain after a truncation; the local
    log is empty."""
    BUILT = auto()
    """The log starts at the leader's local log start, with the auxiliary state before it."""
    RETRIABLE = auto()
    """An error that may disappear with time or new metadata."""
    FENCED = auto()
    """The leader has a later leader epoch."""
    BROKEN = auto()
    """The local log has failed."""


PROGRESS: Final = frozenset({Event.EPOCHS_AGREE, Event.EPOCHS_UNDECIDED, Event.RECORDS, Event.DIVERGED})
"""The events after which the leader has accepted a request of the follower for its log."""


class Transition(NamedTuple):
    """The next state. ``pauses``: whether to wait before the next request."""

    state: FetchState
    pauses: bool = False


_FAILED: Final = Transition(FetchState.FAILED)

TRANSITIONS: Final[Mapping[tuple[FetchState, Event], Transition]] = MappingProxyType(
    {
        (FetchState.TRUNCATING, Event.EPOCHS_AGREE): Transition(FetchState.FETCHING),
        (FetchState.TRUNCATING, Event.EPOCHS_UNDECIDED): Transition(FetchState.TRUNCATING),
        (FetchState.TRUNCATING, Event.MOVED_TO_TIER): Transition(FetchState.LOCATING_LOCAL),
        (FetchState.TRUNCATING, Event.RETRIABLE): Transition(FetchState.TRUNCATING, pauses=True),
        (FetchState.TRUNCATING, Event.FENCED): _FAILED,
        (FetchState.TRUNCATING, Event.BROKEN): _FAILED,
        (FetchState.FETCHING, Event.RECORDS): Transition(FetchState.FETCHING),
        (FetchState.FETCHING, Event.DIVERGED): Transition(FetchState.FETCHING),
        (FetchState.FETCHING, Event.OUT_OF_RANGE): Transition(FetchState.LOCATING),
        (FetchState.FETCHING, Event.MOVED_TO_TIER): Transition(FetchState.LOCATING_LOCAL),
        (FetchState.FETCHING, Event.RETRIABLE): Transition(FetchState.FETCHING, pauses=True),
        (FetchState.FETCHING, Event.FENCED): _FAILED,
        (FetchState.FETCHING, Event.BROKEN): _FAILED,
        (FetchState.LOCATING, Event.LOCATED): Transition(FetchState.FETCHING),
        (FetchState.LOCATING, Event.MOVED_TO_TIER): Transition(FetchState.LOCATING_LOCAL),
        (FetchState.LOCATING, Event.RETRIABLE): Transition(FetchState.FETCHING, pauses=True),
        (FetchState.LOCATING, Event.FENCED): _FAILED,
        (FetchState.LOCATING, Event.BROKEN): _FAILED,
        (FetchState.LOCATING_LOCAL, Event.LOCATED): Transition(FetchState.BUILDING),
        (FetchState.LOCATING_LOCAL, Event.RETRIABLE): Transition(FetchState.LOCATING_LOCAL, pauses=True),
        (FetchState.LOCATING_LOCAL, Event.FENCED): _FAILED,
        (FetchState.LOCATING_LOCAL, Event.BROKEN): _FAILED,
        (FetchState.BUILDING, Event.LOCATED): Transition(FetchState.BUILDING),
        (FetchState.BUILDING, Event.BUILT): Transition(FetchState.FETCHING),
        (FetchState.BUILDING, Event.RETRIABLE): Transition(FetchState.BUILDING, pauses=True),
        (FetchState.BUILDING, Event.FENCED): _FAILED,
        (FetchState.BUILDING, Event.BROKEN): _FAILED,
    }
)


def transition(state: FetchState, event: Event) -> Transition:
    """Return the transition for an event. Raises BrokenInvariant if the event is impossible in this state."""
    known = TRANSITIONS.get((state, event))
    if known is None:
        raise BrokenInvariant(f"event {event.name} is impossible in state {state.value}")
    return known


def event_of(error: int) -> Event:
    """The event for an error code of a partition in a Fetch response."""
    match error:
        case ErrorCode.FENCED_LEADER_EPOCH:
            return Event.FENCED
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return Event.OUT_OF_RANGE
        case ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return Event.MOVED_TO_TIER
        case _:
            return Event.RETRIABLE


class InitialState(NamedTuple):
    """The first state of a follower. ``truncate_to``: the offset to truncate the log to before, or None."""

    state: FetchState
    truncate_to: Offset | None = None


def initial_state(
    epochs: LeaderEpochCache, *, leader_epoch: LeaderEpoch, log_start: Offset, log_end: Offset, high_watermark: Offset
) -> InitialState:
    """The first state of a replica that becomes a follower in ``leader_epoch`` (KIP-279).

    A log without epochs cannot be compared, so it is truncated to its high watermark. A log whose latest epoch is the
    leader's, or that is empty, needs no truncation: should it diverge, the Fetch response has the diverging epoch.
    """
    if epochs.latest is None:
        return InitialState(FetchState.FETCHING, high_watermark if high_watermark < log_end else None)
    if epochs.latest == leader_epoch or log_start == log_end:
        return InitialState(FetchState.FETCHING)
    return InitialState(FetchState.TRUNCATING)
