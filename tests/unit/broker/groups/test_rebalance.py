"""Rebalances whose members rejoin, do not rejoin, or leave."""

from __future__ import annotations

from milena.broker.groups import rebalance
from milena.broker.groups.membership import heartbeat
from milena.broker.groups.model import GroupState, JoinAnswer
from milena.protocol.errors import ErrorCode
from milena.protocol.records.consumer_protocol import Subscription, encode_consumer_message
from tests.unit.broker.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld

OTHER = (("range", b"other topics"),)
READS = (("range", encode_consumer_message(Subscription(topics=("read",)))),)


def pass_alive(world: GroupWorld, ms: int, *alive: tuple[JoinAnswer, str | None]) -> None:
    """Let time pass while these members, with their instance ids, send heartbeats."""
    for _ in range(0, ms, 5_000):
        for member, instance in alive:
            heartbeat(
                world.group,
                member_id=member.member_id,
                instance_id=instance,
                generation=member.generation,
                now_ms=world.now_ms,
            )
        world.advance(5_000)


def with_static_leader(world: GroupWorld) -> tuple[JoinAnswer, JoinAnswer]:
    """A static leader and a dynamic member, which have joined a generation."""
    leader = world.join(instance="one")
    other = world.join()
    world.advance(3 * world.group.settings.initial_delay_ms + 1)
    assert world.group.is_leader(world.group.members[leader[0].member_id])
    return leader[0], other[0]


def test_members_with_a_session_that_do_not_rejoin_are_removed_after_the_rebalance_timeout() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    again = world.join(follower.member_id, protocols=OTHER)
    pass_alive(world, REBALANCE_MS - 5_000, (leader, None))
    assert not again
    pass_alive(world, 5_000, (leader, None))
    assert again[0].leader == follower.member_id and list(world.group.members) == [follower.member_id]


def test_a_static_leader_that_does_not_rejoin_stays_and_is_replaced_as_leader() -> None:
    world = GroupWorld()
    leader, other = with_static_leader(world)
    again = world.join(other.member_id, protocols=OTHER)
    pass_alive(world, REBALANCE_MS, (leader, "one"))
    assert (again[0].generation, again[0].leader) == (2, other.member_id)
    assert [one.member_id for one in again[0].members] == [leader.member_id, other.member_id]
    back = world.join(leader.member_id, instance="one", protocols=OTHER)
    world.join(other.member_id, protocols=OTHER)
    assert (back[0].generation, back[0].leader) == (3, other.member_id), "the leader stays the same"


def test_a_rebalance_waits_for_static_members_if_no_member_rejoins() -> None:
    world = GroupWorld()
    leader, other = with_static_leader(world)
    world.join(other.member_id, protocols=OTHER)
    world.leave(other.member_id)
    pass_alive(world, 2 * REBALANCE_MS, (leader, "one"))
    assert (world.group.state, world.group.generation) == (GroupState.PREPARING, 1)
    (answer,) = world.join(leader.member_id, instance="one")
    assert (answer.generation, answer.leader) == (2, leader.member_id)


def test_a_group_that_all_members_leave_during_the_initial_delay_is_empty_at_once() -> None:
    world = GroupWorld()
    world.join()
    world.leave(next(iter(world.group.members)))
    assert (world.group.state, world.group.join_deadline_ms) == (GroupState.EMPTY, None)


def test_an_empty_group_has_no_subscriptions() -> None:
    world = GroupWorld()
    (member,) = world.stable(protocols=READS)  # type: ignore[arg-type]
    assert world.group.subscribes_to("read")
    world.leave(member.member_id)
    assert (world.group.state, world.group.subscribes_to("read")) == (GroupState.EMPTY, False)


def test_an_ended_generation_is_written_as_empty_without_subscriptions() -> None:
    world = GroupWorld()
    world.stable(protocols=READS)  # type: ignore[arg-type]
    rebalance.end_generation(world.group, ErrorCode.UNKNOWN_SERVER_ERROR, world.now_ms)
    assert (world.written[-1], world.group.members, world.group.subscribes_to("read")) == ({}, {}, False)


def test_a_member_that_leaves_during_its_sync_is_answered() -> None:
    world = GroupWorld()
    waiting = [world.join() for _ in range(2)]
    world.advance(3 * world.group.settings.initial_delay_ms + 1)
    follower = waiting[1][0]
    share = world.sync(follower)
    world.leave(follower.member_id)
    assert [answer.error for answer in share] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_rebalance_waits_for_a_pending_id_until_it_expires() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    world.join(known_id_needed=True)
    again = world.join(member.member_id, protocols=OTHER)
    world.advance(SESSION_MS - 1)
    assert not again
    world.advance(1)
    assert again[0].generation == 2


def test_removing_a_member_without_sync_starts_a_rebalance() -> None:
    world = GroupWorld()
    waiting = [world.join() for _ in range(2)]
    world.advance(3 * world.group.settings.initial_delay_ms + 1)
    leader, follower = (answers[0] for answers in waiting)
    world.sync(leader, {})
    pass_alive(world, REBALANCE_MS, (leader, None), (follower, None))
    assert (world.group.state, list(world.group.members)) == (GroupState.PREPARING, [leader.member_id])


def test_a_refused_empty_generation_is_retried_after_a_pause() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    world.refused = ErrorCode.NOT_COORDINATOR
    world.leave(member.member_id)
    world.refused, written = ErrorCode.NONE, len(world.written)
    rebalance.expire(world.group, world.now_ms + rebalance.EMPTY_RETRY_MS - 1)
    assert len(world.written) == written
    rebalance.expire(world.group, world.now_ms + rebalance.EMPTY_RETRY_MS)
    assert len(world.written) == written + 1
