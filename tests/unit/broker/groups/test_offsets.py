"""Which requests may commit and delete offsets, and which offsets expire."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.broker.groups.model import CommittedOffset
from milena.broker.groups.offsets import (
    commit_refusal,
    delete_refusal,
    expired_offsets,
    has_deleted_topic,
    is_vacant,
    offset_delete_refusal,
)
from milena.protocol.errors import ErrorCode
from milena.protocol.records.consumer_protocol import Subscription, encode_consumer_message
from tests.unit.broker.groups.world import SESSION_MS, GroupWorld

DAY_MS = 86_400_000


def refusal(world: GroupWorld, member_id: str = "", generation: int = -1) -> ErrorCode | None:
    return commit_refusal(
        world.group, member_id=member_id, instance_id=None, generation=generation, now_ms=world.now_ms
    )


def commit(world: GroupWorld, topic: str, *, expire_ms: int = -1) -> None:
    world.group.offsets[topic, 0] = CommittedOffset(1, -1, "", world.now_ms, expire_ms)


def test_a_consumer_without_membership_may_commit_to_an_empty_group() -> None:
    world = GroupWorld()
    assert refusal(world) is None
    world.stable()
    assert refusal(world) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_may_commit_only_in_its_generation() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert refusal(world, member.member_id, 1) is None
    assert refusal(world, member.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(world, "who", 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [0, 1])
def test_an_unknown_member_may_not_commit_to_an_empty_group(generation: int) -> None:
    assert refusal(GroupWorld(), "who", generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_extends_the_session() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        assert refusal(world, member.member_id, 1) is None


def test_no_member_may_commit_between_join_and_sync() -> None:
    world = GroupWorld()
    joined = world.join()
    world.advance(3_001)
    assert refusal(world, joined[0].member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_only_an_empty_group_may_be_deleted() -> None:
    world = GroupWorld()
    assert delete_refusal(world.group) is None
    world.stable()
    assert delete_refusal(world.group) is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_group_with_members_may_be_deleted_if_they_are_consumers() -> None:
    consumers, workers = GroupWorld(), GroupWorld()
    consumers.stable()
    workers.stable(1, protocol_type="connect")
    assert offset_delete_refusal(consumers.group) is None
    assert offset_delete_refusal(workers.group) is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("days", [6, 7])
def test_offsets_of_a_group_without_members_expire_from_their_commit(days: int) -> None:
    world = GroupWorld()
    commit(world, "t")
    world.advance(days * DAY_MS)
    old = expired_offsets(world.group, now_ms=world.now_ms, retention_ms=7 * DAY_MS)
    assert old == ([("t", 0)] if days == 7 else [])


def test_offsets_of_an_emptied_group_expire_from_when_it_became_empty() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    commit(world, "t")
    for _ in range(20):
        world.advance(9_000)
        world.heartbeat(member)
    emptied = world.now_ms
    world.leave(member.member_id)
    retention = 60_000
    assert not expired_offsets(world.group, now_ms=emptied + retention - 1, retention_ms=retention)
    assert expired_offsets(world.group, now_ms=emptied + retention, retention_ms=retention) == [("t", 0)]


@pytest.mark.parametrize("expires", [GroupWorld().now_ms + 5, 0])
def test_the_retention_time_of_an_old_client_has_precedence(expires: int) -> None:
    world = GroupWorld()
    commit(world, "t", expire_ms=expires)
    world.advance(5)
    assert expired_offsets(world.group, now_ms=world.now_ms, retention_ms=7 * DAY_MS) == [("t", 0)]


def old_after(world: GroupWorld, retention_ms: int) -> list[tuple[str, int]]:
    return expired_offsets(world.group, now_ms=world.now_ms, retention_ms=retention_ms)


def test_loading_does_not_extend_the_offsets_of_a_group_without_members() -> None:
    """The group has just been created by the load, and never had members."""
    world = GroupWorld()
    world.group.offsets["t", 0] = CommittedOffset(1, -1, "", world.now_ms - 1000)
    assert old_after(world, 1000) == [("t", 0)]


def test_offsets_without_subscription_expire_in_a_group_with_consumers() -> None:
    """The time counts from the commit, not from the start of the generation."""
    world = GroupWorld()
    commit(world, "read")
    commit(world, "left")
    committed = world.now_ms
    world.stable(protocols=(("range", encode_consumer_message(Subscription(topics=("read",)))),))  # type: ignore[arg-type]
    retention = world.now_ms - committed
    assert retention > 0
    assert (old_after(world, retention + 1), old_after(world, retention)) == ([], [("left", 0)])


def test_a_group_with_members_of_another_type_keeps_all_offsets() -> None:
    world = GroupWorld()
    commit(world, "t")
    world.stable(protocol_type="connect")
    assert old_after(world, 0) == []


def test_a_group_is_vacant_without_members_and_pending_ids() -> None:
    world = GroupWorld()
    assert is_vacant(world.group)
    world.join(known_id_needed=True)
    assert not is_vacant(world.group), "a member id is pending"
    live = GroupWorld()
    live.stable()
    assert not is_vacant(live.group)


def test_offsets_of_a_deleted_topic_have_its_id_or_only_its_name() -> None:
    world, gone, later = GroupWorld(), UUID(int=5), UUID(int=6)
    for topic, topic_id in (("gone", gone), ("old name", gone), ("made again", later), ("kept", later)):
        world.group.offsets[topic, 0] = CommittedOffset(1, -1, "", 0, topic_id=topic_id)
    for topic in ("made again", "other"):
        world.group.offsets[topic, 1] = CommittedOffset(1, -1, "", 0)
    deleted = has_deleted_topic({gone: "made again"})
    assert [one for one, committed in world.group.offsets.items() if deleted(one, committed)] == [
        ("gone", 0),
        ("old name", 0),
        ("made again", 1),
    ]
