"""group.max.size: which members a full group refuses, and the effect of that."""

from __future__ import annotations

import pytest

from milena.broker.groups.model import GroupState
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.world import GroupWorld

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_full_group_refuses_before_it_checks_protocols() -> None:
    world = GroupWorld(max_size=1)
    world.stable()
    assert world.join(protocols=())[0].error is FULL
    assert world.join(protocol_type="connect")[0].error is FULL


def test_a_member_refused_by_a_full_rebalance_is_removed_and_the_others_continue() -> None:
    world = GroupWorld(max_size=2)
    first, second = world.stable(2)
    waiting = world.join(first.member_id)
    world.join()  # takes the place of the second
    (refused,) = world.join(second.member_id)
    assert (refused.error, refused.member_id) == (FULL, "")
    assert world.heartbeat(second) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [(one.error, one.generation) for one in waiting] == [(ErrorCode.NONE, 2)]


def test_a_pending_id_is_removed_when_a_full_group_refuses_it() -> None:
    world = GroupWorld(max_size=1)
    (given,) = world.join(known_id_needed=True)
    world.stable()
    assert world.group.state is GroupState.STABLE
    assert world.join(given.member_id)[0].error is FULL
    assert given.member_id not in world.group.pending_members


@pytest.mark.parametrize("goes", ["leaves", "is silent"])
def test_a_member_removed_while_its_join_waits_gets_no_id(goes: str) -> None:
    world = GroupWorld(new_member_timeout_ms=5_000)
    world.stable()
    waiting = world.join()
    new = next(one for one in world.group.members.values() if one.is_new)
    if goes == "leaves":
        world.leave(new.member_id)
    else:
        world.advance(5_000)
    assert [(one.error, one.member_id) for one in waiting] == [(ErrorCode.UNKNOWN_MEMBER_ID, "")]
