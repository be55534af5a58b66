"""A follower truncates its log to exactly the records that it has in common with the leader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from milena.broker.follower.truncation import Truncation, truncation_for
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import LeaderEpochCache

REPLICAS: Final = 3
ROUNDS: Final = 30


@dataclass
class Replica:
    """A log as the list of its records' epochs, with its leader epoch cache."""

    records: list[int] = field(default_factory=list)
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)

    @property
    def end(self) -> Offset:
        return Offset(len(self.records))

    def append(self, epoch: int) -> None:
        self.epochs.assign(LeaderEpoch(epoch), self.end)
        self.records.append(epoch)

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(self.end)


def common(one: Replica, other: Replica) -> int:
    """The model: records with equal offset and epoch are equal."""
    pairs = zip(one.records, other.records, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(one.end, other.end))


def ask(leader: Replica, epoch: LeaderEpoch) -> tuple[LeaderEpoch | None, Offset | None]:
    """OffsetForLeaderEpoch."""
    return leader.epochs.end_offset_for(epoch, log_end=leader.end) or (None, None)


def align(follower: Replica, leader: Replica) -> int:
    """Truncate in rounds, as when a replica becomes a follower. Returns the number of rounds."""
    rounds = 0
    while (newest := follower.epochs.latest) is not None:
        rounds += 1
        assert rounds <= ROUNDS
        epoch, end = ask(leader, newest)
        cut = truncation_for(
            follower.epochs, log_end=follower.end, fallback=Offset(0), leader_epoch=epoch, end_offset=end
        )
        follower.truncate(cut.offset)
        if cut.agreed:
            break
    return rounds


def align_by_fetching(follower: Replica, leader: Replica) -> None:
    """Truncate by the diverging epochs of fetches, until the leader would send records."""
    for _ in range(ROUNDS):
        newest = follower.epochs.latest
        if newest is None:
            return
        epoch, end = ask(leader, newest)
        assert epoch is not None
        assert end is not None
        if epoch == newest and end >= follower.end:
            return
        cut = truncation_for(
            follower.epochs, log_end=follower.end, fallback=follower.end, leader_epoch=epoch, end_offset=end
        )
        before = follower.end, tuple(follower.epochs.entries)
        follower.truncate(cut.offset)
        assert (follower.end, tuple(follower.epochs.entries)) != before
    raise AssertionError("the logs never agree")


Leadership = tuple[int, int, list[int]]
"""The leader, the number of records that it appends, and how many of them each replica fetches."""

histories = st.lists(
    st.tuples(
        st.integers(0, REPLICAS - 1),
        st.integers(0, 4),
        st.lists(st.integers(0, 6), min_size=REPLICAS, max_size=REPLICAS),
    ),
    min_size=1,
    max_size=8,
)


def replay(history: list[Leadership]) -> list[Replica]:
    """Clean and unclean elections: any replica may lead, and followers are truncated before they fetch."""
    replicas = [Replica() for _ in range(REPLICAS)]
    for epoch, (leads, writes, fetches) in enumerate(history):
        leader = replicas[leads]
        leader.epochs.assign(LeaderEpoch(epoch), leader.end)
        for _ in range(writes):
            leader.append(epoch)
        for follower, count in zip(replicas, fetches, strict=True):
            if follower is not leader and count:
                follower.truncate(common(follower, leader))
                for one in leader.records[follower.end : follower.end + count]:
                    follower.append(one)
    return replicas


@given(histories, st.integers(0, REPLICAS - 1), st.integers(1, REPLICAS - 1))
@example([(0, 2, [0, 0, 0]), (1, 1, [0, 0, 0]), (0, 1, [0, 0, 0]), (1, 1, [0, 0, 0])], 1, 2)
def test_truncation_rounds_keep_exactly_the_common_records(
    history: list[Leadership], leads: int, distance: int
) -> None:
    replicas = replay(history)
    leader, follower = replicas[leads], replicas[(leads + distance) % REPLICAS]
    leader.epochs.assign(LeaderEpoch(len(history)), leader.end)
    kept = follower.records[: common(follower, leader)]

    rounds = align(follower, leader)

    assert follower.records == kept
    assert rounds <= len(history)


@given(histories, st.integers(0, REPLICAS - 1), st.integers(1, REPLICAS - 1))
def test_diverging_epochs_of_fetches_lead_to_the_same_truncation(
    history: list[Leadership], leads: int, distance: int
) -> None:
    replicas = replay(history)
    leader, follower = replicas[leads], replicas[(leads + distance) % REPLICAS]
    leader.epochs.assign(LeaderEpoch(len(history)), leader.end)
    kept = follower.records[: common(follower, leader)]

    align_by_fetching(follower, leader)

    assert follower.records == kept


def cut(
    entries: list[tuple[int, int]], epoch: int | None, end: int | None, *, log_end: int = 30, fallback: int = 5
) -> Truncation:
    cache = LeaderEpochCache([(LeaderEpoch(one), Offset(start)) for one, start in entries])
    return truncation_for(
        cache,
        log_end=Offset(log_end),
        fallback=Offset(fallback),
        leader_epoch=None if epoch is None else LeaderEpoch(epoch),
        end_offset=None if end is None else Offset(end),
    )


def test_without_an_end_offset_the_truncation_is_the_fallback() -> None:
    assert cut([(0, 0), (1, 10)], None, None) == (5, True)


def test_a_response_without_an_epoch_is_handled_as_before_kip_279() -> None:
    assert cut([(0, 0), (1, 10)], None, 20) == (20, True)
    assert cut([(0, 0), (1, 10)], None, 40) == (30, True)


def test_a_common_epoch_is_truncated_to_the_lower_end() -> None:
    assert cut([(0, 0), (1, 10), (3, 20)], 1, 15) == (15, True)
    assert cut([(0, 0), (1, 10), (3, 20)], 1, 25) == (20, True)


def test_an_unknown_epoch_continues_with_the_previous_one() -> None:
    assert cut([(0, 0), (1, 10), (3, 20)], 2, 25) == (20, False)
    assert cut([(1, 10), (3, 20)], 0, 5) == (5, True)


def test_an_epoch_above_all_local_ones_truncates_to_its_end() -> None:
    assert cut([(0, 0)], 4, 12) == (12, True)
