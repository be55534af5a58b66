"""Steps that create, change and describe topics, and that describe the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.types import ZERO_UUID
from tests.oracle.differential.sequences.script import TAG, Step
from tests.oracle.differential.sequences.world import UNKNOWN_ID, Topic, World

NAMES: Final = (f"{TAG}-a", f"{TAG}-b", f"{TAG}-c")
CONFIGS: Final[Sequence[tuple[str, str]]] = (
    ("cleanup.policy", "compact"), ("cleanup.policy", "compact,delete"), ("compression.type", "gzip"),
    ("compression.type", "lz4"), ("compression.type", "uncompressed"), ("compression.type", "zstd"),
    ("compression.type", "snappy"), ("max.message.bytes", "150"), ("min.insync.replicas", "2"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.before.max.ms", "3600000"),
    ("message.timestamp.after.max.ms", "3600000"), ("segment.bytes", "1048576"), ("index.interval.bytes", "0"),
    ("flush.messages", "1"), ("leader.replication.throttled.replicas", "0:1"), ("retention.ms", "-1"),
    ("cleanup.policy", "never"), ("segment.bytes", "x"), ("no.such.key", "1"),
    ("unclean.leader.election.enable", "true"),
)  # fmt: skip
ODD: Final[Sequence[tuple[str, str | None]]] = (
    ("max.message.bytes", None), ("max.message.bytes", "200"), ("max.message.bytes", "+300"), ("retention.ms", "1_0"),
    ("min.cleanable.dirty.ratio", "1f"), ("min.cleanable.dirty.ratio", "0x1p-1"), ("min.cleanable.dirty.ratio", "NaN"),
    ("retention.ms", "\u0661"), ("preallocate", "False "), ("cleanup.policy", " compact , delete"),
)  # fmt: skip
"""Values that only Java reads like this, and null."""


def create(world: World, *, surely: bool = False) -> Step:
    """Create one topic or two. ``surely``: with valid fields, so that a topic exists afterwards."""
    topics = []
    only_valid = world.chance(0.1) and not surely
    for name in sorted({world.one(NAMES) for _ in range(world.of(1, 1, 1, 2))}):
        configs = dict(world.one(CONFIGS[:-4] if surely else CONFIGS) for _ in range(world.of(0, 0, 1, 1, 2)))
        count = world.upto(3, 1) if surely or world.chance(0.9) else world.of(0, -1, -2)
        asked: dict[str, Any] = {"name": name, "num_partitions": count, "replication_factor": 1}
        if world.chance(0.15) and not surely:
            plans: list[list[list[int]]] = [[[1]], [[1], [1]], [[9]], [[1, 1]], [[]]]
            plan = world.one(plans)
            assigned = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(plan)]
            asked |= {"num_partitions": -1, "replication_factor": -1, "assignments": assigned}
            count = len(plan)
        elif not surely and world.chance(0.1):
            asked["replication_factor"] = world.of(-1, 0, 2)
        odd = [] if surely or world.chance(0.8) else [world.one(ODD) for _ in range(world.of(1, 2))]
        asked["configs"] = [{"name": key, "value": value} for key, value in (*configs.items(), *odd)]
        if world.chance(0.03) and not surely:
            asked["name"] = world.of("a b", "", f"{TAG}-a", "__cluster_metadata")
        topics.append(asked)
        if not only_valid and name not in world.topics and count:
            timed = configs.get("message.timestamp.type") == "LogAppendTime"
            world.topics[name] = Topic(name, max(count, 2 if count == -1 else 1), timed)
    return world.step(
        ApiKey.CREATE_TOPICS,
        world.version(ApiKey.CREATE_TOPICS),
        topics=topics,
        timeout_ms=10_000,
        validate_only=only_valid,
    )


def delete(world: World) -> Step:
    version = world.version(ApiKey.DELETE_TOPICS)
    names = sorted({world.topic(0.2) for _ in range(world.of(1, 1, 2))})
    fields: dict[str, Any] = {"topic_names": names}
    if version >= 6:
        fields = {"topics": [_either(world, name) for name in names]}
    for name in names:
        world.topics.pop(name, None)
    return world.step(ApiKey.DELETE_TOPICS, version, timeout_ms=10_000, **fields)


def _either(world: World, name: str) -> dict[str, Any]:
    if world.chance(0.5):
        return {"name": name, "topic_id": ZERO_UUID}
    return {"name": None, "topic_id": world.topic_id(name) if world.chance(0.9) else UNKNOWN_ID}


def create_partitions(world: World) -> Step:
    topics = []
    only_valid = world.chance(0.2)
    for name in sorted({world.topic() for _ in range(world.of(1, 1, 2))}):
        known = world.topics.get(name)
        count = (known.partitions if known else 1) + world.of(1, 1, 1, 2, 0, -1)
        plan = [{"broker_ids": world.of([1], [1], [9], [1, 1])}] if world.chance(0.3) else None
        topics.append({"name": name, "count": count, "assignments": plan})
        if known and not only_valid and count > known.partitions and plan is None:
            known.partitions = count
    return world.step(
        ApiKey.CREATE_PARTITIONS,
        world.version(ApiKey.CREATE_PARTITIONS),
        topics=topics,
        timeout_ms=10_000,
        validate_only=only_valid,
    )


def reassign(world: World) -> Step:
    topics = []
    for name in sorted({world.topic() for _ in range(world.of(1, 1, 2))}):
        parts = [
            {"partition_index": index, "replicas": world.of([1], [1], None, [], [1, 1], [9], [1, 9], [-1])}
            for index in world.partitions(name)
        ]
        topics.append({"name": name, "partitions": parts})
    return world.step(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        world.version(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
        timeout_ms=10_000,
        allow_replication_factor_change=world.chance(0.8),
        topics=topics,
    )


def list_reassignments(world: World) -> Step:
    topics = None
    if world.chance(0.8):
        topics = [{"name": name, "partition_indexes": world.partitions(name)} for name in _some(world)]
    return world.step(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=10_000, topics=topics)


def _some(world: World) -> list[str]:
    return sorted({world.topic() for _ in range(world.of(1, 1, 2))})


def elect(world: World) -> Step:
    topics = [{"topic": name, "partitions": world.partitions(name)} for name in _some(world)]
    return world.step(
        ApiKey.ELECT_LEADERS,
        world.version(ApiKey.ELECT_LEADERS),
        election_type=world.of(0, 0, 1, 5),
        topic_partitions=topics,
        timeout_ms=10_000,
    )


def metadata(world: World) -> Step:
    """Below v4 Metadata creates unknown topics, so these versions only ask for existing ones."""
    version = world.version(ApiKey.METADATA, since=0 if world.topics else 4)
    names = sorted(world.topics) if version < 4 else _some(world)
    topics: list[dict[str, Any]] | None = [{"name": name, "topic_id": None} for name in names]
    if version >= 10 and world.chance(0.4):
        topics = [{"name": None, "topic_id": world.topic_id(name)} for name in names]
    if world.chance(0.1):
        topics = None if version else []
    return world.step(
        ApiKey.METADATA,
        version,
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=world.chance(0.3),
        include_cluster_authorized_operations=world.chance(0.3),
    )


def describe_topic_partitions(world: World) -> Step:
    cursor = None
    if world.chance(0.4):
        name = world.topic(0.2)
        cursor = {"topic_name": name, "partition_index": world.partition(name, 0.2)}
    return world.step(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in sorted({world.topic() or NAMES[0] for _ in range(world.upto(3, 1))})],
        response_partition_limit=world.of(2000, 2000, 1, 2, 3, 0, -1),
        cursor=cursor,
    )


def describe_cluster(world: World) -> Step:
    return world.step(
        ApiKey.DESCRIBE_CLUSTER,
        world.version(ApiKey.DESCRIBE_CLUSTER),
        include_cluster_authorized_operations=world.chance(0.5),
        endpoint_type=world.of(1, 1, 3),
        include_fenced_brokers=world.chance(0.5),
    )


def move_directories(world: World) -> Step:
    topics = [{"name": name, "partitions": world.partitions(name)} for name in _some(world)]
    return world.step(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        world.version(ApiKey.ALTER_REPLICA_LOG_DIRS),
        dirs=[{"path": world.of("/no/such/place", "relative", ""), "topics": topics}],
    )


def update_features(world: World) -> Step:
    """Validate an update of features without applying it."""
    update = world.of(("no.such.feature", 1), ("metadata.version", 7), ("metadata.version", 99), ("", 1))
    return world.step(
        ApiKey.UPDATE_FEATURES,
        world.version(ApiKey.UPDATE_FEATURES, since=1),
        timeout_ms=10_000,
        feature_updates=[
            {"feature": update[0], "max_version_level": update[1], "upgrade_type": world.of(1, 1, 2, 3, 0)}
        ],
        validate_only=True,
    )


def unregister(world: World) -> Step:
    """Unregister a broker that does not exist."""
    return world.step(ApiKey.UNREGISTER_BROKER, 0, broker_id=world.of(9, -1, 2**31 - 1))


def looks(world: World) -> list[Step]:
    """Describe all topics at the end of the script."""
    topics = [{"name": name, "topic_id": None} for name in NAMES]
    return [world.step(ApiKey.METADATA, 12, topics=topics, allow_auto_topic_creation=False)]


STEPS: Final[Sequence[tuple[int, Callable[[World], Step]]]] = (
    (8, create), (6, delete), (6, create_partitions), (6, reassign), (3, list_reassignments), (3, elect),
    (9, metadata), (7, describe_topic_partitions), (1, describe_cluster), (2, move_directories),
    (1, update_features), (1, unregister),
)  # fmt: skip
