"""Checks of dynamic changes of ``log.cleaner.*``, with Kafka's messages (``LogCleaner.validateReconfiguration``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.config.node_values import NodeValues
from milena.config.values import ConfigError

RECONFIGURABLE: Final = frozenset(
    {
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.backoff.ms",
        "message.max.bytes",
    }
)
_LEAST_BUFFER: Final = 1 << 20


def check_cleaner_change(config: NodeValues, values: Mapping[str, str], *, per_broker: bool) -> None:
    """Check ``values`` as the whole dynamic configuration of this broker, or cluster-wide if not ``per_broker``. Raises
    ConfigError."""
    wanted = config.with_dynamic(
        default=config.dynamic_default if per_broker else values, broker=values if per_broker else config.dynamic_broker
    )
    before, threads = config.get_int("log.cleaner.threads"), wanted.get_int("log.cleaner.threads")
    if wanted.get_int("log.cleaner.dedupe.buffer.size") < threads * _LEAST_BUFFER:
        raise ConfigError("requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    if not config.get_bool("log.cleaner.enable") or all(config.get(key) == wanted.get(key) for key in RECONFIGURABLE):
        return
    if threads < 1:
        raise _refused("should be at least 1")
    if threads < before // 2:
        raise _refused(f"cannot be reduced to less than half the current value {before}")
    if threads > before * 2:
        raise _refused(f"cannot be increased to more than double the current value {before}")


def _refused(why: str) -> ConfigError:
    error = f"org.apache.kafka.common.config.ConfigException: Log cleaner threads {why}"
    return ConfigError(f"Invalid value {error} for configuration Invalid dynamic configuration")
