"""The configuration of a topic."""

from __future__ import annotations

from typing import get_origin, get_type_hints

import pytest

from milena.config.keys import TOPIC_KEYS
from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig, validate_topic_config
from milena.config.values import MAX_LONG, ConfigError, Type

PYTHON = {
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.INT: int,
    Type.LONG: int,
    Type.DOUBLE: float,
    Type.LIST: tuple,
}


def test_each_topic_key_has_a_field_of_its_type() -> None:
    keys = {name: key for name, key in TOPIC_KEYS.items() if not name.startswith("internal.")}
    # The compiled form has no types of elements.
    fields = {name: get_origin(hint) or hint for name, hint in get_type_hints(TopicConfig).items()}
    assert fields == {name.replace(".", "_"): PYTHON[key.type] for name, key in keys.items()}


def test_a_topic_has_the_brokers_values_and_its_own_over_them() -> None:
    node = NodeConfig.of(log_segment_bytes=2_000_000, log_retention_hours=2, compression_type="zstd")
    topic = TopicConfig.effective(node, {"segment.bytes": "3000000", "cleanup.policy": "compact,delete"})
    assert (topic.segment_bytes, topic.retention_ms, topic.compression_type) == (3_000_000, 7_200_000, "zstd")
    assert topic.compacted
    assert topic.flush_ms == MAX_LONG


@pytest.mark.parametrize(
    ("default", "expected"), [("compact", ()), ("compact,delete", ("delete",)), ("delete", ("delete",)), ("", ())]
)
def test_a_tiered_topic_is_not_compacted_whatever_the_brokers_default(default: str, expected: tuple[str, ...]) -> None:
    node = NodeConfig.of(log_cleanup_policy=default)
    tiered = TopicConfig.effective(node, {"remote.storage.enable": "true"})
    assert (tiered.cleanup_policy, tiered.remote_storage_enable) == (expected, True)
    assert TopicConfig.effective(node, {}).compacted is default.startswith("compact")


@pytest.mark.parametrize(
    ("values", "retention"),
    [
        ({}, 168 * 3_600_000),
        ({"log_retention_hours": 1, "log_retention_minutes": 2}, 120_000),
        ({"log_retention_minutes": 2, "log_retention_ms": 3}, 3),
        ({"log_retention_hours": -1}, -1),
        ({"log_retention_ms": -5}, -1),
    ],
)
def test_the_finest_retention_that_is_set_counts(values: dict[str, object], retention: int) -> None:
    assert TopicConfig.effective(NodeConfig.of(**values), {}).retention_ms == retention


def test_small_segments_for_tests() -> None:
    topic = TopicConfig.effective(NodeConfig.of(), {"internal.segment.bytes": "100", "segment.bytes": "2000000"})
    assert topic.segment_bytes == 100


def test_an_unusable_override_falls_back() -> None:
    assert TopicConfig.effective(NodeConfig.of(), {"segment.bytes": "3"}).segment_bytes == 1 << 30


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"retention.ms": None, "a": None}, "Null value not supported for topic configs: a,retention.ms"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled in the broker. "),
    ],
)
def test_a_topic_is_refused_with_kafkas_words(overrides: dict[str, str | None], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        validate_topic_config(NodeConfig.of(), overrides)
    assert str(raised.value).startswith(expected)


def test_a_topic_may_be_compacted_and_deleted() -> None:
    validate_topic_config(NodeConfig.of(), {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
