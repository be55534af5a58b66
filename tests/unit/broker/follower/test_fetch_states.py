"""The transition table of followers, compared with the rules as code."""

from __future__ import annotations

import pytest

from milena.broker.follower.fetch_states import (
    TRANSITIONS,
    Event,
    FetchState,
    Transition,
    event_of,
    initial_state,
    transition,
)
from milena.protocol.errors import ErrorCode
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import LeaderEpochCache


def oracle(state: FetchState, event: Event) -> Transition | None:
    """What docs/kafka-semantics.md: Truncation by followers, Offset out of range, Followers that begin in the tier
    say, without a table; None for what cannot happen."""
    if state is FetchState.FAILED:
        return None
    if event in (Event.FENCED, Event.BROKEN):
        return Transition(FetchState.FAILED)
    if event is Event.RETRIABLE:
        # An offset that was out of range may be in range by then: it is asked for once more.
        return Transition(FetchState.FETCHING if state is FetchState.LOCATING else state, pauses=True)
    expected = {
        FetchState.TRUNCATING: {Event.EPOCHS_AGREE, Event.EPOCHS_UNDECIDED, Event.MOVED_TO_TIER},
        FetchState.FETCHING: {Event.RECORDS, Event.DIVERGED, Event.OUT_OF_RANGE, Event.MOVED_TO_TIER},
        FetchState.LOCATING: {Event.LOCATED, Event.MOVED_TO_TIER},
        FetchState.LOCATING_LOCAL: {Event.LOCATED},
        FetchState.BUILDING: {Event.LOCATED, Event.BUILT},
    }[state]
    if event not in expected:
        return None
    if event is Event.EPOCHS_UNDECIDED:
        return Transition(FetchState.TRUNCATING)
    if event is Event.MOVED_TO_TIER:
        return Transition(FetchState.LOCATING_LOCAL)
    if event is Event.LOCATED and state is not FetchState.LOCATING:
        return Transition(FetchState.BUILDING)
    return Transition(FetchState.LOCATING if event is Event.OUT_OF_RANGE else FetchState.FETCHING)


@pytest.mark.parametrize("state", FetchState)
@pytest.mark.parametrize("event", Event)
def test_the_transition_table_matches_the_rules(state: FetchState, event: Event) -> None:
    wanted = oracle(state, event)
    if wanted is None:
        with pytest.raises(BrokenInvariant, match=f"{event.name} is impossible in state {state.value}"):
            transition(state, event)
    else:
        assert transition(state, event) == wanted


def test_every_state_except_failed_can_reach_failed_and_fetching() -> None:
    for state in set(FetchState) - {FetchState.FAILED}:
        reached = {state}
        for _ in FetchState:
            reached |= {after.state for (before, _), after in TRANSITIONS.items() if before in reached}
        assert {FetchState.FETCHING, FetchState.FAILED} <= reached


def test_only_fenced_and_offset_errors_are_not_retried() -> None:
    special = {
        ErrorCode.FENCED_LEADER_EPOCH: Event.FENCED,
        ErrorCode.OFFSET_OUT_OF_RANGE: Event.OUT_OF_RANGE,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: Event.MOVED_TO_TIER,
    }
    for code in ErrorCode:
        assert event_of(code) is special.get(code, Event.RETRIABLE)


@pytest.mark.parametrize(
    ("epochs", "log_end", "high_watermark", "state", "cut"),
    [
        ([], 0, 0, FetchState.FETCHING, None),
        ([], 10, 10, FetchState.FETCHING, None),
        ([], 10, 4, FetchState.FETCHING, 4),
        ([(0, 0)], 10, 4, FetchState.TRUNCATING, None),
        ([(0, 0), (4, 10)], 10, 4, FetchState.TRUNCATING, None),
        ([(0, 0), (5, 7)], 10, 4, FetchState.FETCHING, None),
        ([(3, 0)], 0, 0, FetchState.FETCHING, None),
    ],
)
def test_a_log_of_older_epochs_is_truncating_and_one_without_epochs_is_truncated(
    epochs: list[tuple[LeaderEpoch, Offset]], log_end: int, high_watermark: int, state: FetchState, cut: int | None
) -> None:
    begun = initial_state(
        LeaderEpochCache(epochs),
        leader_epoch=LeaderEpoch(5),
        log_start=Offset(0),
        log_end=Offset(log_end),
        high_watermark=Offset(high_watermark),
    )
    assert begun == (state, cut)
