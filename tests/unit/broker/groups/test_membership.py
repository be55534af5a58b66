"""SyncGroup, Heartbeat, LeaveGroup, and expiring sessions."""

from __future__ import annotations

import pytest

from milena.broker.groups.membership import sync
from milena.broker.groups.model import GroupState, JoinAnswer, SyncAnswer
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld


def test_members_get_the_assignment_of_the_leader() -> None:
    world = GroupWorld()
    leader, follower = [world.join() for _ in range(2)]
    world.advance(6_001)
    waiting = world.sync(follower[0])
    assert not waiting
    own = world.sync(leader[0], {leader[0].member_id: b"L", follower[0].member_id: b"F"})
    assert (own[0].assignment, waiting[0].assignment) == (b"L", b"F")
    assert world.sync(follower[0])[0].assignment == b"F"


def test_an_assignment_is_sent_only_after_it_is_committed() -> None:
    world = GroupWorld()
    (join,) = [world.join()]
    world.advance(3_001)
    world.hold_writes = True
    answers = world.sync(join[0], {join[0].member_id: b"x"})
    assert not answers
    world.commit()
    assert answers[0].assignment == b"x"


def test_an_assignment_that_cannot_be_written_starts_a_new_rebalance() -> None:
    world = GroupWorld()
    join = world.join()
    world.advance(3_001)
    world.hold_writes = True
    answers = world.sync(join[0], {})
    world.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert answers[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.state is GroupState.PREPARING


def test_an_assignment_of_an_ended_generation_is_ignored() -> None:
    world = GroupWorld()
    join = world.join()
    world.advance(3_001)
    world.hold_writes = True
    world.sync(join[0], {join[0].member_id: b"old"})
    world.join(join[0].member_id, protocols=(("range", b"new"),))
    world.commit()
    assert world.group.generation == 2 and world.group.members[join[0].member_id].assignment == b""


def test_a_wrong_generation_is_an_error() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert world.sync(member, generation=7)[0].error is ErrorCode.ILLEGAL_GENERATION


def test_a_heartbeat_in_a_rebalance_returns_rebalance_in_progress() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert world.heartbeat(member) is ErrorCode.NONE
    world.join()
    assert world.heartbeat(member) is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_keep_a_member_and_an_expired_session_removes_it() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(member) is ErrorCode.NONE
    world.advance(SESSION_MS)
    assert world.group.state is GroupState.EMPTY
    assert world.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_that_leaves_makes_the_group_empty_in_a_new_generation() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert world.leave(member.member_id) is ErrorCode.NONE
    assert world.group.state is GroupState.EMPTY
    assert world.group.generation == 2 and world.written[-1] == {}


def test_a_member_that_leaves_makes_the_others_rebalance() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.leave(leader.member_id)
    again = world.join(follower.member_id)
    assert again[0].leader == follower.member_id and again[0].generation == 2


def test_a_static_member_can_be_removed_by_its_instance_id_alone() -> None:
    world = GroupWorld()
    world.stable(1, instance="one")
    assert world.leave("", "one") is ErrorCode.NONE
    assert world.leave("", "one") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_with_another_id_is_fenced() -> None:
    world = GroupWorld()
    world.stable(1, instance="one")
    assert world.leave("else", "one") is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_that_joined_and_never_synced_is_dropped_after_the_rebalance_timeout() -> None:
    world = GroupWorld()
    leader, silent = [world.join() for _ in range(2)]
    world.advance(6_001)
    world.sync(leader[0], {})
    for _ in range(REBALANCE_MS // 5_000 + 1):
        world.advance(5_000)
        world.heartbeat(leader[0])
        world.heartbeat(silent[0])
    assert silent[0].member_id not in world.group.members
    assert leader[0].member_id in world.group.members


def test_waiting_syncs_fail_when_a_rebalance_begins() -> None:
    world = GroupWorld()
    _leader, follower = [world.join() for _ in range(2)]
    world.advance(6_001)
    waiting = world.sync(follower[0])
    world.join()
    assert waiting[0].error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"), [("connect", None), (None, "roundrobin"), ("connect", "range")]
)
def test_a_sync_with_another_protocol_type_or_name_is_refused(
    protocol_type: str | None, protocol_name: str | None
) -> None:
    """KIP-559."""
    world = GroupWorld()
    (member,) = world.stable()
    answers: list[SyncAnswer] = []

    def ask(protocol_type: str | None, protocol_name: str | None) -> ErrorCode:
        sync(
            world.group,
            member_id=member.member_id,
            instance_id=None,
            generation=member.generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments={},
            reply=answers.append,
            now_ms=world.now_ms,
        )
        return answers[-1].error

    assert ask(protocol_type, protocol_name) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ask("consumer", "range") is ErrorCode.NONE
    assert len(answers) == 2


def test_a_repeated_sync_extends_the_session() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        assert world.sync(member)[0].error is ErrorCode.NONE
    assert world.group.state is GroupState.STABLE


def test_an_assignment_committed_after_the_next_rebalance_began_is_ignored() -> None:
    """The generation ends only with the rebalance, so it is still the same."""
    world = GroupWorld()
    leader, other = (answers[0] for answers in joined(world, 2))
    world.hold_writes = True
    waiting = world.sync(leader, {leader.member_id: b"all"})
    world.leave(other.member_id)
    assert (world.group.state, waiting[0].error) == (GroupState.PREPARING, ErrorCode.REBALANCE_IN_PROGRESS)
    world.commit()
    assert (world.group.state, len(waiting)) == (GroupState.PREPARING, 1)


def test_a_refused_assignment_is_answered_at_once() -> None:
    world = GroupWorld()
    ((leader,),) = joined(world, 1)
    world.refused = ErrorCode.NOT_COORDINATOR
    assert world.sync(leader, {})[0].error is ErrorCode.NOT_COORDINATOR
    assert world.group.state is GroupState.PREPARING


@pytest.mark.parametrize("instance", [None, "i", "unknown"])
def test_a_pending_id_leaves_with_any_instance_id(instance: str | None) -> None:
    world = GroupWorld()
    world.join(instance="i")
    (given,) = world.join(known_id_needed=True)
    assert world.leave(given.member_id, instance) is ErrorCode.NONE
    assert given.member_id not in world.group.pending_members
    assert "i" in world.group.static_members


def joined(world: GroupWorld, count: int) -> list[list[JoinAnswer]]:
    """Members that have joined a generation, the first as its leader, and have not sent SyncGroup."""
    waiting = [world.join() for _ in range(count)]
    world.advance(world.group.settings.initial_delay_ms * (count + 1) + 1)
    assert world.group.state is GroupState.COMPLETING
    return waiting
