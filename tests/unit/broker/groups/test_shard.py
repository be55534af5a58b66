"""A shard writes its groups to the log, and another shard loads the same groups."""

from __future__ import annotations

from milena.broker.groups.model import GroupState
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.shards import ANSWER_ONE, World


def test_a_group_survives_a_restart_with_members_assignment_and_generation() -> None:
    world = World()
    member = world.join("g")
    group = world.reload().groups["g"]
    assert (group.state, group.generation, group.leader_id) == (GroupState.STABLE, 1, member.member_id)
    assert group.members[member.member_id].assignment == b"share"


def test_a_member_that_sends_nothing_after_a_restart_loses_its_session() -> None:
    world = World()
    world.join("g")
    shard = world.reload()
    world.clock.advance(10.0)
    assert shard.groups["g"].state is GroupState.EMPTY


def test_offsets_are_stored_once_they_are_appended_and_survive_a_restart() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    errors: list[ErrorCode] = []
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, errors.append)
    assert errors == [ErrorCode.NOT_COORDINATOR] and not group.offsets
    world.log.error = ErrorCode.NONE
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, errors.append)
    assert group.offsets == world.reload().groups["g"].offsets == {("t", 1): ANSWER_ONE}


def test_a_deleted_group_does_not_exist_after_a_restart() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, lambda error: None)
    world.shard.remove_group(group, lambda error: None)
    assert not world.shard.groups and not world.reload().groups


def test_a_removed_offset_does_not_exist_after_a_restart() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.shard.commit(group, {("t", 1): ANSWER_ONE, ("t", 2): ANSWER_ONE}, lambda error: None)
    world.shard.remove_offsets(group, [("t", 1)], lambda error: None)
    assert list(world.reload().groups["g"].offsets) == [("t", 2)]


def test_a_closed_shard_appends_nothing() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.shard.close()
    errors: list[ErrorCode] = []
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, errors.append)
    assert errors == [ErrorCode.NOT_COORDINATOR] and not world.log.batches


def test_a_group_without_state_is_removed_after_the_request() -> None:
    world = World()
    world.shard.after_request(world.shard.get_or_create("g"))
    assert not world.shard.groups
