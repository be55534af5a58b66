"""Groups with a broken invariant: their members get an error, and rejoin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from milena.broker.groups.group import Group
from milena.broker.groups.journal import Journal
from milena.broker.groups.model import CommittedOffset, GroupState, SyncAnswer
from milena.broker.groups.transactional_offsets import TransactionalOffsets
from milena.protocol.errors import ErrorCode
from milena.protocol.invariants import BrokenInvariant
from tests.unit.broker.groups.shards import World
from tests.unit.broker.groups.world import GroupWorld


def an_invalid_transition(group: Group) -> None:
    group.move_to(GroupState.COMPLETING, 0)


def an_empty_group_with_members(group: Group) -> None:
    group.move_to(GroupState.PREPARING, 0)
    group.move_to(GroupState.EMPTY, 0)


def a_leader_that_is_not_a_member(group: Group) -> None:
    group.move_to(GroupState.PREPARING, 0)
    group.leader_id = "unknown"
    group.move_to(GroupState.COMPLETING, 0)


def a_protocol_without_support_of_all_members(group: Group) -> None:
    group.move_to(GroupState.PREPARING, 0)
    group.protocol_name = "sticky"
    group.move_to(GroupState.COMPLETING, 0)


def more_removals_than_supporters_of_a_protocol(group: Group) -> None:
    [member] = group.members.values()
    group._count_protocols(member, -1)
    group._count_protocols(member, -1)


def a_static_member_that_is_not_a_member(group: Group) -> None:
    group.static_members["instance"] = "unknown"
    group.replace_static("instance", "new")


def a_falling_generation(group: Group) -> None:
    group.generation = 0
    group.shard.persist(group, None, lambda error: None)


def a_write_before_the_last_one(group: Group) -> None:
    group.logged_end = 1_000
    group.shard.persist(group, None, lambda error: None)


CORRUPTIONS: list[Callable[[Group], None]] = [
    an_invalid_transition,
    an_empty_group_with_members,
    a_leader_that_is_not_a_member,
    a_protocol_without_support_of_all_members,
    more_removals_than_supporters_of_a_protocol,
    a_static_member_that_is_not_a_member,
    a_falling_generation,
    a_write_before_the_last_one,
]


@pytest.mark.parametrize("corrupt", CORRUPTIONS)
def test_a_broken_invariant_removes_the_members_and_keeps_the_group(corrupt: Callable[[Group], None]) -> None:
    world = World()
    joined = world.join("g")
    group = world.shard.get_or_create("g")
    answers: list[SyncAnswer] = []
    group.members[joined.member_id].sync_reply = answers.append
    with pytest.raises(BrokenInvariant, match="group g "):
        corrupt(group)
    assert not world.shard.attempt(group, lambda: corrupt(group))
    assert [answer.error for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert (group.state, group.members) == (GroupState.EMPTY, {})
    assert world.join("other").error is ErrorCode.NONE


def test_the_error_message_has_the_groups_state() -> None:
    world = GroupWorld()
    world.stable(2)
    with pytest.raises(BrokenInvariant) as broken:
        world.group.move_to(GroupState.COMPLETING, 0)
    assert str(broken.value) == (
        "group readers may not become COMPLETING: STABLE, generation 1, leader c-1, protocol range, 2 members, "
        "0 of them static"
    )


def test_an_existing_group_cannot_be_loaded() -> None:
    world = World()
    world.join("g")
    with pytest.raises(BrokenInvariant, match="group g was loaded"):
        world.shard.add_loaded({"g": world.shard.loading_group("g")}, TransactionalOffsets())


def test_offset_writes_must_have_rising_ends() -> None:
    journal = Journal()
    changes = {("t", 0): CommittedOffset(5, -1, "", 0)}
    journal.appended(3, "g", {}, changes)
    with pytest.raises(BrokenInvariant, match="end at 3, the write before ends at 3"):
        journal.appended(3, "g", {}, changes)
