"""How a leader's responses change a follower's log."""

from __future__ import annotations

import pytest

from milena.broker.follower.fetch_states import Event, FetchState
from milena.broker.follower.follower_state import FollowerState
from milena.broker.follower.transition_log import TransitionLog
from milena.node.metrics import Counter
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch_response import EpochEndOffset, FetchedPartition
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.broker.fixtures import OTHER, Bench, batch, led_by

EPOCH = LeaderEpoch(3)


def records(first: int, count: int, epoch: int = EPOCH) -> memoryview:
    """One batch of the leader's log."""
    data = batch(*[b"%d" % number for number in range(first, first + count)])
    data[:8] = first.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return data


def follow(bench: Bench, *held: tuple[int, int], high_watermark: int = 0, epoch: int = EPOCH) -> FollowerState:
    """A follower whose log has (epoch, count) batches, with a fetch in flight."""
    image = led_by(OTHER, replicas=(OTHER, 1), leader_epoch=epoch)
    partition = bench.host(bench.topic(f"t{len(bench.image.topics)}", image), 0)
    for of_epoch, count in held:
        log = partition.online_log
        log.append_as_follower(records(log.log_end_offset, count, of_epoch))
    partition.online_log.set_high_watermark(Offset(high_watermark))
    partition.become(image)
    one = FollowerState(partition, TransitionLog(bench.clock, keeps=False))
    one.sent = one.next_position
    return one


def answer(
    data: memoryview | bytes = b"",
    *,
    error: int = 0,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> FetchedPartition:
    return FetchedPartition(
        0,
        error,
        high_watermark,
        -1,
        log_start,
        data,
        diverging_epoch=None if diverging is None else EpochEndOffset(*diverging),
    )


def apply_fetch(one: FollowerState, fetched: FetchedPartition) -> Event | None:
    return one.apply_fetch(fetched, Counter())


def test_records_are_appended_and_counted_and_the_lag_is_computed(bench: Bench) -> None:
    one, bytes_in = follow(bench), Counter()
    data = records(0, 5)
    assert one.apply_fetch(answer(data, high_watermark=9), bytes_in) is Event.RECORDS
    log = one.log
    assert (log.log_end_offset, log.high_watermark, one.lag) == (5, 5, 4)
    assert bytes_in.value == len(data)
    assert [tuple(entry) for entry in log.epochs.entries] == [(EPOCH, 0)]


def test_the_high_watermark_is_the_lower_of_leaders_and_log_end_and_never_falls(bench: Bench) -> None:
    one = follow(bench, (EPOCH, 8), high_watermark=6)
    assert apply_fetch(one, answer(high_watermark=4)) is Event.RECORDS
    assert one.log.high_watermark == 6
    apply_fetch(one, answer(high_watermark=7))
    assert one.log.high_watermark == 7
    apply_fetch(one, answer(high_watermark=20))
    assert one.log.high_watermark == 8


def test_a_follower_without_the_leaders_records_starts_at_the_batch_that_contains_the_leaders_log_start(
    bench: Bench,
) -> None:
    """The follower's last record is of an epoch that the leader no longer has."""
    one = follow(bench, (1, 20), (2, 8), high_watermark=27)
    one.state = FetchState.FETCHING
    assert apply_fetch(one, answer(records(27, 9), high_watermark=36, log_start=28)) is Event.RECORDS
    log = one.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (28, 36, 36)
    assert [tuple(entry) for entry in log.epochs.entries] == [(EPOCH, 28)]


def test_a_follower_with_records_that_the_leader_has_does_not_start_over(bench: Bench) -> None:
    one = follow(bench, (1, 20), (2, 8), high_watermark=27)
    one.state = FetchState.FETCHING
    assert apply_fetch(one, answer(records(27, 9), high_watermark=36, log_start=27)) is Event.BROKEN
    assert one.log.log_end_offset == 28


def test_the_log_start_follows_that_of_the_leader(bench: Bench) -> None:
    one = follow(bench, (EPOCH, 8))
    apply_fetch(one, answer(high_watermark=8, log_start=3))
    assert one.log.log_start_offset == 3
    apply_fetch(one, answer(high_watermark=8, log_start=1))
    assert one.log.log_start_offset == 3


def test_a_response_to_an_older_fetch_is_ignored(bench: Bench) -> None:
    one = follow(bench, (EPOCH, 8))
    one.log.append_as_follower(records(8, 1))
    assert apply_fetch(one, answer(records(8, 2), high_watermark=10)) is None
    one.sent = None
    assert apply_fetch(one, answer(error=ErrorCode.FENCED_LEADER_EPOCH)) is None
    assert (one.log.log_end_offset, one.log.high_watermark) == (9, 0)


def test_a_response_after_a_new_leader_epoch_is_ignored(bench: Bench) -> None:
    one = follow(bench, (EPOCH, 8))
    one.partition.become(led_by(OTHER, replicas=(OTHER, 1), leader_epoch=EPOCH + 1))
    assert apply_fetch(one, answer(records(8, 2), high_watermark=10)) is None
    assert one.log.log_end_offset == 8


def test_a_diverging_epoch_truncates_the_log_and_the_rest_of_the_response_is_ignored(bench: Bench) -> None:
    one = follow(bench, (1, 3), (1, 1), (EPOCH, 4), high_watermark=2)
    fetched = answer(records(8, 2), high_watermark=9, log_start=3, diverging=(1, 3))
    assert apply_fetch(one, fetched) is Event.DIVERGED
    log = one.log
    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (3, 2, 0)
    assert [entry.epoch for entry in log.epochs.entries] == [1]


def test_a_truncation_may_go_below_the_high_watermark(bench: Bench) -> None:
    one = follow(bench, (1, 4), (EPOCH, 4), high_watermark=8)
    apply_fetch(one, answer(diverging=(1, 4)))
    assert (one.log.log_end_offset, one.log.high_watermark, one.log.recovery_point) == (4, 4, 0)


def test_batches_of_a_later_epoch_are_skipped(bench: Bench) -> None:
    one = follow(bench)
    both = memoryview(bytearray(bytes(records(0, 2)) + bytes(records(2, 2, EPOCH + 1))))
    assert apply_fetch(one, answer(both, high_watermark=4)) is Event.RECORDS
    assert (one.log.log_end_offset, one.log.high_watermark) == (2, 2)


def test_corrupt_records_are_fetched_again_and_nothing_is_appended(bench: Bench) -> None:
    one = follow(bench)
    data = records(0, 2)
    data[-1] ^= 1
    assert apply_fetch(one, answer(data, high_watermark=2)) is Event.RETRIABLE
    assert one.log.log_end_offset == 0


def test_records_out_of_order_fail_the_replica(bench: Bench) -> None:
    one = follow(bench, (EPOCH, 5))
    assert apply_fetch(one, answer(records(3, 2), high_watermark=5)) is Event.BROKEN
    assert one.log.log_end_offset == 5


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Event.OUT_OF_RANGE),
        (ErrorCode.FENCED_LEADER_EPOCH, Event.FENCED),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Event.RETRIABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Event.RETRIABLE),
        (ErrorCode.UNKNOWN_TOPIC_ID, Event.RETRIABLE),
    ],
)
def test_errors_do_not_change_the_log(bench: Bench, error: ErrorCode, event: Event) -> None:
    one = follow(bench, (EPOCH, 5))
    assert apply_fetch(one, answer(error=error, high_watermark=5)) is event
    assert (one.log.log_end_offset, one.log.high_watermark) == (5, 0)


def test_epoch_ends_are_requested_until_both_logs_have_the_epoch(bench: Bench) -> None:
    """KIP-279, scenario 3: the leader has neither of the follower's last two epochs."""
    one = follow(bench, (0, 5), (1, 5), (3, 5), high_watermark=2, epoch=5)
    assert one.state is FetchState.TRUNCATING
    assert one.apply_epoch_end(LeaderEpoch(3), 0, 2, 12) is Event.EPOCHS_UNDECIDED
    assert one.log.log_end_offset == 10
    assert one.apply_epoch_end(LeaderEpoch(1), 0, 0, 7) is Event.EPOCHS_AGREE
    assert one.log.log_end_offset == 5


def test_a_leader_without_the_epoch_truncates_the_follower_to_its_high_watermark(bench: Bench) -> None:
    one = follow(bench, (0, 5), (1, 5), high_watermark=4, epoch=5)
    assert one.apply_epoch_end(LeaderEpoch(1), 0, -1, -1) is Event.EPOCHS_AGREE
    # One batch reached across it, and goes as a whole.
    assert one.log.log_end_offset == 0


def test_an_epoch_end_for_another_epoch_than_the_latest_is_ignored(bench: Bench) -> None:
    one = follow(bench, (0, 5), (1, 5), epoch=5)
    assert one.apply_epoch_end(LeaderEpoch(0), 0, 0, 3) is None
    assert one.log.log_end_offset == 10


def test_a_follower_longer_than_its_leader_is_truncated(bench: Bench) -> None:
    one = follow(bench, (EPOCH, 5), (EPOCH, 5))
    assert not one.truncate_to_leader_end(Offset(10))
    assert one.truncate_to_leader_end(Offset(5))
    assert one.log.log_end_offset == 5


def test_a_follower_that_ends_before_the_leaders_log_start_starts_there(bench: Bench) -> None:
    one = follow(bench, (EPOCH, 5))
    one.start_at_leader_start(Offset(3))
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 5)
    one.start_at_leader_start(Offset(40))
    log = one.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (40, 40, 40)
    assert not log.epochs.entries


def test_a_log_that_is_not_tiered_keeps_its_records_on_moved_to_tier(bench: Bench) -> None:
    """The topic's configuration has not been applied yet."""
    one = follow(bench, (EPOCH, 5))
    assert apply_fetch(one, answer(error=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)) is Event.RETRIABLE
    assert (one.log.local_log_start_offset, one.log.log_end_offset) == (0, 5)


def test_the_local_log_is_removed_when_the_leaders_log_has_moved_to_the_tier(bench: Bench) -> None:
    """Log end offset and leader epochs stay."""
    one = follow(bench, (1, 4), (EPOCH, 4), high_watermark=8)
    one.log.remote_enabled = True
    assert apply_fetch(one, answer(error=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)) is Event.MOVED_TO_TIER
    log = one.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 8, 8)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (EPOCH, 4)]


@pytest.mark.parametrize(("cut", "event"), [((1, 3), Event.MOVED_TO_TIER), ((1, 6), Event.EPOCHS_AGREE)])
def test_a_truncation_that_leaves_only_remote_records_returns_moved_to_tier(
    bench: Bench, cut: tuple[int, int], event: Event
) -> None:
    one = follow(bench, (1, 4))
    log = one.log
    log.remote_enabled = True
    log.roll()
    log.append_as_follower(records(4, 2, 1))
    log.append_as_follower(records(6, 2, EPOCH))
    log.set_high_watermark(Offset(4))
    log.raise_highest_offset_in_remote_storage(Offset(3))
    log.move_local_start(Offset(4))
    log.drop(log.segments.take_first(1))
    assert one.apply_epoch_end(EPOCH, 0, *cut) is event
    assert (log.log_start_offset, log.log_end_offset) == (0, cut[1])
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]


def test_pauses_after_errors_grow_up_to_the_maximum(bench: Bench) -> None:
    one = follow(bench)
    assert one.pause(1.0) == 1.0, "it was held back by a quota"
    pauses = []
    for _ in range(2000):
        one.advance(Event.RETRIABLE)
        pauses.append(one.pause(1.0))
    assert pauses[:3] == [0.02, 0.04, 0.08]
    assert pauses == sorted(pauses) and pauses[-1] == 1.0
    one.advance(Event.RECORDS)
    one.advance(Event.RETRIABLE)
    assert one.pause(1.0) == 0.02


def test_records_of_an_epoch_above_the_leaders_fail_the_partition(bench: Bench) -> None:
    one = follow(bench, (3, 2))
    one.log.epochs.assign(LeaderEpoch(9), Offset(1))
    assert apply_fetch(one, answer(records(2, 1, epoch=9), high_watermark=3)) is Event.BROKEN
    assert one.partition.log is None


MOVED = (Event.MOVED_TO_TIER, Event.LOCATED, Event.BUILT)


def pauses_after(one: FollowerState, *events: Event) -> list[float | None]:
    """The pause in ms after each event, None without one; at most a second."""
    found: list[float | None] = []
    for event in events:
        one.advance(event)
        found.append(round(1000 * one.pause(1.0)) if one.paused else None)
    return found


def test_a_follower_that_has_built_its_state_in_vain_pauses_longer_each_time(bench: Bench) -> None:
    rest = [None, None]
    assert pauses_after(follow(bench), *MOVED * 4) == [None, *rest, 20, *rest, 40, *rest, 80, *rest]


def test_records_end_the_pauses(bench: Bench) -> None:
    one = follow(bench)
    pauses_after(one, *MOVED * 3, Event.RECORDS)
    assert one.consecutive_errors == 0
    assert pauses_after(one, *MOVED * 2) == [None, None, None, 20, None, None]


def test_attempts_to_build_the_state_that_fail_pause_longer_each_time(bench: Bench) -> None:
    one = follow(bench)
    pauses_after(one, Event.MOVED_TO_TIER)
    assert pauses_after(one, *(Event.LOCATED, Event.RETRIABLE) * 3) == [None, 20, None, 40, None, 80]


def test_an_offset_that_is_out_of_range_after_it_was_located_pauses(bench: Bench) -> None:
    located = (Event.OUT_OF_RANGE, Event.LOCATED)
    assert pauses_after(follow(bench), *located * 2, *MOVED) == [None, None, 20, None, None, None, None]


def test_an_offset_that_could_not_be_located_pauses_once(bench: Bench) -> None:
    """The error pauses, not the next attempt."""
    attempt = (Event.OUT_OF_RANGE, Event.RETRIABLE)
    assert pauses_after(follow(bench), *attempt * 3) == [None, 20, None, 40, None, 80]
