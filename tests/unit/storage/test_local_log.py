"""The offsets that bound a log keep their order; a change that would violate it takes only that log offline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.broken_log import BrokenLog
from milena.storage.log.flush import FlushPlan, Pending
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.logs import LogFolder, append, values_of

Change = Callable[[UnifiedLog], object]


def filled(path: Path) -> tuple[LogFolder, UnifiedLog]:
    """A log with offsets 2 to 9 in epoch 1 and high watermark 8."""
    folder = LogFolder(path)
    log = folder.open()
    for number in range(10):
        append(log, str(number).encode(), epoch=1)
    log.set_high_watermark(Offset(8))
    log.increment_log_start(Offset(2))
    return folder, log


def bounds(log: UnifiedLog) -> tuple[int, ...]:
    """Log start, local log start, high watermark, log end, recovery point."""
    return (
        log.log_start_offset,
        log.local_log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        log.recovery_point,
    )


BREAKING: dict[str, Change] = {
    "the log end falls by an append": lambda log: log.appended(Offset(10), 1),
    "records are in an epoch that the cache lacks": lambda log: log.appended(Offset(11), 2),
    "an append begins below the log end": lambda log: log.check_append_begins(9),
    "the log end rises by a truncation": lambda log: log.cut_to(Offset(11)),
    "a leader's high watermark falls": lambda log: log.raise_high_watermark(Offset(7)),
    "a leader's high watermark passes the log end": lambda log: log.raise_high_watermark(Offset(11)),
    "the log start falls": lambda log: log.move_start(Offset(1)),
    "the log start passes the high watermark": lambda log: log.move_start(Offset(9)),
    "the local log start passes the high watermark": lambda log: log.move_local_start(Offset(9)),
    "local records go that are not in the tier": lambda log: log.move_local_start(Offset(5)),
    "a log restarts beside its records": lambda log: log.restart_at(Offset(10), log_start=Offset(2)),
    "a log restarts before it starts": lambda log: log.restart_at(Offset(4), log_start=Offset(5)),
    "a log restarts below zero": lambda log: log.restart_at(Offset(4), log_start=Offset(-1)),
    "an epoch begins beyond the log end": lambda log: log.assign_epoch(LeaderEpoch(2), Offset(11)),
    "an epoch begins before the log": lambda log: log.assign_epoch(LeaderEpoch(2), Offset(1)),
    "a leader writes in a former epoch": lambda log: append(log, b"x", epoch=0),
    "the recovery point passes the log end": lambda log: log.flushed(
        FlushPlan(log.context.disk, Offset(11), 0, log.folder, (), Pending({}, 0), ())
    ),
}


@pytest.mark.parametrize("change", BREAKING.values(), ids=BREAKING)
def test_a_change_that_would_violate_an_invariant_is_not_made_and_takes_the_log_offline(
    tmp_path: Path, change: Change
) -> None:
    folder, log = filled(tmp_path)
    before, epochs = bounds(log), list(log.epochs.entries)
    with pytest.raises(BrokenLog) as broken:
        change(log)
    assert broken.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (bounds(log), list(log.epochs.entries)) == (before, epochs)
    with pytest.raises(KafkaError, match="is offline"):
        append(log, b"x", epoch=1)
    with pytest.raises(KafkaError, match="is offline"):
        values_of(log, 2)
    assert not folder.context.offline, "the other logs of the directory stay online"


def test_the_event_of_a_violated_invariant_has_all_bounds_of_the_log(tmp_path: Path) -> None:
    folder, log = filled(tmp_path)
    with pytest.raises(BrokenLog):
        log.raise_high_watermark(Offset(11))
    (event,) = folder.events.named("log offline, invariant violated")
    assert event == {
        "topic": "topic",
        "partition": 0,
        "folder": log.folder,
        "invariant": "the high watermark rises up to the log end",
        "log_start": 2,
        "local_log_start": 2,
        "high_watermark": 8,
        "log_end": 10,
        "recovery_point": 2,
        "highest_offset_in_remote_storage": -1,
        "truncations": 0,
        "segments": 1,
        "active_segment": 0,
        "latest_epoch": 1,
        "latest_epoch_start": 2,
        "proposed_high_watermark": 11,
    }


@pytest.mark.parametrize(("leader_mark", "taken"), [(0, 2), (5, 5), (10, 10), (11, 10)])
def test_a_received_high_watermark_is_limited_to_the_bounds_of_the_local_log(
    tmp_path: Path, leader_mark: int, taken: int
) -> None:
    _, log = filled(tmp_path)
    log.set_high_watermark(Offset(leader_mark))
    assert log.high_watermark == taken


def test_a_log_is_unchanged_if_it_cannot_restart_at_the_given_offsets(tmp_path: Path) -> None:
    """The offsets come from another replica, so invalid ones do not take this log offline."""
    _, log = filled(tmp_path)
    before = bounds(log)
    with pytest.raises(KafkaError) as refused:
        log.truncate_fully_and_start_at(Offset(4), log_start=Offset(5))
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert bounds(log) == before
    assert values_of(log, 2)[0] == b"2"
