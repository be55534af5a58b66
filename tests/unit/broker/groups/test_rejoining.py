"""JoinGroup of existing members: with other protocols, with another id, or unchanged."""

from __future__ import annotations

import pytest

from milena.broker.groups.model import GroupState
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.world import SESSION_MS, GroupWorld

OTHER = (("range", b"other topics"),)
UNLIKE = (("sticky", b"topics"), ("range", b"topics"))


def test_the_leader_gets_the_current_metadata_of_members() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    again = world.join(follower.member_id, protocols=OTHER)
    answers = world.join(leader.member_id)
    assert again and [one.metadata for one in answers[0].members] == [b"topics", b"other topics"]
    assert world.group.common_protocols() == ["range"]


def test_the_protocol_is_selected_from_the_current_protocols() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert world.join(member.member_id, protocols=UNLIKE)[0].protocol_name == "sticky"


@pytest.mark.parametrize("state", [GroupState.COMPLETING, GroupState.STABLE])
def test_an_unchanged_rejoin_extends_the_session(state: GroupState) -> None:
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


def test_a_full_group_accepts_a_member_that_has_joined_already() -> None:
    """The member's first request timed out at the client; it counts for the size of the group."""
    world = GroupWorld(max_size=2)
    first, second = world.join(), world.join()
    member_id = next(iter(world.group.members))
    again = world.join(member_id)
    assert first[0].error is ErrorCode.REBALANCE_IN_PROGRESS and not second and not again
    assert world.join()[0].error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_cannot_use_a_pending_dynamic_id() -> None:
    world = GroupWorld()
    (given,) = world.join(known_id_needed=True)
    assert world.join(given.member_id, instance="i")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.join(given.member_id), "it may still come"


class TestStaticMembers:
    """Static members that rejoin without their id (KIP-345)."""

    def test_it_starts_a_rebalance_if_the_generation_has_no_assignment_yet(self) -> None:
        world = GroupWorld()
        world.join(instance="one")
        waiting = world.join(instance="two")
        world.advance(3 * world.group.settings.initial_delay_ms + 1)
        assert (waiting[0].generation, world.group.state) == (1, GroupState.COMPLETING)
        assert not world.join(instance="two")
        assert world.group.state is GroupState.PREPARING

    def test_it_starts_a_rebalance_if_another_protocol_would_be_selected(self) -> None:
        world = GroupWorld()
        world.stable(1, instance="one")
        (new,) = world.join(instance="one", protocols=UNLIKE)
        assert (new.generation, new.protocol_name, world.group.state) == (2, "sticky", GroupState.COMPLETING)
        assert [one.metadata for one in new.members] == [b"topics"]

    def test_it_has_its_new_protocols_and_a_new_session_in_a_continued_generation(self) -> None:
        world = GroupWorld()
        world.stable(1, instance="one")
        world.advance(SESSION_MS - 1)
        (new,) = world.join(instance="one", protocols=OTHER)
        assert (new.generation, world.group.members[new.member_id].protocols) == (1, OTHER)
        world.advance(SESSION_MS - 1)
        assert new.member_id in world.group.members

    def test_a_follower_gets_no_list_of_members(self) -> None:
        world = GroupWorld()
        leader = world.join(instance="leader")
        world.join(instance="one")
        world.advance(3 * world.group.settings.initial_delay_ms + 1)
        world.sync(leader[0])
        (new,) = world.join(instance="one")
        assert (new.generation, new.leader, world.group.state) == (1, leader[0].member_id, GroupState.STABLE)
        assert (new.members, new.skip_assignment) == ((), False)

    def test_a_refused_write_restores_the_member(self) -> None:
        world = GroupWorld()
        (old,) = world.stable(1, instance="one")
        world.refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        (new,) = world.join(instance="one", protocols=OTHER)
        assert new.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.group.members[old.member_id].protocols == (("range", b"topics"),)
        world.refused = ErrorCode.NONE
        assert world.join(instance="one")[0].generation == 1
