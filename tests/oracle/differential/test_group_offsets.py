"""Committed offsets, and the requests of operators: DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import pytest

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.members import enter, join, joining, offsets_of, settle, sync
from tests.oracle.differential.pair import Pair, eventually, versions
from tests.oracle.differential.sides import Name

UNKNOWN_ID: Final = UUID(int=77)


def commit(
    pair: Pair,
    version: int,
    group: str,
    topic: str,
    *partitions: tuple[int, int],
    topic_id: Any = None,
    metadata: str | None = "m",
    **fields: Any,
) -> None:
    given = offsets_of(partitions, metadata)
    found = Name(f"id of {topic}") if topic_id is None else topic_id
    asked: dict[str, Any] = {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "retention_time_ms": -1, "topics": [{"name": topic, "topic_id": found, "partitions": given}], **fields,
    }  # fmt: skip
    pair.same(ApiKey.OFFSET_COMMIT, version, **asked)


def fetch(pair: Pair, version: int, group: str, *topics: tuple[str, list[int]] | None, **fields: Any) -> None:
    """Fetch committed offsets; ``None`` asks for all partitions."""
    asked = [
        {"name": one[0], "topic_id": fields.pop("topic_id", Name(f"id of {one[0]}")), "partition_indexes": one[1]}
        for one in topics
        if one is not None
    ]
    wanted = None if None in topics else asked
    groups = [{"group_id": group, "topics": wanted, "member_id": None, "member_epoch": -1, **fields}]
    if version >= 8:
        pair.same(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=False)
    else:
        for one in wanted or ():
            del one["topic_id"]  # no version of this struct has the field
        pair.same(ApiKey.OFFSET_FETCH, version, group_id=group, topics=wanted, require_stable=False)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_commits_of_no_member(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=2)
    group = f"{topic}-group"
    commit(pair, version, group, topic, (0, 5), (1, 6))
    commit(pair, version, group, topic, (0, 7), (9, 1), (-1, 1))
    commit(pair, version, group, topic, (0, -1))
    commit(pair, version, group, topic, (0, 8), metadata=None)
    commit(pair, version, group, topic, (0, 8), metadata="x" * 4096)
    commit(pair, version, group, topic, (0, 9), metadata="x" * 4097)
    commit(pair, version, group, topic, (0, 9), metadata="ä" * 4096)
    commit(pair, version, group, topic, (0, 9), metadata="\N{PILE OF POO}" * 2049)
    commit(pair, version, group, topic, (0, 9), metadata="")
    commit(pair, version, group, "nowhere", (0, 9), topic_id=UNKNOWN_ID)
    commit(pair, version, "", topic, (0, 9))
    commit(pair, version, group, topic)
    commit(pair, version, group, topic, (1, 9), member_id="stranger")
    commit(pair, version, group, topic, (1, 9), generation_id_or_member_epoch=0)
    commit(pair, version, group, topic, (1, 9), generation_id_or_member_epoch=3, member_id="stranger")
    commit(pair, version, group, topic, (1, 9), generation_id_or_member_epoch=-5)
    commit(pair, version, f"{topic}-new", topic, (1, 9), generation_id_or_member_epoch=3, member_id="stranger")
    commit(pair, version, f"{topic}-new", topic, (1, 9), generation_id_or_member_epoch=3)
    fetch(pair, 9, group, (topic, [0, 1]))
    fetch(pair, 9, group, None)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_commits_of_members(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    group = f"{topic}-group"
    member = enter(pair, group)
    commit(pair, version, group, topic, (0, 1), member_id=member, generation_id_or_member_epoch=1)
    settle(pair, group, member)
    for generation in (1, 0, 2, -1):
        for who in (member, "stranger", ""):
            commit(pair, version, group, topic, (0, 1), member_id=who, generation_id_or_member_epoch=generation)
    commit(pair, version, group, topic, (8, 1), (0, 1), member_id="stranger", generation_id_or_member_epoch=1)
    commit(pair, version, group, topic, (8, 1), member_id="stranger", generation_id_or_member_epoch=1)
    commit(pair, version, f"{topic}-new", topic, (8, 1), (0, 1), generation_id_or_member_epoch=3)
    mine: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": 1}
    commit(pair, version, group, topic, (0, 1), **mine, group_instance_id="i")
    commit(pair, version, group, topic, (0, 2), (8, 1), **mine)
    pair.same(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": member}])
    commit(pair, version, group, topic, (0, 3), **mine)
    commit(pair, version, group, topic, (0, 4))
    fetch(pair, 9, group, (topic, [0]))


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_commits_while_a_group_rebalances(pair: Pair, topic: str, version: int) -> None:
    """A member may commit until all members have joined again, also in the callback for revoked partitions. A member
    that has left may not."""
    pair.create(topic)
    group = f"{topic}-group"
    other = pair.another()
    first = enter(pair, group, "first")
    settle(pair, group, first)
    second = other.ask(ApiKey.JOIN_GROUP, 9, **joining(group)).learn("second", lambda answer: answer["member_id"])

    def commits() -> None:
        for generation in (-1, 0, 1, 2, 3):
            for member in (first, second):
                mine: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation}
                commit(pair, version, group, topic, (0, generation + 10), **mine)
        fetch(pair, 9, group, (topic, [0]))

    commits()  # the second member has an id and has not joined yet
    other.send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=second))
    eventually(lambda: _is(pair, group, "PreparingRebalance"))
    commits()
    join(pair, 9, group, member_id=first)
    other.receive(ApiKey.JOIN_GROUP, 9).check("the second joins")
    commits()  # the leader has not sent the assignment yet
    settle(pair, group, first, generation=2)
    sync(other, 5, group, member_id=second, generation_id=2)
    commits()
    pair.same(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": second}])
    commits()
    other.close()


def _is(pair: Pair, group: str, state: str) -> None:
    for answer in pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group]).both:
        assert answer["groups"][0]["group_state"] == state


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_fetched_offsets(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=2)
    group = f"{topic}-group"
    commit(pair, 9, group, topic, (0, 5))
    fetch(pair, version, group, (topic, [0, 1, 7, -1]))
    fetch(pair, version, group, (topic, []))
    fetch(pair, version, group, ("nowhere", [0]), topic_id=UNKNOWN_ID)
    fetch(pair, version, group)
    fetch(pair, version, "no-such-group", (topic, [0]))
    fetch(pair, version, "", (topic, [0]))
    if version >= 2:
        fetch(pair, version, group, None)
        fetch(pair, version, "no-such-group", None)
    if version >= 9:
        fetch(pair, version, group, (topic, [0]), member_id="stranger", member_epoch=4)
        fetch(pair, version, "no-such-group", (topic, [0]), member_id="stranger", member_epoch=4)
    if version >= 8:
        wanted = {"topics": None, "member_id": None, "member_epoch": -1}
        groups = [{"group_id": name, **wanted} for name in (group, "no-such-group", "", group)]
        pair.same(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=True)
        pair.same(ApiKey.OFFSET_FETCH, version, groups=[], require_stable=True)


def test_offset_delete(pair: Pair, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        pair.create(name, partitions=2)
    group = f"{topic}-group"

    def delete(of: str, *wanted: tuple[str, list[int]]) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": one} for one in found]} for name, found in wanted]
        pair.same(ApiKey.OFFSET_DELETE, 0, group_id=of, topics=topics)

    commit(pair, 9, group, topic, (0, 5), (1, 6))
    delete(group, (topic, [0, 7]), ("nowhere", [0]))
    fetch(pair, 9, group, None)
    delete(group, (topic, [0]))
    delete("no-such-group", (topic, [0]))
    delete("", (topic, [0]))
    delete(group)
    subscribed = [{"name": "range", "metadata": _subscription(topic)}]
    member = enter(pair, group, protocols=subscribed)
    settle(pair, group, member)
    commit(pair, 9, group, other, (0, 5), member_id=member, generation_id_or_member_epoch=1)
    delete(group, (topic, [1]), (other, [0]))
    fetch(pair, 9, group, None)
    other_name = f"{topic}-unchosen"
    for metadata in (b"", _subscription(topic)):
        two = [{"name": "range", "metadata": _subscription(other)}, {"name": "unchosen", "metadata": metadata}]
        member = enter(pair, other_name, protocols=two)
        settle(pair, other_name, member)
        commit(pair, 9, other_name, topic, (0, 5), member_id=member, generation_id_or_member_epoch=1)
        delete(other_name, (topic, [0]), (other, [0]))
        pair.same(ApiKey.LEAVE_GROUP, 5, group_id=other_name, members=[{"member_id": member}])
        pair.same(ApiKey.DELETE_GROUPS, 2, groups_names=[other_name])
    strange = f"{topic}-strange"
    member = enter(pair, strange, protocol_type="connect", protocols=[{"name": "x", "metadata": b""}])
    delete(strange, (topic, [0]))


def _subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff" + b"\0\0\0\0"


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe_groups(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    empty, joining, stable = (f"{topic}-{name}" for name in ("empty", "joining", "stable"))
    commit(pair, 9, empty, topic, (0, 5))
    enter(pair, joining, "joining")
    member = enter(pair, stable, "stable", group_instance_id="i")
    settle(pair, stable, member)
    for operations in (False, True):
        for groups in ([empty], [joining], [stable], ["no-such-group"], [""], [empty, stable, "none", empty], []):
            pair.same(ApiKey.DESCRIBE_GROUPS, version, groups=groups, include_authorized_operations=operations)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list_groups(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    commit(pair, 9, f"{topic}-empty", topic, (0, 5))
    member = enter(pair, f"{topic}-stable")
    settle(pair, f"{topic}-stable", member)
    enter(pair, f"{topic}-joining", "joining", protocol_type="connect", protocols=[{"name": "x", "metadata": b""}])
    for states in ([], ["Stable"], ["stable"], ["Empty", "CompletingRebalance"], ["Nonsense"], [""]):
        for types in ([], ["classic"], ["Classic"], ["consumer"], ["nonsense"]):
            answers = pair.ask(ApiKey.LIST_GROUPS, version, states_filter=states, types_filter=types)
            for answer in answers.both:
                answer["groups"] = [one for one in answer["groups"] if one["group_id"].startswith(topic)]
                answer["groups"].sort(key=lambda one: str(one["group_id"]))
            answers.check(f"ListGroups v{version} {states} {types}")


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    empty, stable = f"{topic}-empty", f"{topic}-stable"
    commit(pair, 9, empty, topic, (0, 5))
    member = enter(pair, stable)
    settle(pair, stable, member)
    pending = f"{topic}-pending"
    join(pair, 9, pending)
    for groups in ([stable], ["no-such-group"], [""], [empty, stable, "none"], [empty], [pending], []):
        pair.same(ApiKey.DELETE_GROUPS, version, groups_names=groups)
    commit(pair, 9, empty, topic, (0, 5))
    pair.same(ApiKey.DELETE_GROUPS, version, groups_names=[empty, empty])
    fetch(pair, 9, empty, None)
