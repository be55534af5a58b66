"""Pending member ids: their order, their number, and their effect on rebalances."""

from __future__ import annotations

import random

import pytest

from milena.broker.groups import shard as shards
from milena.broker.groups.pending import PendingMembers
from milena.protocol.errors import ErrorCode
from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.served import Groups
from tests.unit.broker.groups.world import SESSION_MS, GroupWorld


@pytest.fixture
def groups(bench: Bench) -> Groups:
    return Groups(bench)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(shards, "MAX_PENDING", 3)
    return 3


def test_ids_expire_in_the_order_of_their_times() -> None:
    among: dict[str, str] = {}
    pending = PendingMembers("g", among)
    dice = random.Random(1)
    times = {f"m{number}": dice.randrange(100) for number in range(200)}
    for member_id, lapses_ms in times.items():
        pending.add(member_id, lapses_ms)
    for member_id in [one for one in times if dice.random() < 0.8]:
        assert pending.discard(member_id) and not pending.discard(member_id)
        del times[member_id]
    for now_ms in range(100):
        assert pending.next_expiration_ms() == min(times.values(), default=None)
        assert pending.expire(now_ms) is (now_ms in times.values())
        times = {one: lapses_ms for one, lapses_ms in times.items() if lapses_ms > now_ms}
        assert set(pending) == set(among) == set(times)


def test_an_id_beyond_the_limit_removes_the_oldest(groups: Groups, few: int) -> None:
    given = [groups.joining(version=4).response.member_id for _ in range(few + 1)]
    assert groups.joining(given[0], version=4).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(groups.shard.groups["g"].pending_members) == few


def test_a_group_with_only_pending_ids_is_removed_with_the_last_one(groups: Groups, few: int) -> None:
    for number in range(few + 2):
        groups.joining(version=4, group=f"g{number}")
    assert list(groups.shard.groups) == ["g2", "g3", "g4"]


def test_removing_the_oldest_id_completes_a_rebalance(groups: Groups, few: int) -> None:
    first = groups.member()
    groups.joining(version=4)
    waiting = groups.joining(first, version=3)
    assert not waiting.answered
    for number in range(few):
        groups.joining(version=4, group=f"g{number}")
    assert waiting.response.generation_id == 2


def test_clearing_a_group_removes_its_pending_ids() -> None:
    world = GroupWorld()
    for _ in range(5):
        world.join(known_id_needed=True)
    world.group.clear(world.now_ms)
    assert not world.group.pending_members
    world.join(known_id_needed=True)
    world.advance(SESSION_MS)
    assert not world.group.pending_members
