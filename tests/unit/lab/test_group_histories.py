"""The checker of groups: a valid history has no violations, and each planted anomaly is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.lab.histories import events
from milena.lab.histories.checker import Anomaly, check, counts
from milena.lab.histories.events import Event, FinalTopic, TopicChange, Void
from milena.lab.histories.group_events import (
    Expiry,
    GroupDelete,
    Join,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RequestOutcome,
    Settled,
    Sync,
    Trouble,
)
from milena.lab.histories.machine import MachineStall
from tests.fixtures.properties import examples
from tests.unit.lab.group_histories import GROUP, INSTANCE, PARTITIONS, Parts, valid

SEEDS = st.integers(0, 1 << 32)
OK, FAILED, UNKNOWN = RequestOutcome.OK, RequestOutcome.FAILED, RequestOutcome.UNKNOWN
VOID = Void(("__consumer_offsets", 0), 1e9, "all of the ISR had lost records", since=-1.0)


def last_fetch(parts: Parts) -> OffsetFetch:
    return parts.of(OffsetFetch)[-1]


def last_commits(parts: Parts) -> list[OffsetCommit]:
    """Two acknowledged commits of one partition, in order."""
    partition = last_fetch(parts).partition
    return parts.of(OffsetCommit, lambda one: one.partition == partition and one.outcome is OK)[-2:]


def synced(parts: Parts) -> list[Sync]:
    """The SyncGroup events of the last generation."""
    leader = parts.of(Sync, lambda one: one.sent is not None)[-1]
    return parts.of(Sync, lambda one: one.begun >= leader.begun)


def lost_commit(parts: Parts) -> Parts:
    return parts.with_changed(last_fetch(parts), offset=-1, metadata="")


def lost_where_the_group_is_absent(parts: Parts) -> Parts:
    return parts.plus(GroupDelete(GROUP, "a", parts.end, parts.end + 1, FAILED, absent=True))


def commit_went_back(parts: Parts) -> Parts:
    before, _ = last_commits(parts)
    return parts.with_changed(last_fetch(parts), offset=before.offset, metadata=before.metadata)


def went_back_at_one_node(parts: Parts) -> Parts:
    """A fetch long before the cluster has settled, from the node that has acknowledged the later commit."""
    before, later = last_commits(parts)
    read = OffsetFetch(
        GROUP, later.node, later.ended, later.ended + 1, OK, later.partition, before.offset, before.metadata
    )
    return parts.plus(read)


def a_late_commit_of_an_old_generation(parts: Parts) -> Parts:
    """A commit without an answer replaces a commit of a later generation, although it should be fenced."""
    later = last_commits(parts)[-1]
    before = parts.of(OffsetCommit, lambda one: one.metadata == "last" and one.partition == later.partition)[-2]
    parts = parts.with_changed(before, outcome=UNKNOWN)
    return parts.with_changed(last_fetch(parts), offset=before.offset, metadata=before.metadata)


def from_nowhere(parts: Parts) -> Parts:
    return parts.with_changed(last_fetch(parts), offset=5_000_000)


def other_metadata(parts: Parts) -> Parts:
    return parts.with_changed(last_fetch(parts), metadata="of another member")


def refused(parts: Parts) -> Parts:
    return parts.with_changed(last_commits(parts)[-1], outcome=FAILED)


def deleted_offset(parts: Parts) -> Parts:
    later = last_commits(parts)[-1]
    return parts.plus(OffsetDelete(GROUP, later.node, later.ended, later.ended + 0.01, OK, later.partition))


def deleted_with_its_group(parts: Parts) -> Parts:
    later = last_commits(parts)[-1]
    return parts.plus(GroupDelete(GROUP, later.node, later.ended, later.ended + 0.01, OK))


def deleted_and_seen_so(parts: Parts) -> Parts:
    """The commit and the deletion were concurrent: at first the offset is gone, then it is there again."""
    later = last_commits(parts)[-1]
    delete = GroupDelete(GROUP, later.node, later.begun, later.ended, OK)
    gone = OffsetFetch(GROUP, later.node, later.ended, later.ended + 0.01, OK, later.partition, -1)
    return parts.plus(delete, gone)


def deleted_group(parts: Parts) -> Parts:
    """A member of the deleted group sends a successful heartbeat."""
    leader = synced(parts)[0]
    beat = MemberHeartbeat(
        GROUP, "a", parts.end + 2, parts.end + 3, OK, leader.member, leader.generation, leader.instance
    )
    return parts.plus(GroupDelete(GROUP, "a", parts.end, parts.end + 1, OK), beat)


def two_owners(parts: Parts) -> Parts:
    leader = synced(parts)[0]
    other = replace(leader, member="another", instance="", sent=None, begun=parts.end, ended=parts.end + 1)
    taken = replace(leader, share=PARTITIONS)
    return parts.with_changed(leader, share=PARTITIONS).plus(replace(other, share=taken.share[:1]))


def old_generation(parts: Parts) -> Parts:
    later = last_commits(parts)[-1]
    old = replace(later, generation=later.generation - 1, begun=parts.end, ended=parts.end + 1, node="elsewhere")
    return parts.plus(replace(old, partition=("other", 0)))


def generation_back_in_a_join(parts: Parts) -> Parts:
    leader = synced(parts)[0]
    return parts.plus(Join(GROUP, "a", parts.end, parts.end + 1, OK, "another", leader.generation - 1, leader="x"))


def generation_back_in_a_heartbeat(parts: Parts) -> Parts:
    leader = synced(parts)[0]
    begun = leader.ended + 0.5
    return parts.plus(MemberHeartbeat(GROUP, leader.node, begun, begun + 1, OK, "another", leader.generation - 1))


def generation_twice(parts: Parts) -> Parts:
    leader = synced(parts)[0]
    join = Join(GROUP, "a", parts.end, parts.end + 1, OK, "another", leader.generation, leader="another")
    join = replace(join, members=(("another", ""), ("and another", "")))
    return parts.plus(join, Sync(GROUP, "a", parts.end + 1, parts.end + 2, OK, "another", leader.generation, sent=()))


def sync_of_an_unknown_member(parts: Parts) -> Parts:
    leader = synced(parts)[0]
    return parts.plus(Sync(GROUP, "a", parts.end + 1, parts.end + 2, OK, "another", leader.generation))


def never_sent(parts: Parts) -> Parts:
    leader = synced(parts)[0]
    return parts.with_changed(leader, share=(("t", 7),))


def never_sent_at_all(parts: Parts) -> Parts:
    """The leader had not sent an assignment yet."""
    generation = synced(parts)[0].generation + 1
    join = Join(GROUP, "a", parts.end, parts.end + 1, OK, "another", generation, leader="another")
    sync = Sync(GROUP, "a", parts.end + 1, parts.end + 2, OK, "another", generation, share=PARTITIONS[:1])
    return parts.plus(join, sync)


def two_ids(parts: Parts) -> Parts:
    """The static member's id of the previous generation still heartbeats successfully."""
    before, now = parts.of(Join, lambda one: one.instance == INSTANCE)[-2:]
    beat = MemberHeartbeat(GROUP, "a", parts.end + 1, parts.end + 2, OK, before.member, now.generation, INSTANCE)
    sync = next(one for one in synced(parts) if one.member == now.member)
    return parts.with_changed(sync, outcome=OK, share=()).plus(beat)


def join_never_answered(parts: Parts) -> Parts:
    return parts.plus(Join(GROUP, "a", 0, 20, UNKNOWN, "m1", -1, silent=True))


def sync_never_answered(parts: Parts) -> Parts:
    return parts.plus(Sync(GROUP, "a", 0, 20, UNKNOWN, "m1", 1, silent=True))


PLANTS: list[tuple[Callable[[Parts], Parts], Anomaly]] = [
    (lost_commit, Anomaly.LOST_COMMIT),
    (lost_where_the_group_is_absent, Anomaly.LOST_COMMIT),
    (commit_went_back, Anomaly.COMMIT_BACK),
    (went_back_at_one_node, Anomaly.COMMIT_BACK),
    (a_late_commit_of_an_old_generation, Anomaly.COMMIT_BACK),
    (from_nowhere, Anomaly.OFFSET_FROM_NOWHERE),
    (other_metadata, Anomaly.OFFSET_FROM_NOWHERE),
    (refused, Anomaly.OFFSET_FROM_NOWHERE),
    (deleted_offset, Anomaly.DELETED_OFFSET_BACK),
    (deleted_with_its_group, Anomaly.DELETED_OFFSET_BACK),
    (deleted_and_seen_so, Anomaly.DELETED_OFFSET_BACK),
    (deleted_group, Anomaly.DELETED_GROUP_BACK),
    (two_owners, Anomaly.TWO_OWNERS),
    (old_generation, Anomaly.OLD_GENERATION),
    (generation_back_in_a_join, Anomaly.GENERATION_BACK),
    (generation_back_in_a_heartbeat, Anomaly.GENERATION_BACK),
    (generation_twice, Anomaly.GENERATION_TWICE),
    (sync_of_an_unknown_member, Anomaly.GENERATION_TWICE),
    (never_sent, Anomaly.NEVER_SENT),
    (never_sent_at_all, Anomaly.NEVER_SENT),
    (two_ids, Anomaly.TWO_IDS),
    (join_never_answered, Anomaly.NEVER_ANSWERED),
    (sync_never_answered, Anomaly.NEVER_ANSWERED),
]


@given(SEEDS, st.booleans())
def test_a_valid_history_has_no_violations(seed: int, sure: bool) -> None:
    assert check(valid(seed, sure=sure).events) == []


@pytest.mark.parametrize(("plant", "anomaly"), PLANTS, ids=lambda one: getattr(one, "__name__", ""))
@given(seed=SEEDS)
@settings(max_examples=examples(30))
def test_a_planted_anomaly_is_found(plant: Callable[[Parts], Parts], anomaly: Anomaly, seed: int) -> None:
    assert anomaly in counts(check(plant(valid(seed)).events))


@given(SEEDS)
@settings(max_examples=examples(30))
def test_a_history_is_unchanged_after_writing_and_reading(seed: int) -> None:
    rest: list[Event] = [Trouble("a", 1, 2), Expiry(3), Settled(4)]
    whole = [*valid(seed).events, *rest]
    assert list(events.read(events.write(whole))) == whole


@pytest.mark.parametrize(
    "plant",
    [plant for plant, anomaly in PLANTS if anomaly not in (Anomaly.NEVER_ANSWERED, Anomaly.OFFSET_FROM_NOWHERE)],
)
@given(seed=SEEDS)
@settings(max_examples=examples(5))
def test_events_before_a_voided_promise_are_no_violations(plant: Callable[[Parts], Parts], seed: int) -> None:
    found = counts(check([*plant(valid(seed)).events, VOID]))
    assert not set(found) - {Anomaly.NEVER_SENT}


@pytest.mark.parametrize("plant", [join_never_answered, sync_never_answered])
def test_a_node_in_trouble_need_not_answer(plant: Callable[[Parts], Parts]) -> None:
    parts = plant(valid(1))
    assert not check(parts.plus(Trouble("a", 19, 30)).events)
    assert not check(parts.plus(Trouble("", 19, 30)).events)
    assert not check(parts.plus(MachineStall(15, 19, 3.0, 9.0, recovers=2.0)).events)
    assert check(parts.plus(MachineStall(100, 101, 1.0, 9.0, recovers=2.0)).events)
    assert check(parts.plus(Trouble("b", 19, 30), Trouble("a", 21, 30)).events)


COMMIT = OffsetCommit(GROUP, "a", 0, 1, OK, "m", 1, partition=("t", 0), offset=5)
GONE = OffsetFetch(GROUP, "a", 20, 21, OK, ("t", 0), -1)


def names(*history: Event) -> list[Anomaly]:
    return [one.anomaly for one in check(history)]


def test_deletion_of_a_topic_explains_that_its_offsets_are_gone() -> None:
    assert names(COMMIT, GONE) == [Anomaly.LOST_COMMIT]
    assert names(COMMIT, GONE, TopicChange("t", False, UNKNOWN, begun=2)) == []
    assert names(COMMIT, GONE, TopicChange("t", False, FAILED, begun=2)) == [Anomaly.LOST_COMMIT]
    assert names(COMMIT, GONE, TopicChange("t", False, OK, begun=22), TopicChange("t", True, OK, begun=23)) != []


def test_offsets_of_a_deleted_topic_are_hidden_while_another_topic_has_its_name() -> None:
    """Offsets carry the id of their topic (KIP-848), so they are visible again if no other id is known."""
    deleted, again = TopicChange("t", False, OK, begun=2), TopicChange("t", True, OK, begun=15)
    shown, there = OffsetFetch(GROUP, "a", 30, 31, OK, ("t", 0), 5), FinalTopic("t")
    assert names(COMMIT, deleted, again, GONE, shown, there) == []
    late = replace(again, begun=25)
    histories: list[list[Event]] = [
        [deleted, GONE, shown],
        [deleted, late, GONE, shown, there],
        [again, GONE, shown, there],
    ]
    for history in histories:
        assert len(names(COMMIT, *history)) == 1


def test_an_offset_above_all_commits_is_a_violation() -> None:
    higher = OffsetFetch(GROUP, "a", 20, 21, OK, ("t", 0), 6)
    later = replace(COMMIT, begun=22, ended=23, offset=6)
    assert names(COMMIT, higher) == [Anomaly.OFFSET_FROM_NOWHERE]
    assert names(COMMIT, higher, later) == [Anomaly.OFFSET_FROM_NOWHERE]
    assert names(COMMIT, higher, replace(later, begun=12, outcome=FAILED)) == [Anomaly.OFFSET_FROM_NOWHERE]
    assert names(COMMIT, higher, replace(later, begun=12, outcome=UNKNOWN)) == []


def test_expiry_explains_a_missing_commit_after_its_retention_but_no_later_commit() -> None:
    short = replace(COMMIT, retention=15.0)
    assert names(short, GONE) == []
    assert names(replace(short, retention=25.0), GONE) == [Anomaly.LOST_COMMIT]
    later = replace(COMMIT, begun=2, ended=3, offset=6)
    assert names(short, later, GONE) == [Anomaly.LOST_COMMIT]


def test_a_retried_commit_may_take_effect_twice_until_it_is_fenced() -> None:
    first, second = replace(COMMIT, retried=True), replace(COMMIT, begun=2, ended=3, offset=6, generation=2)
    late = OffsetFetch(GROUP, "a", 20, 21, OK, ("t", 0), 5)
    assert names(first, replace(second, generation=1), late) == []
    assert names(COMMIT, replace(second, generation=1), late) == [Anomaly.COMMIT_BACK]
    assert names(first, Sync(GROUP, "a", 1, 2, OK, "m", 2), second, late) == [Anomaly.COMMIT_BACK]


def test_generations_may_restart_after_the_group_was_deleted_or_expired() -> None:
    syncs = [Sync(GROUP, "a", 0, 1, OK, "m", 5), Sync(GROUP, "a", 8, 9, OK, "n", 1)]
    assert names(*syncs) == [Anomaly.GENERATION_BACK]
    assert names(*syncs, GroupDelete(GROUP, "a", 3, 4, OK)) == []
    assert names(*syncs, GroupDelete(GROUP, "a", 3, 4, FAILED)) == [Anomaly.GENERATION_BACK]
    assert names(GroupDelete(GROUP, "a", -3, -2, UNKNOWN), *syncs) == []
    assert names(*syncs, Expiry(0)) == []
    assert names(*syncs, Expiry(10)) == [Anomaly.GENERATION_BACK]


def test_a_former_coordinator_may_answer_heartbeats_but_must_not_accept_commits() -> None:
    syncs = [Sync(GROUP, "a", 0, 1, OK, "m", 5), Sync(GROUP, "b", 8, 9, OK, "n", 6)]
    assert names(*syncs, MemberHeartbeat(GROUP, "a", 10, 11, OK, "m", 5)) == []
    assert names(*syncs, MemberHeartbeat(GROUP, "a", 10, 11, OK, "m", 5), Settled(10)) == [Anomaly.GENERATION_BACK]
    assert names(*syncs, replace(COMMIT, begun=10, ended=11, generation=5)) == [Anomaly.OLD_GENERATION]


@pytest.mark.slow
def test_many_commits_are_judged_in_one_pass() -> None:
    """A checker that compares each commit with each other one exceeds the time limit of tests."""
    commits = (
        OffsetCommit("g", "", at, at + 0.5, RequestOutcome.OK, "m", at // 1000, "", ("t", at % 7), at)
        for at in range(50_000)
    )
    assert check(commits) == []
