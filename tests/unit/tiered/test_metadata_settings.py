"""Configuration of the metadata topic: Kafka's keys, defaults and refusals."""

from __future__ import annotations

import pytest

from milena.config.values import ConfigError
from milena.tiered.metadata.settings import MetadataTopicSettings

TOPIC = "remote.log.metadata.topic"


def test_the_defaults_are_those_of_kafka() -> None:
    settings = MetadataTopicSettings.of({"something.else": "x"})
    assert settings == MetadataTopicSettings()
    assert (settings.partitions, settings.replication_factor, settings.min_isr, settings.retention_ms) == (50, 3, 2, -1)
    assert (settings.consume_wait, settings.retry_interval, settings.retry_timeout) == (120, 0.1, 120)


def test_what_is_set_is_taken() -> None:
    texts = {
        f"{TOPIC}.num.partitions": " 5 ",
        f"{TOPIC}.replication.factor": "2",
        f"{TOPIC}.min.isr": "1",
        f"{TOPIC}.retention.ms": "1000",
        "remote.log.metadata.consume.wait.ms": "1500",
        "remote.log.metadata.initialization.retry.interval.ms": "50",
        "remote.log.metadata.initialization.retry.max.timeout.ms": "2000",
    }
    assert MetadataTopicSettings.of(texts) == MetadataTopicSettings(5, 2, 1, 1000, 1.5, 0.05, 2.0)


def test_a_topic_of_one_replica_can_be_written_without_more_configuration() -> None:
    assert MetadataTopicSettings.of({f"{TOPIC}.replication.factor": "1"}).min_isr == 1


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (f"{TOPIC}.num.partitions", "0"),
        (f"{TOPIC}.replication.factor", "x"),
        (f"{TOPIC}.replication.factor", "1_0"),
        (f"{TOPIC}.min.isr", "0"),
        (f"{TOPIC}.retention.ms", "0"),
        (f"{TOPIC}.retention.ms", "-2"),
        ("remote.log.metadata.consume.wait.ms", "-1"),
    ],
)
def test_what_kafka_refuses_is_refused_with_the_key(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=key):
        MetadataTopicSettings.of({key: text})
