"""Classic groups: coordinators, members and generations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.members import RANGE, enter, heartbeat, join, joining, member_of, settle, sync
from tests.oracle.differential.pair import Answers, Pair, eventually, versions

PROTOCOLS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform")
JOIN: Final = list(versions(ApiKey.JOIN_GROUP))


def leave(pair: Pair, version: int, group: str, *members: dict[str, Any]) -> Answers:
    asked: dict[str, Any] = {"members": members} if version >= 3 else {"member_id": members[0]["member_id"]}
    return pair.same(ApiKey.LEAVE_GROUP, version, group_id=group, **asked)


@pytest.fixture
def group(topic: str) -> str:
    return topic


@pytest.fixture
def others(pair: Pair) -> Iterator[list[Pair]]:
    """Three more clients of both sides."""
    found = [pair.another() for _ in range(3)]
    yield found
    for one in found:
        one.close()


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(pair: Pair, version: int) -> None:
    for kind in (0, 3, -1, 99):
        for key in ("a-group", "", "ä"):
            pair.same(ApiKey.FIND_COORDINATOR, version, key=key, key_type=kind, coordinator_keys=[key])
    if version >= 4:
        pair.same(ApiKey.FIND_COORDINATOR, version, key_type=0, coordinator_keys=["a", "b", "", "a"])
        pair.same(ApiKey.FIND_COORDINATOR, version, key_type=0, coordinator_keys=[])


@pytest.mark.parametrize("version", JOIN)
def test_a_group_from_its_first_join_to_its_last_leave(pair: Pair, group: str, version: int) -> None:
    syncing, beating, leaving = min(version, 5), min(version, 4), min(version, 5)
    member = enter(pair, group, version=version)
    heartbeat(pair, beating, group, member_id=member)
    share = [{"member_id": member, "assignment": b"mine"}]
    sync(pair, syncing, group, member_id=member, assignments=share)
    sync(pair, syncing, group, member_id=member)
    heartbeat(pair, beating, group, member_id=member)
    join(pair, version, group, member_id=member, protocols=[{"name": "range", "metadata": b"other"}])
    heartbeat(pair, beating, group, member_id=member)
    heartbeat(pair, beating, group, member_id=member, generation_id=2)
    join(pair, version, group, member_id=member)
    sync(pair, syncing, group, member_id=member, generation_id=3, assignments=share)
    leave(pair, leaving, group, {"member_id": member})
    heartbeat(pair, beating, group, member_id=member, generation_id=3)
    leave(pair, leaving, group, {"member_id": member})
    enter(pair, group, "again", version=version)


@pytest.mark.parametrize("version", JOIN)
def test_refused_joins(pair: Pair, group: str, version: int) -> None:
    for session in (5999, 0, -1, 1_800_001):
        join(pair, version, group, session_timeout_ms=session)
    join(pair, version, "")
    join(pair, version, group, member_id="stranger")
    join(pair, version, group, protocols=[])
    join(pair, version, group, protocol_type="")
    join(pair, version, group, protocol_type="", protocols=[])
    join(pair, version, f"{group}-hasty", rebalance_timeout_ms=-1, session_timeout_ms=6000)
    if version >= 5:
        join(pair, version, group, group_instance_id="i", member_id="stranger")
        for index, instance in enumerate(("", "a b", "x" * 249, "x" * 250, ".")):
            join(pair, version, f"{group}-{index}", group_instance_id=instance)
    enter(pair, group, version=version)
    join(pair, version, group, protocol_type="other")
    join(pair, version, group, protocols=[{"name": "other", "metadata": b""}])
    join(pair, version, group, member_id="stranger")


@pytest.mark.parametrize("count", [2, 3])
def test_tied_votes(pair: Pair, group: str, others: list[Pair], count: int) -> None:
    """Each member prefers another protocol."""
    for index, names in enumerate(permutations(PROTOCOLS, count)):
        one = f"{group}-{index}"
        orders = [[{"name": name, "metadata": b""} for name in (*names[at:], *names[:at])] for at in range(count)]
        first = member_of(join(pair, 3, one, protocols=orders[0]))
        for other, order in zip(others, orders[1:], strict=False):
            other.send(ApiKey.JOIN_GROUP, 3, **joining(one, protocols=order))
        eventually(partial(_has_members, pair, one, count))
        join(pair, 3, one, member_id=first, protocols=orders[0])
        for other in others[: count - 1]:
            other.receive(ApiKey.JOIN_GROUP, 3).check(f"a tied vote on {names}", ignore=["leader"])


def _has_members(pair: Pair, group: str, count: int) -> None:
    for answer in pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group]).both:
        assert len(answer["groups"][0]["members"]) == count


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP, since=3))
def test_a_pending_member_leaves_with_any_instance_id(pair: Pair, group: str, version: int) -> None:
    enter(pair, group, "static", group_instance_id="i")
    for instance in ("i", "unknown", "", None):
        given = join(pair, 9, group)
        assert {answer["error_code"] for answer in given.both} == {79}
        leave(pair, version, group, {"member_id": member_of(given), "group_instance_id": instance})


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_refused_syncs(pair: Pair, group: str, version: int) -> None:
    sync(pair, version, group, member_id="stranger")
    sync(pair, version, "", member_id="stranger")
    member = enter(pair, group)
    for generation in (0, 2, -1):
        sync(pair, version, group, member_id=member, generation_id=generation)
    sync(pair, version, group, member_id="stranger")
    sync(pair, version, group, member_id="")
    sync(pair, version, group, member_id=member, group_instance_id="i")
    sync(pair, version, group, member_id=member, protocol_type="other")
    sync(pair, version, group, member_id=member, protocol_name="other")
    sync(pair, version, group, member_id=member, protocol_type=None, protocol_name=None)
    stranger = [{"member_id": "stranger", "assignment": b"x"}, {"member_id": member, "assignment": b"y"}]
    sync(pair, version, group, member_id=member, assignments=stranger)


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_refused_heartbeats(pair: Pair, group: str, version: int) -> None:
    heartbeat(pair, version, group, member_id="stranger")
    heartbeat(pair, version, "", member_id="stranger")
    member = enter(pair, group)
    for generation in (0, 2, -1):
        heartbeat(pair, version, group, member_id=member, generation_id=generation)
    heartbeat(pair, version, group, member_id="stranger")
    heartbeat(pair, version, group)
    heartbeat(pair, version, group, member_id=member, group_instance_id="i")
    heartbeat(pair, version, group, member_id=member)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leaving(pair: Pair, group: str, version: int) -> None:
    leave(pair, version, group, {"member_id": "stranger"})
    leave(pair, version, "", {"member_id": "stranger"})
    pending = member_of(join(pair, 9, group), "pending")
    leave(pair, version, group, {"member_id": pending})
    leave(pair, version, group, {"member_id": pending})
    member = enter(pair, group)
    leave(pair, version, group, {"member_id": "stranger"})
    leave(pair, version, group, {"member_id": ""})
    if version >= 3:
        leave(pair, version, group)
        leave(pair, version, group, {"member_id": "a"}, {"member_id": member}, {"member_id": member})
        fixed = enter(pair, group, "fixed", group_instance_id="i")
        leave(pair, version, group, {"member_id": "a", "group_instance_id": "i"})
        leave(pair, version, group, {"member_id": fixed, "group_instance_id": "other"})
        leave(pair, version, group, {"member_id": fixed})
        fixed = enter(pair, group, "fixed", group_instance_id="i")
        leave(pair, version, group, {"member_id": "", "group_instance_id": "i"})
        leave(pair, version, group, {"member_id": "", "group_instance_id": "i"})


@pytest.mark.parametrize("version", [version for version in JOIN if version >= 5])
def test_static_members(pair: Pair, group: str, version: int) -> None:
    first = enter(pair, group, "first", version, group_instance_id="i")
    settle(pair, group, first)
    second = member_of(join(pair, version, group, group_instance_id="i"), "second")
    for member in (first, second):
        heartbeat(pair, 4, group, member_id=member, group_instance_id="i")
        heartbeat(pair, 4, group, member_id=member)
        sync(pair, 5, group, member_id=member, group_instance_id="i")
        join(pair, version, group, member_id=member, group_instance_id="i", protocols=RANGE)
    settle(pair, group, second, 2)
    join(pair, version, group, member_id=second, group_instance_id="other")
    heartbeat(pair, 4, group, member_id=second, group_instance_id="other", generation_id=2)
    heartbeat(pair, 4, group, member_id="", group_instance_id="i", generation_id=2)
    third = join(pair, version, group, group_instance_id="i", protocols=[{"name": "range", "metadata": b"x"}])
    heartbeat(pair, 4, group, member_id=member_of(third, "third"), group_instance_id="i", generation_id=2)


@pytest.mark.parametrize("version", [3, 9])
def test_a_rebalance_timeout_of_0(pair: Pair, group: str, version: int) -> None:
    """A member has no time for SyncGroup: it is removed right after it has joined."""
    member = enter(pair, group, version=version, rebalance_timeout_ms=0)
    eventually(lambda: _in_state(pair, group, "Empty"))
    sync(pair, 5, group, member_id=member, assignments=[{"member_id": member, "assignment": b"mine"}])
    heartbeat(pair, 4, group, member_id=member)


def test_a_second_member(pair: Pair, others: list[Pair], group: str) -> None:
    """The second member waits until the first joins again. The generation has a leader, both members, and a protocol
    that both support."""
    both = [{"name": "range", "metadata": b"r"}, {"name": "sticky", "metadata": b"s"}]
    first = enter(pair, group, "first", protocols=both)
    settle(pair, group, first)
    entering, waiting, _ = others
    second = member_of(join(entering, 9, group, protocols=both[1:]), "second")
    waiting.send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=second, protocols=both[1:]))
    eventually(lambda: _in_state(pair, group, "PreparingRebalance"))
    heartbeat(pair, 4, group, member_id=first)
    sync(pair, 5, group, member_id=first)
    answers = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=first, protocols=both))
    waiting.receive(ApiKey.JOIN_GROUP, 9).check("the follower joins")
    answers.check("the leader joins")
    sync(pair, 5, group, member_id=first, generation_id=2, protocol_name="range")
    joined: dict[str, Any] = {
        "group_id": group, "generation_id": 2, "protocol_type": "consumer", "protocol_name": "sticky",
        "group_instance_id": None,
    }  # fmt: skip
    waiting.send(ApiKey.SYNC_GROUP, 5, member_id=second, assignments=[], **joined)
    heartbeat(pair, 4, group, member_id=first, generation_id=2)
    share = [{"member_id": first, "assignment": b"1"}, {"member_id": second, "assignment": b"2"}]
    pair.same(ApiKey.SYNC_GROUP, 5, member_id=first, assignments=share, **joined)
    waiting.receive(ApiKey.SYNC_GROUP, 5).check("the follower's share")
    pair.same(ApiKey.DESCRIBE_GROUPS, 6, groups=[group])
    leave(pair, 5, group, {"member_id": second})
    heartbeat(pair, 4, group, member_id=first, generation_id=2)
    heartbeat(pair, 4, group, member_id=second, generation_id=2)


def _in_state(pair: Pair, group: str, state: str) -> None:
    found = pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    assert [answer["groups"][0]["group_state"] for answer in found.both] == [state] * 2


def test_a_full_group(pair: Pair, others: list[Pair], group: str) -> None:
    members = [member_of(join(client, 9, group), f"member {index}") for index, client in enumerate(others)]
    others[0].send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=members[0]))
    others[0].receive(ApiKey.JOIN_GROUP, 9).check("the first of three")
    for client, member in zip(others[1:], members[1:], strict=True):
        client.send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=member))
        eventually(lambda: _in_state(pair, group, "PreparingRebalance"))
    others[0].send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=members[0]))
    for client in others:
        client.receive(ApiKey.JOIN_GROUP, 9).check("all three")
    join(pair, 9, group)
    join(pair, 3, group)
    join(pair, 9, group, member_id="stranger")
    join(pair, 9, group, group_instance_id="i")
