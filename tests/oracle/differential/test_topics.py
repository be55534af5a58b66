"""Requests and responses of CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.oracle.differential.pair import Answers, Pair, versions
from tests.oracle.differential.sides import Name

UNKNOWN_ID: Final = UUID(int=77)
NO_TOPIC_ID: Final = UUID(int=0)


def wanted(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **fields}


def assigned(name: str, *replicas: Sequence[int], partitions: int = -1, factor: int = -1) -> dict[str, Any]:
    plan = [{"partition_index": index, "broker_ids": brokers} for index, brokers in enumerate(replicas)]
    return wanted(name, partitions, factor, assignments=plan)


def configured(name: str, **configs: str | None) -> dict[str, Any]:
    values = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return wanted(name, configs=values)


def create(pair: Pair, version: int, *topics: Mapping[str, Any], validate_only: bool = False) -> Answers:
    """Send CreateTopics and return both responses, which must be the same but for config keys that one side lacks."""
    answers = pair.ask(ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=10_000, validate_only=validate_only)
    for answer in answers.both:
        for topic in answer["topics"]:
            topic["configs"] = topic.get("configs") and {one["name"]: one for one in topic["configs"]}
    return answers.check(f"CreateTopics v{version} {topics}")


WRONG_NAMES: Final = ("", ".", "..", "a b", "ä", "a/b", "x" * 250, "a\0b", "__cluster_metadata", "a,b", '"a"', "a:b")
NUMBERS: Final[dict[str, Sequence[str]]] = {
    "min_cleanable_dirty_ratio": (
        "1f", "1d", "1D", "1F", "1.", ".5", ".", "1e0", "1e-1f", "1e", "0x1p0", "0x.8p0", "0x1p0f", "0x1.8",
        "0x1p-99999999999", "0x1p99999999999", "NaN", "+NaN", "NaNf", "Infinity", "-0", "+0.5", "0_1", "0,5",
        "\u0661", "\xa00.5", "\x010.5\x02", "0.5 f", "", "0x", "nan", "inf",
    ),
    "retention_ms": (
        "+5", "-0", "+", "0x5", "5L", "5.0", "5e0", "1_0", "\u0661\u0662", "\uff15", "\U0001d7ce", "\xa05", "\x1f5\x00",
        "5 5", "00000000000000000000000000000000000000005", "9223372036854775807", "9223372036854775808",
        "-9223372036854775809",
    ),
    "max_message_bytes": ("2147483647", "2147483648", "+2147483647", "\u0661"),
    "preallocate": ("TRUE", "False", "fal\u017fe", "yes", "1", " true ", "\xa0true", "t"),
    "cleanup_policy": (
        "compact\xa0,delete", "compact \t,\n delete", " compact , delete ", "compact,", ",compact", "\x1fdelete",
    ),
}  # fmt: skip
"""Texts by config key (with ``_`` for ``.``)."""
GOOD_NAMES: Final = ("x" * 249, "A.b_c-1", "...", "_")


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
class TestCreateTopics:
    def test_names(self, pair: Pair, topic: str, version: int) -> None:
        for name in WRONG_NAMES:
            create(pair, version, wanted(name))
        create(pair, version, *[wanted(name) for name in WRONG_NAMES])
        for name in GOOD_NAMES:
            create(pair, version, wanted(name), validate_only=True)
        create(pair, version, wanted("__consumer_offsets"))
        create(pair, version, wanted(f"{topic}.a"))
        create(pair, version, wanted(f"{topic}.a"))
        create(pair, version, wanted(f"{topic}_a"))
        create(pair, version, wanted(f"{topic}_a"), wanted(f"{topic}_b"))
        create(pair, version, wanted(f"{topic}.c"), wanted(f"{topic}_c"))

    def test_counts(self, pair: Pair, topic: str, version: int) -> None:
        for partitions, replicas in (
            (0, 1), (-1, 1), (-2, 1), (1, 0), (1, -1), (1, -2), (1, 2), (1, 32767), (0, 0), (-1, -1), (10_001, 1),
            (0, 2), (5, 1),
        ):  # fmt: skip
            create(pair, version, wanted(topic, partitions, replicas), validate_only=True)
        create(pair, version, wanted(topic, -1, -1))

    def test_assignments(self, pair: Pair, topic: str, version: int) -> None:
        for plan in (
            assigned(topic, [1]),
            assigned(topic, [1], [1], [1]),
            assigned(topic, [1, 1]),
            assigned(topic, []),
            assigned(topic, [1], []),
            assigned(topic, [9]),
            assigned(topic, [1, 9]),
            assigned(topic, [-1]),
            assigned(topic, [1], partitions=1),
            assigned(topic, [1], factor=1),
            assigned(topic, [1], partitions=1, factor=1),
            assigned(topic, [1], [1, 9]),
            wanted(topic, -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
            wanted(topic, -1, -1, assignments=[{"partition_index": -1, "broker_ids": [1]}]),
            wanted(topic, -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1]}] * 2),
        ):
            create(pair, version, plan, validate_only=True)
        create(pair, version, assigned(topic, [1], [1]))

    def test_configs(self, pair: Pair, topic: str, version: int) -> None:
        for one in (
            configured(topic, retention_ms="1"),
            configured(topic, retention_ms="x"),
            configured(topic, retention_ms=""),
            configured(topic, retention_ms=None),
            configured(topic, retention_ms="-2"),
            configured(topic, retention_ms=" 5 "),
            configured(topic, no_such_thing="5"),
            configured(topic, no_such_thing=None),
            configured(topic, cleanup_policy="compact,delete"),
            configured(topic, cleanup_policy="never"),
            configured(topic, cleanup_policy=""),
            configured(topic, cleanup_policy="delete,delete"),
            configured(topic, compression_type="brotli"),
            configured(topic, compression_type="zstd"),
            configured(topic, min_insync_replicas="0"),
            configured(topic, min_insync_replicas="7"),
            configured(topic, segment_bytes="10"),
            configured(topic, segment_bytes="1048576", max_message_bytes="5"),
            configured(topic, segment_bytes="99999999999"),
            configured(topic, preallocate="maybe"),
            configured(topic, preallocate="TRUE"),
            configured(topic, message_timestamp_type="Never"),
            configured(topic, min_cleanable_dirty_ratio="1.5"),
            configured(topic, min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
            configured(topic, log_retention_ms="5"),
            configured(topic, local_retention_ms="100", retention_ms="50"),
            configured(topic, remote_storage_enable="true"),
            configured(topic, follower_replication_throttled_replicas="*"),
            configured(topic, follower_replication_throttled_replicas="x"),
            configured(topic, compression_gzip_level="10"),
            configured(topic, compression_lz4_level="0"),
            configured(topic, unclean_leader_election_enable="true", flush_ms="9"),
            configured(topic, index_interval_bytes="-1"),
            configured(topic, message_format_version="2.8"),
            configured(topic, message_downconversion_enable="true"),
        ):
            create(pair, version, one, validate_only=True)
        values: tuple[tuple[str | None, ...], ...] = (
            ("1", None),
            (None, "1"),
            (None, None),
            ("x", None),
            ("x", "1"),
            ("1", "x"),
        )
        for given in values:
            both = [{"name": "max.message.bytes", "value": value} for value in given]
            create(pair, version, wanted(topic, configs=both), validate_only=True)
        twice = wanted(topic, configs=[{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}])
        create(pair, version, twice)

    def test_numbers_are_read_as_java_reads_them(self, pair: Pair, topic: str, version: int) -> None:
        """The replication factor is checked after the configuration: 0 shows that the value was accepted."""
        for key, texts in NUMBERS.items():
            for text in texts:
                one = configured(topic, **{key: text}) | {"replication_factor": 0}
                create(pair, version, one, validate_only=True)

    def test_several(self, pair: Pair, topic: str, version: int) -> None:
        create(pair, version)
        create(pair, version, wanted(topic), wanted(topic))
        create(pair, version, wanted(topic), wanted(f"{topic}-2", 0), wanted(f"{topic}-2"), wanted(f"{topic}-3"))
        create(pair, version, wanted(topic), wanted("a b"), wanted(f"{topic}-4", 1, 5), wanted(f"{topic}-3"))
        create(pair, version, wanted(topic), validate_only=True)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_delete_topics(pair: Pair, topic: str, version: int) -> None:
    names = [f"{topic}-{index}" for index in range(4)]
    ids = [pair.create(name) for name in names]

    def delete(*wanted: str | Name | UUID) -> None:
        by_id = [{"name": None, "topic_id": one} for one in wanted if not isinstance(one, str)]
        by_name = [{"name": one, "topic_id": NO_TOPIC_ID} for one in wanted if isinstance(one, str)]
        plain = [one for one in wanted if isinstance(one, str)]
        asked: dict[str, Any] = {"topics": by_name + by_id} if version >= 6 else {"topic_names": plain}
        pair.same(ApiKey.DELETE_TOPICS, version, timeout_ms=10_000, **asked)

    delete("nowhere", "", "a b")
    delete(names[0], names[0])
    delete(names[0], "nowhere")
    delete(names[0])
    delete()
    if version < 6:
        return
    delete(ids[1])
    delete(ids[1])
    delete(UNKNOWN_ID)
    delete(NO_TOPIC_ID)
    delete(ids[2], names[2])
    delete(ids[2], ids[2])
    delete(ids[2], names[3])
    pair.same(ApiKey.DELETE_TOPICS, 6, timeout_ms=1000, topics=[{"name": names[3], "topic_id": ids[3]}])


def test_an_internal_topic_can_be_deleted_only_by_name(pair: Pair) -> None:
    for name in ("__cluster_metadata", "__transaction_state"):
        pair.same(ApiKey.DELETE_TOPICS, 5, timeout_ms=1000, topic_names=[name])


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_create_partitions(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=2)

    def grow(*wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = True) -> None:
        topics = [
            {"name": name, "count": count, "assignments": None if plan is None else [{"broker_ids": b} for b in plan]}
            for name, count, plan in wanted
        ]
        asked: dict[str, Any] = {"topics": topics, "timeout_ms": 10_000, "validate_only": validate_only}
        pair.same(ApiKey.CREATE_PARTITIONS, version, **asked)

    for count in (0, -1, 1, 2, 3):
        grow((topic, count, None))
    plans: list[list[list[int]]] = [[[1]], [[1], [1]], [], [[]], [[9]], [[1, 1]], [[1, 9]], [[-1]]]
    for plan in plans:
        grow((topic, 3, plan))
        grow((topic, 4, plan))
    grow(("nowhere", 3, None))
    grow(("", 3, None))
    grow(("a b", 3, None))
    grow((topic, 3, None), (topic, 4, None))
    grow((topic, 3, None), ("nowhere", 4, None))
    grow()
    grow((topic, 4, None), validate_only=False)
    grow((topic, 4, None), validate_only=False)
    grow(("__consumer_offsets", 4, None))


def test_too_many_partitions_are_refused(pair: Pair, topic: str) -> None:
    pair.create(topic)
    wanted = [{"name": topic, "count": 20_000, "assignments": None}]
    answers = pair.ask(ApiKey.CREATE_PARTITIONS, 3, topics=wanted, timeout_ms=5000, validate_only=True)
    codes = [answer["results"][0]["error_code"] for answer in answers.both]
    assert codes == [ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]
