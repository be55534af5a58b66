"""Checks across the keys of a topic with remote storage, with Kafka's messages (KIP-405, KIP-950;
docs/kafka-semantics.md: Enabling and disabling)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.config.node_values import NodeValues
from milena.config.values import ConfigError, Value, invalid, number

ENABLE: Final = "remote.storage.enable"
COMPACTION_ENABLE: Final = "remote.log.compaction.enable"
POLICY: Final = "cleanup.policy"
COPY_DISABLE: Final = "remote.log.copy.disable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
_LIMITS: Final = (("retention.bytes", "local.retention.bytes"), ("retention.ms", "local.retention.ms"))
_LIKE_THE_WHOLE: Final = -2
_NONE: Final = -1


def compacts_tier(node: NodeValues) -> bool:
    """Whether a broker with this configuration can host compacted topics with remote storage."""
    return node.get_bool("remote.log.storage.system.enable") and node.get_bool(COMPACTION_ENABLE)


def is_tiered_and_compacted(overrides: Mapping[str, str]) -> bool:
    """Whether a topic's own values enable both. Defaults of brokers and cluster do not count: the answer must not
    depend on which broker computes it."""
    if overrides.get(ENABLE, "").lower() != "true":
        return False
    return "compact" in (one.strip() for one in overrides.get(POLICY, "").split(","))


def check_topic(
    values: Mapping[str, Value], *, was_enabled: bool, system_enabled: bool, may_be_compacted: bool = False
) -> None:
    """Raises ConfigError for invalid values of a topic. ``was_enabled``: remote storage was enabled before this change.
    ``may_be_compacted``: the topic's own values enable compaction, and this node supports it with remote storage."""
    if not values[ENABLE]:
        if was_enabled and not values[DELETE_ON_DISABLE]:
            raise ConfigError(
                "It is invalid to disable remote storage without deleting remote data. "
                "If you want to keep the remote data and turn to read only, please set "
                f"`{ENABLE}=true,{COPY_DISABLE}=true`. "
                "If you want to disable remote storage and delete all remote data, please set "
                f"`{ENABLE}=false,{DELETE_ON_DISABLE}=true`."
            )
        return
    if not system_enabled:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if values[POLICY] not in ((), ("delete",)) and not may_be_compacted:
        raise ConfigError(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    check_local_retention(values)
    _check_copy_lag(values)
    if values[COPY_DISABLE]:
        _check_nothing_leaves(values)


def check_local_retention(values: Mapping[str, Value]) -> None:
    """Local retention must not exceed retention. Raises ConfigError."""
    for whole, local in _LIMITS:
        limit, own = number(values, whole), number(values, local)
        if limit <= _NONE or own == _LIKE_THE_WHOLE:
            continue
        if own == _NONE:
            raise invalid(local, own, f"Value must not be -1 as {whole} value is set as {limit}.")
        if own > limit:
            raise invalid(local, own, f"Value must not be more than {whole} property value: {limit}")


def _check_copy_lag(values: Mapping[str, Value]) -> None:
    """A segment must be copied before it is deleted locally. Raises ConfigError."""
    for (whole, local), key in zip(_LIMITS, ("remote.copy.lag.bytes", "remote.copy.lag.ms"), strict=True):
        lag, own = number(values, key), number(values, local)
        limit = number(values, whole) if own == _LIKE_THE_WHOLE else own
        if lag > 0 and 0 <= limit < lag:
            raise invalid(key, lag, f"Value must not exceed {local} (effective value: {limit})")


def _check_nothing_leaves(values: Mapping[str, Value]) -> None:
    for whole, local in _LIMITS:
        if values[local] not in (_LIKE_THE_WHOLE, values[whole]):
            raise ConfigError(
                f"When `{COPY_DISABLE}` is set to true, the `{local}` and `{whole}` must be set to the identical value "
                "because there will be no more logs copied to the remote storage."
            )
