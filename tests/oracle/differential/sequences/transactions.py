"""Steps of transactional producers, and steps that describe transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.types import ZERO_UUID
from tests.oracle.differential.batches import THEN
from tests.oracle.differential.sequences import logs
from tests.oracle.differential.sequences.groups import fetch_offsets, group_of, member_of
from tests.oracle.differential.sequences.script import TAG, Batch, Epoch, Step
from tests.oracle.differential.sequences.world import Transaction, World
from tests.oracle.differential.sides import Name

IDS: Final = (f"{TAG}-x", f"{TAG}-y")
NEVER: Final = f"{TAG}-z"
"""A transactional id without a producer."""
MINUTE_MS: Final = 60_000
IMPLICIT: Final = 12
"""The first version of Produce that adds the partition to the transaction."""
STATES: Final = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "PrepareCommit", "Dead", "none", "")


def _transaction(world: World) -> Transaction:
    """Return a transactional id that probably has a producer."""
    if not world.transactions:
        return Transaction(NEVER, Name("producer 0"))
    return world.transactions[world.one(sorted(world.transactions))]


def _identity(world: World, of: Transaction) -> dict[str, Any]:
    """Return the fields of the producer, of which one is wrong now and then."""
    fields: dict[str, Any] = {
        "transactional_id": of.transactional_id,
        "producer_id": of.producer,
        "producer_epoch": Epoch(of.producer.of),
    }
    if world.chance(0.12):
        fields |= world.of(
            {"producer_epoch": Epoch(of.producer.of, -1)}, {"producer_epoch": Epoch(of.producer.of, 1)},
            {"producer_epoch": -1}, {"producer_id": 7_000_001}, {"producer_id": -1},
            {"transactional_id": NEVER}, {"transactional_id": ""}, {"transactional_id": world.one(IDS)},
        )  # fmt: skip
    return fields


def init(world: World) -> Step:
    transactional_id = world.of(*IDS, *IDS, *IDS, "")
    known = world.transactions.get(transactional_id)
    version = world.version(ApiKey.INIT_PRODUCER_ID)
    current: tuple[Any, Any] = (-1, -1)
    if known and world.chance(0.4):
        current = (known.producer, Epoch(known.producer.of, world.of(0, 0, 0, -1, 1)))
    elif world.chance(0.1):
        current = world.of((7_000_001, 3), (-1, 2), (7_000_001, -1))
    name = known.producer if known else world.name("producer")
    if transactional_id and not known:
        world.transactions[transactional_id] = Transaction(transactional_id, name)
    elif known:
        known.next.clear()
    return world.step(
        ApiKey.INIT_PRODUCER_ID,
        version,
        learns=name.of if transactional_id else "",
        transactional_id=transactional_id,
        transaction_timeout_ms=world.of(MINUTE_MS, MINUTE_MS, MINUTE_MS, MINUTE_MS, 900_000, 900_001, 0, -1),
        producer_id=current[0],
        producer_epoch=current[1],
    )


def _topics(world: World) -> list[dict[str, Any]]:
    names = sorted({world.topic(0.04) for _ in range(world.of(1, 1, 2))})
    return [{"name": name, "partitions": world.partitions(name, world.of(1, 1, 2))} for name in names]


def add_partitions(world: World) -> Step:
    version = world.version(ApiKey.ADD_PARTITIONS_TO_TXN)
    if version <= 3:
        identity = {f"v3_and_below_{key}": value for key, value in _identity(world, _transaction(world)).items()}
        return world.step(ApiKey.ADD_PARTITIONS_TO_TXN, version, **identity, v3_and_below_topics=_topics(world))
    asked = [
        {**_identity(world, _transaction(world)), "verify_only": world.chance(0.4), "topics": _topics(world)}
        for _ in range(world.of(1, 1, 2))
    ]
    by_id = {one["transactional_id"]: one for one in asked}
    return world.step(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=list(by_id.values()))


def add_offsets(world: World) -> Step:
    identity = _identity(world, _transaction(world))
    version = world.version(ApiKey.ADD_OFFSETS_TO_TXN)
    return world.step(ApiKey.ADD_OFFSETS_TO_TXN, version, **identity, group_id=group_of(world))


def produce(world: World) -> Step:
    of = _transaction(world)
    identity = _identity(world, of)
    name = world.topic(0.04)
    data = [
        {"index": index, "records": _batch(world, of, identity, name, index)}
        for index in world.partitions(name, world.of(1, 1, 2))
    ]
    return world.step(
        ApiKey.PRODUCE,
        world.version(ApiKey.PRODUCE),
        transactional_id=identity["transactional_id"] if world.chance(0.95) else None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{"name": name, "topic_id": world.topic_id(name), "partition_data": data}],
    )


def _batch(world: World, of: Transaction, identity: dict[str, Any], topic: str, index: int) -> Batch:
    count = world.upto(3, 1)
    due = of.next.get((topic, index), 0)
    kind = world.of("next", "next", "next", "next", "next", "next", "again", "gap")
    sequence = {"again": max(due - count, 0), "gap": due + 2}.get(kind, due)
    if kind == "next":
        of.next[topic, index] = due + count
    return Batch(
        count=count,
        timestamp=THEN,
        producer=of.producer if identity["producer_id"] == -1 else identity["producer_id"],
        epoch=identity["producer_epoch"],
        sequence=sequence,
        transactional=world.chance(0.95),
    )


def commit_offsets(world: World) -> Step:
    version = world.version(ApiKey.TXN_OFFSET_COMMIT)
    group = group_of(world)
    topics = []
    for name in sorted({world.topic(0.04) for _ in range(world.of(1, 1, 2))}):
        parts = [
            {
                "partition_index": index,
                "committed_offset": world.of(0, 1, 5, 7, -1),
                "committed_leader_epoch": world.of(-1, 0),
                "committed_metadata": world.of("m", "", None),
            }
            for index in world.partitions(name)
        ]
        topics.append({"name": name, "topic_id": world.topic_id(name), "partitions": parts})
    member = world.of({}, {}, {}, {"generation_id": 3, "member_id": "stranger"}, member_of(world, group))
    return world.step(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        **_identity(world, _transaction(world)),
        group_id=group,
        **(member if version >= 3 else {}),
        topics=topics,
    )


def end(world: World) -> Step:
    of = _transaction(world)
    version = world.version(ApiKey.END_TXN)
    if version >= 5:
        of.next.clear()
    learns = of.producer.of if version >= 5 else ""
    return world.step(ApiKey.END_TXN, version, learns=learns, **_identity(world, of), committed=world.chance(0.6))


def whole(world: World) -> list[Step]:
    """A transaction of a client: it begins, writes to a partition or two, and ends."""
    steps = [init(world)] if not world.transactions else []
    steps += [produce(world) for _ in range(world.of(1, 1, 2))]
    return [*steps, end(world)]


def write_markers(world: World) -> Step:
    of = _transaction(world)
    marker = {
        "producer_id": of.producer,
        "producer_epoch": Epoch(of.producer.of, world.of(0, 0, 0, 1, -1)),
        "transaction_result": world.chance(0.5),
        # Kafka fails for names that no topic may have.
        "topics": [
            {"name": one["name"], "partition_indexes": one["partitions"]}
            for one in _topics(world)
            if one["name"].startswith(TAG)
        ],
        "coordinator_epoch": world.of(0, 0, 0, 1, -1, 5),
        "transaction_version": world.of(0, 1, 2),
    }  # fmt: skip
    return world.step(ApiKey.WRITE_TXN_MARKERS, world.version(ApiKey.WRITE_TXN_MARKERS), markers=[marker])


def describe(world: World) -> Step:
    names = sorted({world.of(*IDS, *IDS, NEVER, "") for _ in range(world.of(1, 2, 3))})
    return world.step(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)


def listed(world: World) -> Step:
    version = world.version(ApiKey.LIST_TRANSACTIONS)
    fields: dict[str, Any] = {
        "state_filters": sorted({world.one(STATES) for _ in range(world.of(0, 0, 1, 2))}),
        "producer_id_filters": [world.of(_transaction(world).producer, 7_000_001) for _ in range(world.of(0, 0, 1))],
    }
    if version >= 1:
        fields["duration_filter"] = world.of(-1, -1, 0, 3_600_000, -5)
    if version >= 2:
        fields["transactional_id_pattern"] = world.of(None, None, f"{TAG}-x", f"{TAG}-.*", "[", "x", "")
    return world.step(ApiKey.LIST_TRANSACTIONS, version, **fields)


def find(world: World) -> Step:
    version = world.version(ApiKey.FIND_COORDINATOR, since=1)
    key = world.of(*IDS, NEVER, "")
    wanted = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    return world.step(ApiKey.FIND_COORDINATOR, version, key_type=1, **wanted)


def looks(world: World) -> list[Step]:
    """Describe both transactional ids at the end, and fetch what is committed."""
    found = [world.step(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=list(IDS))]
    for name, topic in sorted(world.topics.items()):
        parts = [
            {
                "partition": index,
                "fetch_offset": 0,
                "partition_max_bytes": logs.MIB,
                "current_leader_epoch": -1,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
            }
            for index in range(topic.partitions)
        ]
        found.append(
            world.step(
                ApiKey.FETCH,
                11,
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=50 * logs.MIB,
                isolation_level=1,
                session_id=0,
                session_epoch=-1,
                topics=[{"topic": name, "topic_id": ZERO_UUID, "partitions": parts}],
            )
        )
    return found


STEPS: Final[Sequence[tuple[int, Callable[[World], Step | list[Step]]]]] = (
    (8, init), (8, add_partitions), (4, add_offsets), (14, produce), (8, commit_offsets), (10, end), (14, whole),
    (3, write_markers), (4, describe), (3, listed), (1, find), (5, logs.fetch), (5, logs.list_offsets),
    (2, logs.describe_producers), (4, fetch_offsets),
)  # fmt: skip
