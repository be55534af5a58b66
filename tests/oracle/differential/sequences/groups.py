"""Steps of classic groups: members, generations, committed offsets, and requests of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.sequences.script import TAG, Long, Step
from tests.oracle.differential.sequences.world import Member, World
from tests.oracle.differential.sides import Name

GROUPS: Final = (f"{TAG}-g", f"{TAG}-g", f"{TAG}-g", f"{TAG}-h")
ALONE: Final[Sequence[str]] = ("range",)
PROTOCOLS: Final[Sequence[Sequence[str]]] = (ALONE, ALONE, ("range", "sticky"), ("sticky", "range"), ("sticky",), ())
COMMON: Final[Sequence[str]] = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform")
TWICE: Final[Sequence[str]] = ("range", "sticky", "range")
"""Protocols with a duplicate: Kafka never answers a JoinGroup that lists these."""


def group_of(world: World) -> str:
    return world.one(GROUPS) if world.chance(0.98) else world.of("", f"{TAG}-none")


def _subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff" + b"\0\0\0\0"


def _member(world: World, group: str) -> Member | None:
    """Return a member id, mostly one that has joined."""
    of_group = [one for one in world.members if one.group == group]
    joined = world.joined.get(group, [])
    if joined and world.chance(0.85):
        return world.one(joined)
    return world.one(of_group[-3:]) if of_group else None


def _generation(world: World, group: str) -> int:
    """Return the group's probable generation, or one close to it."""
    now = world.generation.get(group, 1)
    return now if world.chance(0.8) else world.of(now - 1, now + 1, 1, -1, 0)


def join(world: World) -> Step:
    group = group_of(world)
    known = _member(world, group)
    member: Member | None = known if known is not None and world.chance(0.7) else None
    world.generation[group] = world.generation.get(group, 0) + (member is not None)
    learns = ""
    if member is None:
        instance = world.of(None, None, None, "i", "j")
        member = Member(world.name("member"), group, world.upto(3), instance)
        world.members.append(member)
        learns = member.name.of
        asked: str | Name = "" if world.chance(0.97) else "stranger"
        if instance and world.chance(0.7):
            world.generation[group] += 1
    else:
        asked, instance = member.name, member.instance if world.chance(0.95) else world.of(None, "i", "z")
    metadata = _subscription(*sorted({world.topic() for _ in range(2)})) if world.chance(0.5) else b"meta"
    names = world.one(PROTOCOLS) if world.chance(0.4) else ALONE if world.chance(0.99) else TWICE
    return world.step(
        ApiKey.JOIN_GROUP,
        world.version(ApiKey.JOIN_GROUP, since=5 if instance else 0),
        client=member.client,
        learns=learns,
        group_id=group,
        session_timeout_ms=world.of(30_000, 30_000, 30_000, 45_000, 30_000, 100),
        rebalance_timeout_ms=60_000,
        member_id=asked,
        group_instance_id=instance,
        protocol_type="consumer" if world.chance(0.96) else world.of("connect", ""),
        protocols=[{"name": name, "metadata": metadata} for name in names],
        reason=None,
    )


def rebalance(world: World) -> list[Step]:
    """A whole rebalance: perhaps with a new member. All others join again, and all send SyncGroup."""
    group = group_of(world)
    joined = world.joined.setdefault(group, [])
    steps = []
    if not joined or world.chance(0.5):
        instance = world.of(None, None, "i", "j")
        member = Member(world.name("member"), group, len(joined) % 4, instance, _preferences(world))
        world.members.append(member)
        steps.append(_joining(world, member, first=True))
        if instance is None:
            steps.append(_joining(world, member))
        steps += [_joining(world, one) for one in joined]
        joined.append(member)
    else:
        steps += [_joining(world, one) for one in joined]
    world.generation[group] = world.generation.get(group, 0) + 1
    share = [{"member_id": one.name, "assignment": b"to %d" % index} for index, one in enumerate(joined)]
    for one in joined if world.chance(0.5) else reversed(joined):
        steps.append(_syncing(world, one, share))
    return steps if world.chance(0.8) else steps[: world.upto(len(steps), 1)]


def _preferences(world: World) -> tuple[str, ...]:
    """Return the protocols of a member in its order: votes are often tied."""
    if world.chance(0.6):
        return tuple(ALONE)
    return tuple(world.dice.sample(COMMON, len(COMMON)))


def _joining(world: World, member: Member, *, first: bool = False) -> Step:
    """``first``: the request whose response has the member's id. From v4 on the member must join again with it."""
    return world.step(
        ApiKey.JOIN_GROUP,
        world.version(ApiKey.JOIN_GROUP, since=5 if member.instance else 4),
        client=member.client,
        learns=member.name.of if first else "",
        group_id=member.group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id="" if first else member.name,
        group_instance_id=member.instance,
        protocol_type="consumer",
        protocols=[{"name": name, "metadata": _subscription(world.topic(0))} for name in member.protocols],
        reason=world.of(None, "because"),
    )


def _syncing(world: World, member: Member, share: Sequence[Any]) -> Step:
    protocol = world.of((None, None), ("consumer", "range"))
    version = world.version(ApiKey.SYNC_GROUP, since=3, until=4 if protocol[0] is None else 5)
    return world.step(
        ApiKey.SYNC_GROUP,
        version,
        client=member.client,
        group_id=member.group,
        generation_id=world.generation[member.group],
        member_id=member.name,
        group_instance_id=member.instance,
        protocol_type=protocol[0],
        protocol_name=protocol[1],
        assignments=share,
    )


def sync(world: World) -> Step:
    group = group_of(world)
    member = _member(world, group)
    everyone = [one.name for one in world.members if one.group == group]
    share = [{"member_id": one, "assignment": b"to %d" % index} for index, one in enumerate(everyone)]
    protocol = world.of((None, None), ("consumer", "range"), ("consumer", "range"), ("consumer", "sticky"))
    return world.step(
        ApiKey.SYNC_GROUP,
        world.version(ApiKey.SYNC_GROUP),
        client=member.client if member else 0,
        group_id=group,
        generation_id=_generation(world, group),
        member_id=member.name if member else "stranger",
        group_instance_id=_instance(world, member),
        protocol_type=protocol[0],
        protocol_name=protocol[1],
        assignments=share if world.chance(0.7) else [],
    )


def _instance(world: World, member: Member | None) -> str | None:
    if member is None or world.chance(0.06):
        return world.of(None, "i", "z")
    return member.instance


def member_of(world: World, group: str) -> dict[str, Any]:
    """Return the fields of TxnOffsetCommit that name a member and its generation."""
    member = _member(world, group)
    if member is None:
        return {}
    fields = {"generation_id": _generation(world, group), "member_id": member.name}
    return {**fields, "group_instance_id": _instance(world, member)}


def heartbeat(world: World) -> Step:
    group = group_of(world)
    member = _member(world, group)
    return world.step(
        ApiKey.HEARTBEAT,
        world.version(ApiKey.HEARTBEAT),
        group_id=group,
        generation_id=_generation(world, group),
        member_id=member.name if member and world.chance(0.95) else "stranger",
        group_instance_id=_instance(world, member),
    )


def leave(world: World) -> Step:
    group = group_of(world)
    version = world.version(ApiKey.LEAVE_GROUP)
    member = _member(world, group)
    name: str | Name = member.name if member and world.chance(0.9) else "stranger"
    if version < 3:
        return world.step(ApiKey.LEAVE_GROUP, version, group_id=group, member_id=name)
    world.joined[group] = [one for one in world.joined.get(group, []) if one is not member]
    going: list[dict[str, Any]] = [{"member_id": name, "group_instance_id": _instance(world, member)}]
    if world.chance(0.2):
        going.append(world.of({"member_id": "", "group_instance_id": "i"}, {"member_id": "x"}, going[0]))
    return world.step(ApiKey.LEAVE_GROUP, version, group_id=group, members=going)


def commit(world: World) -> Step:
    group = group_of(world)
    member = _member(world, group) if world.chance(0.6) else None
    topics = []
    for name in sorted({world.topic() for _ in range(world.of(1, 1, 2))}):
        parts = [
            {
                "partition_index": index,
                "committed_offset": world.of(0, 1, 5, 7, -1),
                "committed_leader_epoch": world.of(-1, 0, 4),
                "committed_metadata": world.of("", "m", "m", None, Long(4097)) if world.chance(0.5) else "m",
            }
            for index in world.partitions(name)
        ]
        topics.append({"name": name, "topic_id": world.topic_id(name), "partitions": parts})
    return world.step(
        ApiKey.OFFSET_COMMIT,
        world.version(ApiKey.OFFSET_COMMIT),
        group_id=group,
        generation_id_or_member_epoch=_generation(world, group) if member else world.of(-1, -1, -1, -1, 3),
        member_id=member.name if member else world.of("", "", "", "stranger"),
        group_instance_id=_instance(world, member) if member else None,
        retention_time_ms=-1,
        topics=topics,
    )


def fetch_offsets(world: World) -> Step:
    version = world.version(ApiKey.OFFSET_FETCH)
    stable = world.chance(0.3)

    def wanted() -> list[dict[str, Any]] | None:
        if version >= 2 and world.chance(0.3):
            return None
        topics = [
            {"name": name, "topic_id": world.topic_id(name), "partition_indexes": world.partitions(name)}
            for name in sorted({world.topic() for _ in range(world.of(1, 1, 2))})
        ]
        if version < 8:
            for topic in topics:
                del topic["topic_id"]
        return topics

    if version < 8:
        topics = wanted()
        return world.step(ApiKey.OFFSET_FETCH, version, group_id=group_of(world), topics=topics, require_stable=stable)
    groups = [
        {
            "group_id": group,
            "topics": wanted(),
            "member_id": world.of(None, None, None, "stranger"),
            "member_epoch": world.of(-1, -1, -1, 3),
        }
        for group in sorted({group_of(world) for _ in range(2)})
    ]
    return world.step(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=stable)


def delete_groups(world: World) -> Step:
    names = [group_of(world) for _ in range(world.of(1, 1, 2))]
    return world.step(ApiKey.DELETE_GROUPS, world.version(ApiKey.DELETE_GROUPS), groups_names=names)


def delete_offsets(world: World) -> Step:
    topics = [
        {"name": name, "partitions": [{"partition_index": index} for index in world.partitions(name)]}
        for name in sorted({world.topic() for _ in range(world.of(1, 1, 2))})
    ]
    return world.step(ApiKey.OFFSET_DELETE, 0, group_id=group_of(world), topics=topics)


def describe(world: World) -> Step:
    return world.step(
        ApiKey.DESCRIBE_GROUPS,
        world.version(ApiKey.DESCRIBE_GROUPS),
        groups=[group_of(world) for _ in range(world.of(1, 1, 2))],
        include_authorized_operations=world.chance(0.3),
    )


def list_groups(world: World) -> Step:
    states = world.of([], [], ["Stable"], ["Empty", "CompletingRebalance"], ["preparingrebalance"], ["Dead"], ["x"])
    return world.step(
        ApiKey.LIST_GROUPS,
        world.version(ApiKey.LIST_GROUPS),
        states_filter=states,
        types_filter=world.of([], [], ["classic"], ["Classic"], ["consumer"]),
    )


def find(world: World) -> Step:
    return world.step(
        ApiKey.FIND_COORDINATOR,
        world.version(ApiKey.FIND_COORDINATOR),
        key=group_of(world),
        key_type=world.of(0, 0, 0, -1, 9),
        coordinator_keys=[group_of(world)],
    )


def looks(world: World) -> list[Step]:
    """Describe the groups at the end of the script."""
    groups = sorted(set(GROUPS))
    return [
        world.step(ApiKey.DESCRIBE_GROUPS, 6, groups=groups),
        world.step(
            ApiKey.OFFSET_FETCH,
            9,
            groups=[{"group_id": group, "topics": None, "member_id": None, "member_epoch": -1} for group in groups],
            require_stable=False,
        ),
    ]


STEPS: Final[Sequence[tuple[int, Callable[[World], Step | list[Step]]]]] = (
    (9, join), (22, rebalance), (6, sync), (9, heartbeat), (7, leave), (16, commit), (7, fetch_offsets),
    (4, delete_groups), (4, delete_offsets), (5, describe), (2, list_groups), (1, find),
)  # fmt: skip
