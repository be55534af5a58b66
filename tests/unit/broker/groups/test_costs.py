"""The cost of a request does not grow with earlier requests of other members."""

from __future__ import annotations

from _collections_abc import dict_values
from collections.abc import Iterator

import pytest

from milena.broker.groups import group as groups
from milena.broker.groups.model import Member
from milena.broker.groups.rebalance import next_deadline_ms
from milena.protocol.errors import ErrorCode
from milena.protocol.records.consumer_protocol import subscribed_topics
from tests.unit.broker.groups.world import GroupWorld

Protocol = tuple[str, bytes]


class Read(tuple[Protocol, ...]):
    """Protocols that count their iterations."""

    times = 0

    def __iter__(self) -> Iterator[Protocol]:
        Read.times += 1
        return super().__iter__()


def test_a_join_reads_the_protocols_of_no_other_member() -> None:
    world = GroupWorld(initial_delay_ms=3_000)
    for _ in range(20):
        world.join(protocols=Read((f"p{number}", b"") for number in range(10)))
    before = Read.times
    assert not world.join(protocols=(("p3", b""), ("other", b"")))
    assert world.join(protocols=(("other", b""),))[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Read.times == before


def test_supported_protocols_follow_the_members() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.join(leader.member_id, protocols=(("sticky", b""), ("range", b"")))
    world.join(follower.member_id, protocols=(("range", b""), ("sticky", b"")))
    assert world.group.common_protocols() == ["sticky", "range"]
    world.join(follower.member_id, protocols=(("sticky", b""),))
    assert world.group.common_protocols() == ["sticky"]
    world.leave(follower.member_id)
    assert world.group.common_protocols() == ["sticky", "range"]
    world.group.clear(world.now_ms)
    assert world.group.common_protocols() == [] and world.group.supports("consumer", ["any"])


class Members(dict[str, Member]):
    """Counts scans of all members."""

    times = 0

    def values(self) -> dict_values[str, Member]:
        Members.times += 1
        return super().values()


def test_the_next_deadline_is_found_without_scanning_members() -> None:
    world = GroupWorld()
    members = world.stable(3)
    world.group.members = Members(world.group.members)
    for turn in range(5):
        world.advance(3_000)
        before = Members.times
        assert all(world.heartbeat(one) is ErrorCode.NONE for one in members)
        deadline = next_deadline_ms(world.group)
        assert deadline is not None and deadline > world.now_ms
        assert Members.times == before, turn
    world.advance(10_000)
    assert not world.group.members, "silent ones go in their time"


@pytest.mark.parametrize("metadata", [b"\xff", b"\0\0\0\0\0\0\0\0\0\0"])
def test_subscriptions_of_a_generation_are_decoded_once(metadata: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def reading(data: bytes) -> frozenset[str] | None:
        read.append(data)
        return subscribed_topics(data)

    monkeypatch.setattr(groups, "subscribed_topics", reading)
    world = GroupWorld()
    world.join(protocols=(("range", metadata),))
    world.advance(3_001)
    assert {world.group.subscribes_to(f"t{number}") for number in range(10)} == {metadata == b"\xff"}
    assert len(read) == 1
