"""Steps that write to logs and read from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.batches import THEN
from tests.oracle.differential.sequences.script import Batch, Step
from tests.oracle.differential.sequences.world import Producer, Session, World

MIB: Final = 1 << 20
WRONG: Final[Sequence[dict[str, Any]]] = (
    {"cut": 1}, {"cut": 30}, {"changed": (("crc", 1),)}, {"changed": (("length", 13),)}, {"changed": (("magic", 1),)},
    {"changed": (("magic", 3),)}, {"changed": (("base_offset", 5),)}, {"changed": (("count", 3),)},
    {"changed": (("count", 9), ("last_offset_delta", 8))}, {"changed": (("last_offset_delta", 5),)},
    {"changed": (("attributes", 0x20),)}, {"changed": (("attributes", 0x40),)}, {"changed": (("leader_epoch", 9),)},
    {"body": b""}, {"body": b"\0" * 20}, {"size": 1_100_000}, {"changed": (("producer_epoch", 4),)},
    {"changed": (("base_sequence", 3),)}, {"changed": (("attributes", 0x10),)}, {"changed": (("count", 0),)},
)  # fmt: skip


def init_producer(world: World) -> Step:
    name = world.name("producer")
    world.producers.append(Producer(name))
    known = world.of((-1, -1), (-1, -1), (-1, -1), (5, 3), (-1, 2))
    return world.step(
        ApiKey.INIT_PRODUCER_ID,
        world.version(ApiKey.INIT_PRODUCER_ID),
        learns=name.of,
        transactional_id=None,
        transaction_timeout_ms=60_000,
        producer_id=known[0],
        producer_epoch=known[1],
    )


def produce(world: World) -> Step:
    topics = []
    for name in sorted({world.topic(0.04) for _ in range(world.of(1, 1, 1, 2))}):
        indexes = world.partitions(name, world.of(1, 1, 2))
        data = [{"index": index, "records": _batch(world, name, index)} for index in indexes]
        topics.append({"name": name, "topic_id": world.topic_id(name), "partition_data": data})
    return world.step(
        ApiKey.PRODUCE,
        world.version(ApiKey.PRODUCE),
        transactional_id=None,
        acks=world.of(-1, -1, -1, 1, 1, 0, 2) if world.chance(0.5) else -1,
        timeout_ms=10_000,
        topic_data=topics,
    )


def _batch(world: World, topic: str, index: int) -> Batch:
    count = world.upto(4, 1)
    shape: dict[str, Any] = {"count": count, "codec": world.of(0, 0, 0, 1, 2, 3, 4)}
    shape["timestamp"] = THEN + world.of(0, 0, 50, 100, -7, 5000)
    if world.chance(0.3):
        shape["deltas"] = tuple(world.of(0, 20, 10, -5, 300) for _ in range(count))
    if world.chance(0.1):
        shape["timestamp"] = world.of(-1, 0, -50, THEN * 2)
    if world.chance(0.2):
        shape |= world.of({"key": None}, {"size": -1}, {"size": 0}, {"size": 3000}, {"headers": (("h", None),)})
    if world.chance(0.05):
        shape["append_time"] = True
    if world.chance(0.35) and world.producers:
        shape |= _sequence(world, topic, index, count)
    if world.chance(0.08):
        for wrong in (world.one(WRONG) for _ in range(world.of(1, 1, 2))):
            shape |= wrong | {"changed": shape.get("changed", ()) + wrong.get("changed", ())}
    return Batch(**shape)


def _sequence(world: World, topic: str, index: int, count: int) -> dict[str, Any]:
    producer = world.one(world.producers)
    due = producer.next.get((topic, index), 0)
    kind = world.of("next", "next", "next", "next", "again", "gap", "epoch", "old epoch", "wrap")
    if kind == "epoch":
        producer.epoch, due = producer.epoch + 1, 0
    epoch = producer.epoch - 1 if kind == "old epoch" else producer.epoch
    sequence = {"again": due - count, "gap": due + world.of(1, 5), "wrap": 2**31 - 2}.get(kind, due)
    if kind in ("next", "epoch"):
        producer.next[topic, index] = due + count
    return {"producer": producer.name, "epoch": epoch, "sequence": sequence}


def borrowed_producer(world: World) -> Step:
    """A producer with an id that no side has assigned."""
    world.producers.append(Producer(world.of(1_000_001, 1_000_002)))
    return produce(world)


def fetch(world: World) -> Step:
    version = world.version(ApiKey.FETCH)
    asked = world.of((0, -1), (0, -1), (0, -1), (0, -1), (12_345, 1), (0, 1))
    return _fetch(world, version, asked, [_wanted(world, name) for name in _topics(world)])


def _fetch(world: World, version: int, session: tuple[Any, int], topics: Sequence[Any], **more: Any) -> Step:
    fields: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": world.of(0, 0, 10),
        "min_bytes": world.of(0, 1, 1, 100),
        "max_bytes": world.of(50 * MIB, 50 * MIB, 50 * MIB, 0, 1, 100, 300),
        "isolation_level": world.upto(1),
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics,
    }
    learns = more.pop("learns", "")
    return world.step(ApiKey.FETCH, version, learns=learns, **fields, **more)


def _topics(world: World) -> list[str]:
    return sorted({world.topic() for _ in range(world.of(1, 1, 2))})


def _wanted(world: World, name: str) -> dict[str, Any]:
    return {
        "topic": name,
        "topic_id": world.topic_id(name),
        "partitions": [_part(world, index) for index in world.partitions(name)],
    }


def _part(world: World, index: int) -> dict[str, Any]:
    return {
        "partition": index,
        "fetch_offset": world.of(0, 0, 0, 1, 2, 3, 5, 9, -1, 1000),
        "partition_max_bytes": world.of(MIB, MIB, MIB, 0, 1, 80, 200),
        "current_leader_epoch": world.epoch(),
        "last_fetched_epoch": world.of(-1, -1, -1, -1, -1, 0, 3),
        "log_start_offset": -1,
    }


def new_session(world: World) -> Step:
    version = world.version(ApiKey.FETCH, since=7)
    name = world.name("session")
    world.sessions.append(Session(name, version))
    topics = [_wanted(world, topic) for topic in _topics(world)]
    return _fetch(world, version, (0, 0), topics, learns=name.of)


def in_session(world: World) -> Step:
    if not world.sessions:
        return new_session(world)
    session = world.one(world.sessions[-2:])
    epoch = session.epoch if world.chance(0.92) else world.of(0, -1, session.epoch + 1, session.epoch - 1)
    if epoch == session.epoch:
        session.epoch += 1
    topics = [_wanted(world, name) for name in _topics(world)] if world.chance(0.35) else []
    gone: list[dict[str, Any]] = []
    if world.chance(0.15):
        name = world.topic()
        gone.append({"topic": name, "topic_id": world.topic_id(name), "partitions": world.partitions(name)})
    version = session.version if world.chance(0.95) else world.version(ApiKey.FETCH, since=7)
    return _fetch(world, version, (session.name, epoch), topics, forgotten_topics_data=gone)


def list_offsets(world: World) -> Step:
    topics = []
    for name in _topics(world):
        topic = world.topics.get(name)
        special = (-1, -2, -4, -5, -6) if topic is None or topic.append_time else (-1, -2, -3, -4, -5, -6, -7)
        parts = []
        for index in world.partitions(name):
            stamp = world.one(special) if world.chance(0.6) else THEN + world.of(-THEN, -7, 0, 1, 10, 51, 300, 5001)
            parts.append({"partition_index": index, "current_leader_epoch": world.epoch(), "timestamp": stamp})
        topics.append({"name": name, "partitions": parts})
    return world.step(
        ApiKey.LIST_OFFSETS,
        world.version(ApiKey.LIST_OFFSETS),
        replica_id=world.of(-1, -1, -1, -2),
        isolation_level=world.upto(1),
        topics=topics,
        timeout_ms=5000,
    )


def leader_epoch(world: World) -> Step:
    topics = []
    for name in _topics(world):
        parts = [
            {"partition": index, "current_leader_epoch": world.epoch(), "leader_epoch": world.of(0, 0, 1, -1, 7)}
            for index in world.partitions(name)
        ]
        topics.append({"topic": name, "partitions": parts})
    return world.step(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        world.version(ApiKey.OFFSET_FOR_LEADER_EPOCH),
        replica_id=world.of(-1, -2),
        topics=topics,
    )


def delete_records(world: World) -> Step:
    topics = []
    for name in _topics(world):
        parts = [
            {"partition_index": index, "offset": world.of(0, 1, 2, 4, -1, -2, 99)} for index in world.partitions(name)
        ]
        topics.append({"name": name, "partitions": parts})
    return world.step(ApiKey.DELETE_RECORDS, world.version(ApiKey.DELETE_RECORDS), topics=topics, timeout_ms=10_000)


def describe_producers(world: World) -> Step:
    topics = [{"name": name, "partition_indexes": world.partitions(name)} for name in _topics(world)]
    return world.step(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)


def describe_log_dirs(world: World) -> Step:
    topics = [{"topic": name, "partitions": world.partitions(name)} for name in _topics(world)]
    return world.step(ApiKey.DESCRIBE_LOG_DIRS, world.version(ApiKey.DESCRIBE_LOG_DIRS), topics=topics)


def looks(world: World) -> list[Step]:
    """Fetch all partitions at the end of the script."""
    found = []
    for name, topic in sorted(world.topics.items()):
        everything = [
            {
                "partition": index,
                "fetch_offset": 0,
                "partition_max_bytes": MIB,
                "current_leader_epoch": -1,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
            }
            for index in range(topic.partitions)
        ]
        offsets = [
            {"partition_index": index, "current_leader_epoch": -1, "timestamp": at}
            for index in range(topic.partitions)
            for at in (-2,)
        ]
        found += [
            world.step(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": name, "partitions": offsets}]),
            world.step(
                ApiKey.FETCH,
                11,
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=50 * MIB,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[{"topic": name, "partitions": everything}],
            ),
            world.step(
                ApiKey.DESCRIBE_PRODUCERS,
                0,
                topics=[{"name": name, "partition_indexes": list(range(topic.partitions))}],
            ),
        ]
    return found


STEPS: Final[Sequence[tuple[int, Callable[[World], Step]]]] = (
    (3, init_producer), (30, produce), (1, borrowed_producer), (10, fetch), (4, new_session), (12, in_session),
    (8, list_offsets), (3, leader_epoch), (4, delete_records), (3, describe_producers), (2, describe_log_dirs),
)  # fmt: skip
"""The steps with their relative frequencies."""
