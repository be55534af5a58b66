"""Group without its operations."""

from __future__ import annotations

import pytest

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, JoinAnswer, Member, SyncAnswer
from milena.protocol.errors import ErrorCode
from tests.unit.broker.groups.world import GroupWorld

RANGE, STICKY = ("range", b""), ("sticky", b"")


def entered(
    group: Group, member_id: str, *protocols: tuple[str, bytes], instance: str | None = None, timeout: int = 100
) -> Member:
    member = Member(member_id, instance, "c", "/h", timeout, 100, "consumer", protocols or (RANGE,))
    group.add(member)
    return member


def test_a_member_added_twice_counts_once() -> None:
    group = GroupWorld().group
    entered(group, "a", RANGE, STICKY)
    entered(group, "a", STICKY)
    entered(group, "b", RANGE, STICKY)
    assert group.common_protocols() == ["sticky"]


def test_removing_a_replaced_static_member_keeps_its_successor() -> None:
    group = GroupWorld().group
    old = entered(group, "old", instance="one")
    new = entered(group, "new", instance="one")
    group.remove(old)
    assert group.identify("new", "one") is new
    group.remove(new)
    assert group.identify("new", "one") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_is_the_longest_of_the_members() -> None:
    group = GroupWorld().group
    for member_id, timeout in (("a", 100), ("b", 300), ("c", 200)):
        entered(group, member_id, timeout=timeout)
    assert group.rebalance_timeout_ms() == 300


def test_an_empty_group_supports_any_protocol_type_with_a_protocol() -> None:
    group = GroupWorld().group
    assert group.supports("anything", ["p"])
    assert not group.supports("", ["p"]) and not group.supports("anything", [])


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (("cooperative-sticky", "range"), "range"),
        (("range", "sticky"), "sticky"),
        (("roundrobin", "uniform"), "uniform"),
        (("cooperative-sticky", "roundrobin", "range"), "range"),
    ],
)
def test_a_tied_vote_is_decided_by_the_order_of_kafkas_map(names: tuple[str, ...], chosen: str) -> None:
    """As answered by Kafka 4.3.1."""
    group = GroupWorld().group
    for index in range(len(names)):
        entered(group, str(index), *((name, b"") for name in (*names[index:], *names[:index])))
    assert group.select_protocol() == chosen


def test_a_tied_vote_on_very_long_names_is_decided_by_the_order_of_the_members() -> None:
    group = GroupWorld().group
    long, longer = ("x" * 9_000, b""), ("y" * 9_001, b"")
    entered(group, "a", longer, long)
    entered(group, "b", long, longer)
    assert group.select_protocol() == longer[0]


def test_select_protocol_with_changes_nothing() -> None:
    group = GroupWorld().group
    member = entered(group, "a", RANGE, STICKY)
    assert group.select_protocol_with(member, (STICKY, RANGE)) == "sticky"
    assert (group.select_protocol(), member.protocols) == ("range", (RANGE, STICKY))


def test_all_waiting_members_are_answered() -> None:
    group = GroupWorld().group
    joins: list[JoinAnswer] = []
    syncs: list[SyncAnswer] = []
    entered(group, "a").join_reply = joins.append
    entered(group, "b").sync_reply = syncs.append
    group.answer_all(ErrorCode.NOT_COORDINATOR)
    assert joins == [JoinAnswer(ErrorCode.NOT_COORDINATOR, "a")]
    assert syncs == [SyncAnswer(ErrorCode.NOT_COORDINATOR)]


def test_without_a_generation_consumers_are_subscribed_to_any_topic_and_other_types_to_none() -> None:
    group = GroupWorld().group
    assert not group.subscribes_to("t")
    entered(group, "a")
    assert group.subscribes_to("t")


def test_a_rejoining_static_member_fences_a_waiting_sync_of_its_old_id() -> None:
    world = GroupWorld()
    world.join()
    other = world.join(instance="one")
    world.advance(3 * world.group.settings.initial_delay_ms + 1)
    share = world.sync(other[0])
    assert (share, world.group.state) == ([], GroupState.COMPLETING)
    world.join(instance="one")
    assert [answer.error for answer in share] == [ErrorCode.FENCED_INSTANCE_ID]
