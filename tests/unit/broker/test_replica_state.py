"""ReplicaState, with idle partitions of incremental fetch sessions."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from milena.broker.replica.replica_state import NEVER, FetchTimes, FollowerFetch, ReplicaState
from milena.protocol.types import BrokerEpoch, NodeId, Offset

LAG = 30_000


@dataclass(eq=False)
class FakeSessionPartition:
    """A partition in a session."""

    fetch_times: FetchTimes | None = field(default_factory=FetchTimes)


def fetched(
    state: ReplicaState,
    offset: int,
    end: int,
    now: int,
    session_partition: FakeSessionPartition | None = None,
    epoch: int = 1,
) -> None:
    state.fetched(
        FollowerFetch(NodeId(2), BrokerEpoch(epoch), Offset(offset), Offset(0), Offset(end), now, session_partition)
    )


def test_isr_members_are_caught_up_at_the_start_of_a_leadership_and_others_are_not() -> None:
    member, other = ReplicaState(now_ms=100, in_sync=True), ReplicaState(now_ms=100, in_sync=False)
    assert member.is_caught_up(Offset(5), 100 + LAG, LAG) and not member.is_caught_up(Offset(5), 101 + LAG, LAG)
    assert not other.is_caught_up(Offset(5), 100, LAG)


def test_reaching_the_end_of_the_last_fetch_counts_as_caught_up_at_its_time() -> None:
    state = ReplicaState(now_ms=0, in_sync=False)
    fetched(state, 0, 10, 1_000)
    assert state.caught_up_ms == NEVER
    fetched(state, 10, 20, 2_000)
    assert state.caught_up_ms == 1_000
    fetched(state, 19, 30, 3_000)
    assert state.caught_up_ms == 1_000, "one record was missing of what there was at 2000"


def test_an_idle_partition_does_not_lag_when_its_leader_appends() -> None:
    state, partition = ReplicaState(now_ms=0, in_sync=True), FakeSessionPartition()
    assert partition.fetch_times is not None
    partition.fetch_times.note(1_000)
    fetched(state, 10, 10, 1_000, partition)
    for hour in range(5):
        partition.fetch_times.note(hour * 3_600_000)
    now = 4 * 3_600_000 + 400
    assert state.is_caught_up(Offset(11), now, LAG) and state.caught_up_ms == 4 * 3_600_000


def test_session_fetches_do_not_count_for_a_follower_that_lacks_records() -> None:
    state, partition = ReplicaState(now_ms=0, in_sync=True), FakeSessionPartition()
    assert partition.fetch_times is not None
    fetched(state, 9, 10, 1_000, partition)
    partition.fetch_times.note(90_000)
    assert state.caught_up_ms == 0 and not state.is_caught_up(Offset(10), 90_000, LAG)


def test_a_new_incarnation_counts_as_never_caught_up() -> None:
    state = ReplicaState(now_ms=0, in_sync=True)
    fetched(state, 10, 10, 1_000, epoch=5)
    fetched(state, 0, 10, 2_000, epoch=9)
    assert state.caught_up_ms == NEVER and state.broker_epoch == 9 and state.log_end == 0


def test_a_new_leader_epoch_resets_the_times_and_keeps_the_offsets() -> None:
    state = ReplicaState(now_ms=0, in_sync=True)
    fetched(state, 10, 10, 1_000)
    state.reset(now_ms=5_000, in_sync=True, leader_end=Offset(10))
    assert (state.caught_up_ms, state.log_end, state.broker_epoch) == (5_000, 10, 1)
    state.reset(now_ms=9_000, in_sync=False, leader_end=Offset(10))
    assert state.caught_up_ms == NEVER


class FullScanModel:
    """A simple model: Kafka's rules, applied to each partition with each fetch."""

    def __init__(self) -> None:
        self.caught_up = self.last_fetch = NEVER
        self.last_end = -1

    def fetched(self, offset: int, end: int, now: int) -> None:
        if offset >= end:
            self.caught_up = max(self.caught_up, now)
        elif offset >= self.last_end:
            self.caught_up = max(self.caught_up, self.last_fetch)
        self.last_end = max(self.last_end, end)
        self.last_fetch = now


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.integers(1, 5)),
        st.tuples(st.just("leave"), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
def test_times_from_the_session_equal_those_of_reading_every_partition(
    history: list[tuple[str, int]],
) -> None:
    """A follower gets up to this number of records per fetch. Fetches of idle partitions are noted only in the
    session."""
    state, model, partition = ReplicaState(now_ms=0, in_sync=False), FullScanModel(), FakeSessionPartition()
    end, has, rests = 0, 0, False
    for now, (what, count) in enumerate(history, start=1):
        match what:
            case "append":
                end, rests = end + count, False
            case "leave":  # the follower forgets the partition, and comes back in another session
                assert partition.fetch_times is not None
                partition.fetch_times, partition, rests = (
                    FetchTimes(partition.fetch_times.last_ms, partition.fetch_times.previous_ms),
                    FakeSessionPartition(),
                    False,
                )
            case "fetch":
                assert partition.fetch_times is not None
                partition.fetch_times.note(now)
                model.fetched(has, end, now)
                if not rests:
                    fetched(state, has, end, now, partition)
                rests = has == end
                has = min(end, has + count)
        assert state.caught_up_ms == model.caught_up
