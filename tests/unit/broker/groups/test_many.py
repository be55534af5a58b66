"""Groups with many members and protocols: the cost of requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from milena.broker.groups import rebalance
from milena.broker.groups.membership import leave
from milena.broker.groups.shard import OFFSETS_PER_YIELD
from milena.protocol.errors import ErrorCode
from tests.simulation.counted_work import Work
from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.served import Groups
from tests.unit.broker.groups.world import GroupWorld


def lists(member: int, count: int) -> tuple[tuple[str, bytes], ...]:
    """Protocols of one member; the first half are only its own."""
    return tuple((f"own-{member}-{at}" if at < count // 2 else f"common-{at}", b"") for at in range(count))


def gathered(members: int, protocols: int) -> GroupWorld:
    world = GroupWorld(initial_delay_ms=1_000)
    for member in range(members):
        world.join(protocols=lists(member, protocols))
    return world


def counted(work: Work, do: Callable[[], object]) -> int:
    with work.counting():
        do()
    return work.lines + work.comparisons


def test_the_cost_of_a_join_does_not_grow_with_the_members_protocols() -> None:
    few, many = (gathered(members, 100) for members in (4, 32))
    work = Work()
    protocols = work.watched(lists(99, 100))
    costs = [counted(work, lambda world=world: world.join(protocols=protocols)) for world in (few, many)]  # type: ignore[misc]
    assert costs[1] < 2 * costs[0]


def test_the_cost_of_select_protocol_is_linear() -> None:
    work = Work()
    costs = []
    for count in (50, 200):
        world = GroupWorld(initial_delay_ms=1_000)
        for member in range(4):
            world.join(protocols=work.watched(lists(member, count)))
        costs.append(counted(work, world.group.select_protocol))
    assert costs[1] < 7 * costs[0]


def test_common_protocols_follow_changed_and_removed_members() -> None:
    world = GroupWorld()
    first = world.join(protocols=(("a", b""), ("b", b""), ("c", b"")))
    world.advance(10_000)
    (one,) = first
    second = world.join(protocols=(("b", b""), ("c", b"")))
    world.join(one.member_id, protocols=(("c", b""), ("a", b""), ("b", b"")))
    assert world.group.common_protocols() == ["c", "b"]
    (two,) = second
    world.leave(two.member_id)
    assert world.group.common_protocols() == ["c", "a", "b"]
    world.leave(one.member_id)
    assert world.group.common_protocols() == [] and not world.group.members


def test_leaving_members_are_removed_in_one_step(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan for the next deadline runs once per request, not once per member."""
    groups = Groups(bench)
    pending = [groups.joining(version=4).response.member_id for _ in range(100)]
    looked: list[object] = []
    monkeypatch.setattr(rebalance, "next_deadline_ms", lambda group: looked.append(group))
    left = groups.leave(*pending, "unknown", pending[0])
    assert {one.error_code for one in left.members[:100]} == {ErrorCode.NONE}
    assert [one.error_code for one in left.members[100:]] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert len(looked) <= 1 and not groups.shard.groups


def test_offsets_expire_cooperatively_and_new_members_keep_their_group(bench: Bench) -> None:
    groups = Groups(bench)
    for number in range(3 * OFFSETS_PER_YIELD // 2):
        groups.commit(9, 0, group=f"g{number}")
    slices = groups.shard.expire_offsets(0)
    next(slices)
    left = list(groups.shard.groups)
    assert len(left) == OFFSETS_PER_YIELD, "each group counts as one, and its offset as one"
    last = left[-1]
    groups.deleting(last)
    groups.joining(group=last, version=3)
    assert 0 < len(list(slices)) <= 2
    assert list(groups.shard.groups) == [last], "which is another group now, with a member"


def test_an_error_of_one_leaving_member_is_returned_for_it_and_the_following(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = Groups(bench)
    first, second = (groups.joining(version=4).response.member_id for _ in range(2))
    calls = iter((True, False))
    monkeypatch.setattr(
        "milena.broker.apis.leave_group.leave", lambda *a, **how: leave(*a, **how) if next(calls) else 1 / 0
    )
    codes = [one.error_code for one in groups.leave(first, second, "third").members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
