"""JoinGroup: entering a group, coming again, and being refused."""

from __future__ import annotations

import pytest

from milena.broker.groups.model import GroupState
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld


def test_a_dynamic_member_without_an_id_is_given_one_and_told_to_come_again() -> None:
    world = GroupWorld()
    (first,) = world.join(known_id_needed=True)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    waiting = world.join(first.member_id)
    world.advance(3_001)
    assert [(answer.error, answer.generation) for answer in waiting] == [(ErrorCode.NONE, 1)]


def test_an_id_that_was_given_out_and_not_used_lapses_with_the_session_timeout() -> None:
    world = GroupWorld()
    (first,) = world.join(known_id_needed=True)
    world.advance(SESSION_MS)
    assert world.join(first.member_id)[0].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_waits_the_initial_delay_and_longer_while_members_come() -> None:
    world = GroupWorld(initial_delay_ms=3_000)
    first = world.join()
    world.advance(2_000)
    second = world.join()
    world.advance(3_000)
    assert not first and not second
    world.advance(1_001)
    assert first[0].generation == second[0].generation == 1


def test_without_an_initial_delay_the_first_member_is_let_in_at_once() -> None:
    world = GroupWorld(initial_delay_ms=0)
    assert world.join()[0].error is ErrorCode.NONE


def test_only_the_leader_is_told_of_all_members() -> None:
    leader, follower = GroupWorld().stable(2)
    assert [member.member_id for member in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == () and follower.leader == leader.member_id


def test_the_protocol_is_the_one_that_most_members_prefer_among_those_that_all_support() -> None:
    world = GroupWorld()
    first = world.join(protocols=(("range", b""), ("sticky", b"")))
    world.join(protocols=(("sticky", b""), ("range", b"")))
    world.join(protocols=(("sticky", b""), ("other", b""), ("range", b"")))
    world.advance(10_000)
    assert first[0].protocol_name == "sticky"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", (("range", b""),)), ("consumer", (("sticky", b""),)), ("consumer", ()), ("", (("range", b""),))],
)
def test_a_member_whose_protocols_do_not_fit_is_refused(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    world = GroupWorld()
    world.stable()
    (answer,) = world.join(protocol_type=protocol_type, protocols=protocols)
    assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_refuses_one_more_member() -> None:
    world = GroupWorld(max_size=1)
    world.stable()
    refused = world.join("stranger")[0]
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_a_follower_that_joins_again_unchanged_is_told_of_the_generation_it_is_in() -> None:
    world = GroupWorld()
    _, follower = world.stable(2)
    (again,) = world.join(follower.member_id)
    assert again.generation == 1 and world.group.state is GroupState.STABLE


def test_once_the_leader_has_left_the_member_that_has_been_there_longest_leads() -> None:
    world = GroupWorld()
    leader, second, third = world.stable(3)
    world.leave(leader.member_id)
    world.join(third.member_id)
    answers = world.join(second.member_id)
    assert answers[0].leader == second.member_id


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    answers = world.join(leader.member_id)
    assert world.group.state is GroupState.PREPARING and not answers
    world.join(follower.member_id)
    assert answers[0].generation == 2


def test_whoever_does_not_come_again_within_the_rebalance_timeout_is_dropped() -> None:
    world = GroupWorld()
    _leader, follower = world.stable(2)
    again = world.join(follower.member_id, protocols=(("range", b"other"),))
    world.advance(REBALANCE_MS + 1)
    assert again[0].leader == follower.member_id and len(again[0].members) == 1


def test_a_static_member_that_comes_back_keeps_the_generation() -> None:
    world = GroupWorld()
    (old,) = world.stable(1, instance="one")
    (new,) = world.join(instance="one")
    assert new.generation == 1 and new.member_id != old.member_id
    assert new.skip_assignment and world.group.state is GroupState.STABLE


def test_before_version_9_a_static_leader_that_comes_back_is_shown_its_old_id_as_the_leaders() -> None:
    world = GroupWorld()
    (old,) = world.stable(1, instance="one")
    (new,) = world.join(instance="one", skip=False)
    assert new.leader == old.member_id and not new.skip_assignment and new.members == ()


def test_the_old_id_of_a_static_member_is_fenced() -> None:
    world = GroupWorld()
    (old,) = world.stable(1, instance="one")
    world.join(instance="one")
    assert world.join(old.member_id, instance="one")[0].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_that_nobody_knows_is_refused() -> None:
    world = GroupWorld()
    world.stable()
    assert world.join("who")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
