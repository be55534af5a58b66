"""Configuration of the metadata topic: Kafka's keys, after the prefix ``rlmm.config.``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from milena.config.values import ConfigError
from milena.runtime.numbers import trimmed, whole

_TOPIC: Final = "remote.log.metadata.topic"
_RETRY: Final = "remote.log.metadata.initialization.retry"
REPLICATION_FACTOR: Final = f"{_TOPIC}.replication.factor"
PARTITIONS: Final = f"{_TOPIC}.num.partitions"
RETENTION_MS: Final = f"{_TOPIC}.retention.ms"
MIN_ISR: Final = f"{_TOPIC}.min.isr"
CONSUME_WAIT_MS: Final = "remote.log.metadata.consume.wait.ms"
RETRY_INTERVAL_MS: Final = f"{_RETRY}.interval.ms"
RETRY_TIMEOUT_MS: Final = f"{_RETRY}.max.timeout.ms"


@dataclass(frozen=True, slots=True)
class MetadataTopicSettings:
    """Times in seconds, except the retention, which is the topic's own in ms (-1: unlimited)."""

    partitions: int = 50
    replication_factor: int = 3
    min_isr: int = 2
    retention_ms: int = -1
    consume_wait: float = 120.0
    retry_interval: float = 0.1
    retry_timeout: float = 120.0

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> MetadataTopicSettings:
        """Parse the values of the keys, without their prefix. Raises ConfigError.

        If no minimum ISR is configured, a topic with one replica gets 1: with Kafka's 2 nothing could be written.
        """
        replication_factor = _number(texts, REPLICATION_FACTOR, 3, least=1)
        retention = _number(texts, RETENTION_MS, -1, least=-1)
        if retention == 0:
            raise ConfigError(f"{RETENTION_MS} must be -1 or greater than 0, not 0")
        return cls(
            partitions=_number(texts, PARTITIONS, 50, least=1),
            replication_factor=replication_factor,
            min_isr=_number(texts, MIN_ISR, min(2, replication_factor), least=1),
            retention_ms=retention,
            consume_wait=_number(texts, CONSUME_WAIT_MS, 120_000, least=0) / 1000,
            retry_interval=_number(texts, RETRY_INTERVAL_MS, 100, least=0) / 1000,
            retry_timeout=_number(texts, RETRY_TIMEOUT_MS, 120_000, least=0) / 1000,
        )

    def topic_configs(self) -> dict[str, str]:
        """The configuration that the topic is created with."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "min.insync.replicas": str(self.min_isr),
            "remote.storage.enable": "false",
        }


def _number(texts: Mapping[str, str], key: str, default: int, *, least: int) -> int:
    text = texts.get(key)
    if text is None:
        return default
    value = whole(trimmed(text))
    if value is None:
        raise ConfigError(f"Invalid value {text} for configuration {key}: not a number")
    if value < least:
        raise ConfigError(f"Invalid value {value} for configuration {key}: Value must be at least {least}")
    return value
