"""Groups whose state contradicts itself, corrupted on purpose: their members hear of an error, and join anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from milena.broker.groups.group import Group
from milena.broker.groups.journal import Journal
from milena.broker.groups.model import CommittedOffset, GroupState, SyncAnswer
from milena.protocol.errors import ErrorCode
from milena.protocol.invariants import BrokenInvariant
from tests.unit.broker.groups.shards import World
from tests.unit.broker.groups.world import GroupWorld


def a_state_that_cannot_follow(group: Group) -> None:
    group.move_to(GroupState.COMPLETING, 0)


def an_empty_group_with_members(group: Group) -> None:
    group.move_to(GroupState.PREPARING, 0)
    group.move_to(GroupState.EMPTY, 0)


def a_leader_that_is_no_member(group: Group) -> None:
    group.move_to(GroupState.PREPARING, 0)
    group.leader_id = "nobody"
    group.move_to(GroupState.COMPLETING, 0)


def a_protocol_that_not_all_support(group: Group) -> None:
    group.move_to(GroupState.PREPARING, 0)
    group.protocol_name = "sticky"
    group.move_to(GroupState.COMPLETING, 0)


def more_members_go_than_support_a_protocol(group: Group) -> None:
    [member] = group.members.values()
    group._count_protocols(member, -1)
    group._count_protocols(member, -1)


def a_static_member_that_is_none(group: Group) -> None:
    group.static_members["instance"] = "nobody"
    group.replace_static("instance", "new")


def a_generation_that_falls_in_the_log(group: Group) -> None:
    group.generation = 0
    group.shard.persist(group, None, lambda error: None)


def a_write_before_the_last_one(group: Group) -> None:
    group.logged_end = 1_000
    group.shard.persist(group, None, lambda error: None)


BREAKING: list[Callable[[Group], None]] = [
    a_state_that_cannot_follow,
    an_empty_group_with_members,
    a_leader_that_is_no_member,
    a_protocol_that_not_all_support,
    more_members_go_than_support_a_protocol,
    a_static_member_that_is_none,
    a_generation_that_falls_in_the_log,
    a_write_before_the_last_one,
]


@pytest.mark.parametrize("corrupt", BREAKING)
def test_a_group_that_contradicts_itself_loses_its_members_and_nothing_else(corrupt: Callable[[Group], None]) -> None:
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


def test_the_message_has_all_numbers() -> None:
    world = GroupWorld()
    world.stable(2)
    with pytest.raises(BrokenInvariant) as broken:
        world.group.move_to(GroupState.COMPLETING, 0)
    assert str(broken.value) == (
        "group readers may not become COMPLETING: STABLE, generation 1, leader c-1, protocol range, 2 members, "
        "0 of them static"
    )


def test_a_group_is_loaded_once() -> None:
    world = World()
    world.join("g")
    with pytest.raises(BrokenInvariant, match="group g was loaded"):
        world.shard.add_loaded({"g": world.shard.loading_group("g")})


def test_writes_of_offsets_rise() -> None:
    journal = Journal()
    changes = {("t", 0): CommittedOffset(5, -1, "", 0)}
    journal.appended(3, "g", {}, changes)
    with pytest.raises(BrokenInvariant, match="end at 3, the write before ends at 3"):
        journal.appended(3, "g", {}, changes)
