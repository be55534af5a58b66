"""The configuration of one topic: its own values, else the broker's, else Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milena.config.keys import TOPIC_KEYS
from milena.config.node_values import NodeValues
from milena.config.synonyms import BROKER_SYNONYMS
from milena.config.tiered_rules import COMPACTION_ENABLE, ENABLE, POLICY, check_topic, is_tiered_and_compacted
from milena.config.values import ConfigError, Value, number


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The values that storage uses. Sizes are bytes, times milliseconds; -1 is unlimited for retention."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    max_message_bytes: int
    max_decompressed_message_bytes: int
    errors_deadletterqueue_group_enable: bool
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    cleanup_policy: tuple[str, ...]
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    flush_messages: int
    flush_ms: int
    file_delete_delay_ms: int
    preallocate: bool
    remote_storage_enable: bool
    remote_copy_lag_ms: int
    remote_copy_lag_bytes: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def longest_segment_ms(self) -> int:
        """The age (ms) at which the active segment is rolled: only closed segments are compacted
        (``LogConfig.maxSegmentMs``)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def local_ms(self) -> int:
        """The age (ms) at which copied segments are deleted from the local disk; -1 is unlimited."""
        return self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms

    @property
    def local_bytes(self) -> int:
        """The local size (bytes) above which copied segments are deleted from the local disk; -1 is unlimited."""
        return self.retention_bytes if self.local_retention_bytes == -2 else self.local_retention_bytes

    @property
    def copy_lag_ms(self) -> int:
        """The age (ms) at which a closed segment is copied to the tier: 0 at once, -1 at no age."""
        return self.local_ms if self.remote_copy_lag_ms == -1 else self.remote_copy_lag_ms

    @property
    def copy_lag_bytes(self) -> int:
        """The bytes of later segments at which a closed segment is copied to the tier: 0 at once, -1 at no size."""
        return self.local_bytes if self.remote_copy_lag_bytes == -1 else self.remote_copy_lag_bytes

    @classmethod
    def effective(cls, node: NodeValues, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the topic's values on this broker. Invalid overrides fall back to the broker's values. A topic with
        ``remote.storage.enable`` is compacted only if its own values say so, not by a default of the cluster."""
        values = {name: effective_value(node, overrides, name) for name in TOPIC_KEYS}
        internal = values.pop("internal.segment.bytes")
        if internal is not None:
            values["segment.bytes"] = internal
        if values[ENABLE] and not (node.get_bool(COMPACTION_ENABLE) and is_tiered_and_compacted(overrides)):
            values[POLICY] = _without_compaction(values[POLICY])
        # The values have the types of the keys; tests/unit/runtime/test_topic_config.py compares those with the fields.
        fields: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
        return cls(**fields)


def _without_compaction(policy: Value) -> tuple[str, ...]:
    """Remove compaction: a part of the log may be in the tier, and compaction must see the whole log."""
    assert isinstance(policy, tuple)
    return tuple(one for one in policy if one != "compact")


def effective_value(node: NodeValues, overrides: Mapping[str, str], name: str) -> Value:
    """Return one key's value: the topic's own, else the broker's, else Kafka's default."""
    if name in overrides and name in node.keys.topic:
        try:
            return node.keys.topic[name].parse(overrides[name])
        except ConfigError:
            return broker_value(node, name)
    return broker_value(node, name)


def broker_value(node: NodeValues, name: str) -> Value:
    for synonym, unit in BROKER_SYNONYMS.get(name, ()):
        value = node.get(synonym)
        if value is not None:
            if name == "retention.ms":
                assert isinstance(value, int)
                return max(value * unit, -1)
            return value * unit if isinstance(value, int) and unit != 1 else value
    default = TOPIC_KEYS[name].default
    assert default is None or isinstance(default, bool | int | float | str | tuple)
    return default


def broker_values(node: NodeValues) -> dict[str, Value]:
    """Return the values of a topic without overrides."""
    return {name: broker_value(node, name) for name in TOPIC_KEYS}


def validate_topic_config(
    node: NodeValues,
    overrides: Mapping[str, str | None],
    *,
    before: Mapping[str, str] | None = None,
    defaults: Mapping[str, Value] | None = None,
) -> None:
    """Check ``overrides`` for a topic that had the values ``before``. ``defaults``: the node's ``broker_values``, if
    they are known. Raises ConfigError with Kafka's message (INVALID_CONFIG)."""
    missing = sorted(name for name, text in overrides.items() if text is None)
    if missing:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(missing)}")
    for name in overrides:
        if name not in node.keys.topic:
            raise ConfigError(f"Unknown topic config name: {name}")
    given = {name: text for name, text in overrides.items() if text is not None}
    own = {name: node.keys.topic[name].parse(text) for name, text in given.items()}
    values = {**(broker_values(node) if defaults is None else defaults), **own}
    _check_compaction(values)
    check_topic(
        values,
        was_enabled=(before or {}).get(ENABLE, "").lower() == "true",
        system_enabled=node.get_bool("remote.log.storage.system.enable"),
        may_be_compacted=is_tiered_and_compacted(given) and _compacts_in_tier(node, before or {}),
    )


def _compacts_in_tier(node: NodeValues, before: Mapping[str, str]) -> bool:
    """Whether the topic may be compacted with remote storage. A topic that already is may change other values after
    remote.log.compaction.enable was set to false."""
    return node.get_bool(COMPACTION_ENABLE) or is_tiered_and_compacted(before)


def _check_compaction(values: Mapping[str, Value]) -> None:
    least, largest = number(values, "min.compaction.lag.ms"), number(values, "max.compaction.lag.ms")
    if least > largest:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({largest})"
        )
