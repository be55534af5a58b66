"""What a change of a follower's state is logged as, and what is kept of it in a lab."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from milena.broker.follower.fetch_states import Event, FetchState
from milena.broker.follower.transition_log import KEPT, SourceSegment, StateChange, TransitionLog
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.broker.hand_clock import HandClock


def change(before: FetchState | None, after: FetchState, event: Event | None, offset: int = 4) -> StateChange:
    return StateChange("t", 3, LeaderEpoch(7), before, after, event, Offset(offset), None)


MOVED = change(FetchState.FETCHING, FetchState.LOCATING_LOCAL, Event.MOVED_TO_TIER)
BUILT = change(FetchState.BUILDING, FetchState.FETCHING, Event.BUILT, 6)._replace(
    segment=SourceSegment("AAAAAAAAAAAAAAAAAAAAEQ", Offset(4), Offset(5))
)


def test_a_change_is_one_log_event_with_partition_states_offset_and_epoch() -> None:
    with capture_logs() as events:
        log = TransitionLog(HandClock(), keeps=False)
        log.add(MOVED)
        log.add(BUILT)
    common = {"component": "follower", "event": "follower changed state", "log_level": "info"}
    common |= {"topic": "t", "partition": 3, "leader_epoch": 7}  # type: ignore[dict-item]
    assert events == [
        {
            **common,
            "from_state": "Fetching",
            "to_state": "LocatingLocalStart",
            "reason": "MOVED_TO_TIER",
            "offset": 4,
        },
        {
            **common,
            "from_state": "BuildingRemoteLogAux",
            "to_state": "Fetching",
            "reason": "BUILT",
            "offset": 6,
            "epochs_of_segment": "AAAAAAAAAAAAAAAAAAAAEQ",
        },
    ]


@pytest.mark.parametrize(
    ("noted", "level"),
    [
        (change(None, FetchState.TRUNCATING, None), None),
        (change(FetchState.TRUNCATING, FetchState.FETCHING, Event.EPOCHS_AGREE), None),
        (change(FetchState.FETCHING, FetchState.LOCATING, Event.OUT_OF_RANGE), "info"),
        (change(FetchState.FETCHING, FetchState.FAILED, Event.FENCED), "info"),
        (change(FetchState.FETCHING, FetchState.FAILED, Event.BROKEN), "error"),
    ],
)
def test_what_every_election_causes_is_not_logged_at_info_and_a_failed_log_is_an_error(
    noted: StateChange, level: str | None
) -> None:
    with capture_logs() as events:
        TransitionLog(HandClock(), keeps=False).add(noted)
    levels = [event["log_level"] for event in events]
    assert levels in ([], ["debug"]) if level is None else levels == [level]  # DEBUG may be filtered


def test_a_lab_keeps_the_changes_with_times_and_numbers() -> None:
    clock = HandClock()
    log = TransitionLog(clock, keeps=True)
    log.add(MOVED)
    clock.advance(2)
    log.add(BUILT)
    first, second = log.since(0)
    assert (first["number"], first["from"], first["to"]) == (1, "Fetching", "LocatingLocalStart")
    assert second == {
        "number": 2,
        "at": clock.monotonic(),
        "topic": "t",
        "partition": 3,
        "from": "BuildingRemoteLogAux",
        "to": "Fetching",
        "event": "BUILT",
        "offset": 6,
        "leader_epoch": 7,
        "segment": {"id": "AAAAAAAAAAAAAAAAAAAAEQ", "start_offset": 4, "end_offset": 5},
    }
    assert log.since(1) == [second]
    assert log.since(2) == []


def test_the_oldest_changes_are_dropped() -> None:
    log = TransitionLog(HandClock(), keeps=True)
    for _ in range(KEPT + 5):
        log.add(MOVED)
    assert len(log.since(0)) == KEPT
    assert log.since(0)[0]["number"] == 6


def test_other_clusters_keep_nothing() -> None:
    log = TransitionLog(HandClock(), keeps=False)
    log.add(MOVED)
    assert log.since(0) == []
