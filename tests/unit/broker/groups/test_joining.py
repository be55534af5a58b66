"""JoinGroup: joining, rejoining, and errors."""

from __future__ import annotations

import pytest

from milena.broker.groups.model import GroupState
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld


def test_a_dynamic_member_without_an_id_gets_one_and_has_to_rejoin() -> None:
    world = GroupWorld()
    (first,) = world.join(known_id_needed=True)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    waiting = world.join(first.member_id)
    world.advance(3_001)
    assert [(answer.error, answer.generation) for answer in waiting] == [(ErrorCode.NONE, 1)]


def test_a_pending_id_expires_with_the_session_timeout() -> None:
    world = GroupWorld()
    (first,) = world.join(known_id_needed=True)
    world.advance(SESSION_MS)
    assert world.join(first.member_id)[0].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_waits_the_initial_delay_and_longer_while_members_join() -> None:
    world = GroupWorld(initial_delay_ms=3_000)
    first = world.join()
    world.advance(2_000)
    second = world.join()
    world.advance(3_000)
    assert not first and not second
    world.advance(1_001)
    assert first[0].generation == second[0].generation == 1


def test_without_an_initial_delay_the_first_member_joins_at_once() -> None:
    world = GroupWorld(initial_delay_ms=0)
    assert world.join()[0].error is ErrorCode.NONE


def test_only_the_leader_gets_the_list_of_members() -> None:
    leader, follower = GroupWorld().stable(2)
    assert [member.member_id for member in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == () and follower.leader == leader.member_id


def test_the_protocol_is_the_most_preferred_of_those_that_all_members_support() -> None:
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
def test_a_member_with_inconsistent_protocols_is_refused(
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


def test_a_follower_that_rejoins_unchanged_gets_the_current_generation() -> None:
    world = GroupWorld()
    _, follower = world.stable(2)
    (again,) = world.join(follower.member_id)
    assert again.generation == 1 and world.group.state is GroupState.STABLE


def test_after_the_leader_leaves_the_oldest_member_leads() -> None:
    world = GroupWorld()
    leader, second, third = world.stable(3)
    world.leave(leader.member_id)
    world.join(third.member_id)
    answers = world.join(second.member_id)
    assert answers[0].leader == second.member_id


def test_a_leader_that_rejoins_starts_a_rebalance() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    answers = world.join(leader.member_id)
    assert world.group.state is GroupState.PREPARING and not answers
    world.join(follower.member_id)
    assert answers[0].generation == 2


def test_members_that_do_not_rejoin_within_the_rebalance_timeout_are_removed() -> None:
    world = GroupWorld()
    _leader, follower = world.stable(2)
    again = world.join(follower.member_id, protocols=(("range", b"other"),))
    world.advance(REBALANCE_MS + 1)
    assert again[0].leader == follower.member_id and len(again[0].members) == 1


def test_a_rejoining_static_member_keeps_the_generation() -> None:
    world = GroupWorld()
    (old,) = world.stable(1, instance="one")
    (new,) = world.join(instance="one")
    assert new.generation == 1 and new.member_id != old.member_id
    assert new.skip_assignment and world.group.state is GroupState.STABLE


def test_before_version_9_a_rejoining_static_leader_gets_its_old_id_as_the_leaders() -> None:
    world = GroupWorld()
    (old,) = world.stable(1, instance="one")
    (new,) = world.join(instance="one", skip=False)
    assert new.leader == old.member_id and not new.skip_assignment and new.members == ()


def test_the_old_id_of_a_static_member_is_fenced() -> None:
    world = GroupWorld()
    (old,) = world.stable(1, instance="one")
    world.join(instance="one")
    assert world.join(old.member_id, instance="one")[0].error is ErrorCode.FENCED_INSTANCE_ID


def test_an_unknown_member_is_refused() -> None:
    world = GroupWorld()
    world.stable()
    assert world.join("who")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
