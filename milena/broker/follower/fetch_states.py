"""What a follower does next for one partition, as a table of transitions (docs/kafka-semantics.md: Truncation by
followers, Offset out of range, Followers that begin in the tier).

::

    follow --> TRUNCATING --(the common epoch's end is known)--> FETCHING <--> LOCATING
       |                                                            ^   (out of range: where does the leader's log lie?)
       '-----(the log is in the leader's epoch, or empty)-----------'
                                                                    ^
    FETCHING --(the next record is in the tier)--> LOCATING_LOCAL   |
                                                      |             |
                  (where does its local log begin?) BUILDING -------'   (epochs and producers come from the tier)

    any of them --(fenced, or the log is broken)--> FAILED, until the metadata names another leader epoch

After a step that pauses, the partition is left alone for a while, at most ``replica.fetch.backoff.ms``. Pure: no clock,
no log.
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
    """What the fetcher asks the leader for."""

    TRUNCATING = "Truncating"
    """Where the newest epoch of this log ends at the leader (OffsetForLeaderEpoch)."""
    FETCHING = "Fetching"
    """Records (Fetch)."""
    LOCATING = "Locating"
    """The bounds of its log (ListOffsets)."""
    LOCATING_LOCAL = "LocatingLocalStart"
    """The first offset of its local log (ListOffsets, EARLIEST_LOCAL): the next record is in the tier."""
    BUILDING = "BuildingRemoteLogAux"
    """Nothing, or the same as LOCATING_LOCAL in a new attempt: the tier is read for the state before that offset
    (KIP-405)."""
    FAILED = "Failed"
    """Nothing."""


class Event(Enum):
    """The outcome of a request, or of a change to the log."""

    EPOCHS_AGREE = auto()
    """The log was truncated to the end of the largest common epoch."""
    EPOCHS_OPEN = auto()
    """The log was truncated, and the leader must be asked for an older epoch."""
    RECORDS = auto()
    """The leader's response was applied, with or without records."""
    DIVERGED = auto()
    """The log was truncated to a fetch's diverging epoch."""
    OUT_OF_RANGE = auto()
    LOCATED = auto()
    """The log now begins or ends where the leader's does; or the start of the local log is now known."""
    MOVED_TO_TIER = auto()
    """The leader has the next record only in the tier, or the log was truncated that far; nothing local is left."""
    BUILT = auto()
    """The log now begins at the leader's first local record, with the epochs and producers before it."""
    RETRIABLE = auto()
    """An error that may pass with time or new metadata."""
    FENCED = auto()
    BROKEN = auto()
    """The local log has failed."""


class Step(NamedTuple):
    """The next state. ``pauses``: wait before acting on it."""

    state: FetchState
    pauses: bool = False


_STOP: Final = Step(FetchState.FAILED)

TRANSITIONS: Final[Mapping[tuple[FetchState, Event], Step]] = MappingProxyType(
    {
        (FetchState.TRUNCATING, Event.EPOCHS_AGREE): Step(FetchState.FETCHING),
        (FetchState.TRUNCATING, Event.EPOCHS_OPEN): Step(FetchState.TRUNCATING),
        (FetchState.TRUNCATING, Event.MOVED_TO_TIER): Step(FetchState.LOCATING_LOCAL),
        (FetchState.TRUNCATING, Event.RETRIABLE): Step(FetchState.TRUNCATING, pauses=True),
        (FetchState.TRUNCATING, Event.FENCED): _STOP,
        (FetchState.TRUNCATING, Event.BROKEN): _STOP,
        (FetchState.FETCHING, Event.RECORDS): Step(FetchState.FETCHING),
        (FetchState.FETCHING, Event.DIVERGED): Step(FetchState.FETCHING),
        (FetchState.FETCHING, Event.OUT_OF_RANGE): Step(FetchState.LOCATING),
        (FetchState.FETCHING, Event.MOVED_TO_TIER): Step(FetchState.LOCATING_LOCAL),
        (FetchState.FETCHING, Event.RETRIABLE): Step(FetchState.FETCHING, pauses=True),
        (FetchState.FETCHING, Event.FENCED): _STOP,
        (FetchState.FETCHING, Event.BROKEN): _STOP,
        (FetchState.LOCATING, Event.LOCATED): Step(FetchState.FETCHING),
        (FetchState.LOCATING, Event.MOVED_TO_TIER): Step(FetchState.LOCATING_LOCAL),
        (FetchState.LOCATING, Event.RETRIABLE): Step(FetchState.FETCHING, pauses=True),
        (FetchState.LOCATING, Event.FENCED): _STOP,
        (FetchState.LOCATING, Event.BROKEN): _STOP,
        (FetchState.LOCATING_LOCAL, Event.LOCATED): Step(FetchState.BUILDING),
        (FetchState.LOCATING_LOCAL, Event.RETRIABLE): Step(FetchState.LOCATING_LOCAL, pauses=True),
        (FetchState.LOCATING_LOCAL, Event.FENCED): _STOP,
        (FetchState.LOCATING_LOCAL, Event.BROKEN): _STOP,
        (FetchState.BUILDING, Event.LOCATED): Step(FetchState.BUILDING),
        (FetchState.BUILDING, Event.BUILT): Step(FetchState.FETCHING),
        (FetchState.BUILDING, Event.RETRIABLE): Step(FetchState.BUILDING, pauses=True),
        (FetchState.BUILDING, Event.FENCED): _STOP,
        (FetchState.BUILDING, Event.BROKEN): _STOP,
    }
)


def step(state: FetchState, event: Event) -> Step:
    """Raises BrokenInvariant if the event is impossible in this state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise BrokenInvariant(f"follower is {state.value} at {event.name}")
    return found


def event_of(error: int) -> Event:
    """What a leader's error code for a partition means to the follower."""
    match error:
        case ErrorCode.FENCED_LEADER_EPOCH:
            return Event.FENCED
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return Event.OUT_OF_RANGE
        case ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return Event.MOVED_TO_TIER
        case _:
            return Event.RETRIABLE


class Beginning(NamedTuple):
    """How a follower begins. ``cut``: the offset to truncate the log to first, or None."""

    state: FetchState
    cut: Offset | None = None


def beginning(
    epochs: LeaderEpochCache, *, leader_epoch: LeaderEpoch, log_start: Offset, log_end: Offset, high_watermark: Offset
) -> Beginning:
    """The beginning for a replica that becomes a follower in ``leader_epoch`` (KIP-279).

    A log without epochs cannot be compared, so only its records below the high watermark are kept. If the log is in the
    leader's epoch, or is empty, it is fetched from without truncation; if it diverges after all, the first fetch says
    so.
    """
    if epochs.latest is None:
        return Beginning(FetchState.FETCHING, high_watermark if high_watermark < log_end else None)
    if epochs.latest == leader_epoch or log_start == log_end:
        return Beginning(FetchState.FETCHING)
    return Beginning(FetchState.TRUNCATING)
