"""JoinGroup of who is in the group already: with other protocols, under another id, or once more."""

from __future__ import annotations

import pytest

from milena.broker.groups.model import GroupState
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.world import SESSION_MS, GroupWorld

OTHER = (("range", b"other topics"),)
UNLIKE = (("sticky", b"topics"), ("range", b"topics"))


def test_the_leader_is_told_what_a_member_supports_now() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    again = world.join(follower.member_id, protocols=OTHER)
    told = world.join(leader.member_id)
    assert again and [one.metadata for one in told[0].members] == [b"topics", b"other topics"]
    assert world.group.common_protocols() == ["range"]


def test_what_is_voted_for_is_what_members_support_now() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert world.join(member.member_id, protocols=UNLIKE)[0].protocol_name == "sticky"


@pytest.mark.parametrize("state", [GroupState.COMPLETING, GroupState.STABLE])
def test_who_joins_again_unchanged_lives(state: GroupState) -> None:
    world = GroupWorld()
    if state is GroupState.STABLE:
        leader, follower = world.stable(2)
    else:
        waiting = [world.join() for _ in range(2)]
        world.advance(3 * world.group.settings.initial_delay_ms + 1)
        leader, follower = (answers[0] for answers in waiting)
    for _ in range(3):
        world.advance(SESSION_MS - 4_000)
        world.heartbeat(leader)
        assert world.join(follower.member_id)[0].generation == 1
    assert (world.group.state, len(world.group.members)) == (state, 2)


def test_a_full_group_has_room_for_who_has_come_already() -> None:
    """Its first request was given up; it is one of those that fill the group."""
    world = GroupWorld(max_size=2)
    first, second = world.join(), world.join()
    member_id = next(iter(world.group.members))
    again = world.join(member_id)
    assert first[0].error is ErrorCode.REBALANCE_IN_PROGRESS and not second and not again
    assert world.join()[0].error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_id_that_was_given_to_a_dynamic_member_is_nothing_to_a_static_one() -> None:
    world = GroupWorld()
    (given,) = world.join(known_id_needed=True)
    assert world.join(given.member_id, instance="i")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.join(given.member_id), "it may still come"


class TestStaticMembers:
    """Who comes back under a new id (KIP-345)."""

    def test_it_makes_the_group_rebalance_where_the_generation_has_no_assignment_yet(self) -> None:
        world = GroupWorld()
        world.join(instance="one")
        waiting = world.join(instance="two")
        world.advance(3 * world.group.settings.initial_delay_ms + 1)
        assert (waiting[0].generation, world.group.state) == (1, GroupState.COMPLETING)
        assert not world.join(instance="two")
        assert world.group.state is GroupState.PREPARING

    def test_it_makes_the_group_rebalance_where_another_protocol_would_be_chosen(self) -> None:
        world = GroupWorld()
        world.stable(1, instance="one")
        (new,) = world.join(instance="one", protocols=UNLIKE)
        assert (new.generation, new.protocol_name, world.group.state) == (2, "sticky", GroupState.COMPLETING)
        assert [one.metadata for one in new.members] == [b"topics"]

    def test_where_the_generation_goes_on_it_is_known_by_what_it_supports_now_and_lives(self) -> None:
        world = GroupWorld()
        world.stable(1, instance="one")
        world.advance(SESSION_MS - 1)
        (new,) = world.join(instance="one", protocols=OTHER)
        assert (new.generation, world.group.members[new.member_id].protocols) == (1, OTHER)
        world.advance(SESSION_MS - 1)
        assert new.member_id in world.group.members

    def test_one_that_does_not_lead_is_told_of_nobody(self) -> None:
        world = GroupWorld()
        leader = world.join(instance="leader")
        world.join(instance="one")
        world.advance(3 * world.group.settings.initial_delay_ms + 1)
        world.sync(leader[0])
        (new,) = world.join(instance="one")
        assert (new.generation, new.leader, world.group.state) == (1, leader[0].member_id, GroupState.STABLE)
        assert (new.members, new.skip_assignment) == ((), False)

    def test_if_its_return_cannot_be_written_all_is_as_it_was(self) -> None:
        world = GroupWorld()
        (old,) = world.stable(1, instance="one")
        world.refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        (new,) = world.join(instance="one", protocols=OTHER)
        assert new.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.group.members[old.member_id].protocols == (("range", b"topics"),)
        world.refused = ErrorCode.NONE
        assert world.join(instance="one")[0].generation == 1
