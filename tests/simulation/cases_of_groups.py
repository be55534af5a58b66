"""The cases of ``served_apis`` that are about groups."""

from __future__ import annotations

from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.simulation.served_apis import (
    MISSING,
    TOPIC,
    Asker,
    Case,
    Fields,
    joining,
    missing_topic,
    named,
    syncing,
)

STRANGER: Final = ErrorCode.UNKNOWN_MEMBER_ID


def committing(t: Asker, group: str, topic: str) -> Fields:
    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": "m"}
    return {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "retention_time_ms": -1, "topics": named(t, topic, [part]),
    }  # fmt: skip


async def offset_commit(t: Asker, v: int) -> None:
    group = t.name("commits", v)
    await t.well(ApiKey.OFFSET_COMMIT, v, **committing(t, group, TOPIC))
    await t.refused(ApiKey.OFFSET_COMMIT, v, missing_topic(v, 10), **committing(t, group, MISSING))
    stranger = committing(t, group, TOPIC) | {"generation_id_or_member_epoch": 3, "member_id": "stranger"}
    await t.refused(ApiKey.OFFSET_COMMIT, v, STRANGER, **stranger)


async def offset_fetch(t: Asker, v: int) -> None:
    group = t.name("fetches", v)
    await t.well(ApiKey.OFFSET_COMMIT, 9, **committing(t, group, TOPIC))

    def asked(group_id: str, topics: list[Fields] | None) -> Fields:
        if v >= 8:
            return {"groups": [{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}]}
        for topic in topics or ():
            topic.pop("topic_id", None)
        return {"group_id": group_id, "topics": topics}

    some = named(t, TOPIC, [0, 7], "partition_indexes")
    for name in (group, "unknown-group"):
        await t.well(ApiKey.OFFSET_FETCH, v, **asked(name, some))
        if v >= 2:
            await t.well(ApiKey.OFFSET_FETCH, v, **asked(name, None))
    if v >= 9:
        stranger: Any = asked(group, some)
        stranger["groups"][0] |= {"member_id": "stranger", "member_epoch": 3}
        await t.ask(ApiKey.OFFSET_FETCH, v, **stranger)
    await t.ask(ApiKey.OFFSET_FETCH, v, **asked(group, named(t, MISSING, [0], "partition_indexes")))


async def find_coordinator(t: Asker, v: int) -> None:
    await t.well(ApiKey.FIND_COORDINATOR, v, key="g", key_type=0, coordinator_keys=["g", "h"])
    if v:
        wrong: Fields = {"key": "g", "key_type": 9, "coordinator_keys": ["g"]}
        await t.refused(ApiKey.FIND_COORDINATOR, v, ErrorCode.INVALID_REQUEST, **wrong)
        await t.ask(ApiKey.FIND_COORDINATOR, v, key="x", key_type=1, coordinator_keys=["x"])


async def join_group(t: Asker, v: int) -> None:
    await t.join(t.name("joins", v), v)
    stranger = joining(t.name("unjoined", v)) | {"member_id": "stranger"}
    await t.refused(ApiKey.JOIN_GROUP, v, STRANGER, **stranger)


async def sync_group(t: Asker, v: int) -> None:
    group = t.name("syncs", v)
    member = await t.join(group, 9)
    await t.well(ApiKey.SYNC_GROUP, v, **syncing(group, member))
    await t.refused(ApiKey.SYNC_GROUP, v, STRANGER, **syncing(group, "stranger"))


async def heartbeat(t: Asker, v: int) -> None:
    group = t.name("beats", v)
    asked: Fields = {"group_id": group, "generation_id": 1, "member_id": await t.joined(group)}
    await t.well(ApiKey.HEARTBEAT, v, **asked)
    await t.refused(ApiKey.HEARTBEAT, v, STRANGER, **asked | {"member_id": "stranger"})


async def leave_group(t: Asker, v: int) -> None:
    group = t.name("leaves", v)
    member = await t.joined(group)
    for error, name in ((ErrorCode.NONE, member), (STRANGER, "stranger")):
        one = {"member_id": name, "group_instance_id": None}
        await t.refused(ApiKey.LEAVE_GROUP, v, error, group_id=group, member_id=name, members=[one])


async def describe_groups(t: Asker, v: int) -> None:
    group = t.name("described", v)
    await t.joined(group)
    await t.well(ApiKey.DESCRIBE_GROUPS, v, groups=[group], include_authorized_operations=True)
    error = ErrorCode.GROUP_ID_NOT_FOUND if v >= 6 else ErrorCode.NONE
    await t.refused(ApiKey.DESCRIBE_GROUPS, v, error, groups=["unknown-group"])


async def list_groups(t: Asker, v: int) -> None:
    await t.joined(t.name("listed", v))
    await t.well(ApiKey.LIST_GROUPS, v)
    await t.well(ApiKey.LIST_GROUPS, v, states_filter=["Stable", "nonsense"], types_filter=["classic"])


async def delete_groups(t: Asker, v: int) -> None:
    group, live = t.name("ended", v), t.name("live", v)
    await t.well(ApiKey.OFFSET_COMMIT, 9, **committing(t, group, TOPIC))
    await t.joined(live)
    await t.well(ApiKey.DELETE_GROUPS, v, groups_names=[group])
    await t.refused(ApiKey.DELETE_GROUPS, v, ErrorCode.GROUP_ID_NOT_FOUND, groups_names=["unknown-group"])
    await t.refused(ApiKey.DELETE_GROUPS, v, ErrorCode.NON_EMPTY_GROUP, groups_names=[live])


async def offset_delete(t: Asker, v: int) -> None:
    group = t.name("forgets", v)
    await t.well(ApiKey.OFFSET_COMMIT, 9, **committing(t, group, TOPIC))
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    await t.well(ApiKey.OFFSET_DELETE, v, group_id=group, topics=topics)
    unknown = ErrorCode.GROUP_ID_NOT_FOUND
    await t.refused(ApiKey.OFFSET_DELETE, v, unknown, group_id="unknown-group", topics=topics)


GROUPS: Final[dict[ApiKey, Case]] = {
    ApiKey[case.__name__.upper()]: case
    for case in (
        offset_commit, offset_fetch, find_coordinator, join_group, sync_group, heartbeat, leave_group, describe_groups,
        list_groups, delete_groups, offset_delete,
    )
}  # fmt: skip
