"""Creates the topic ``__remote_log_metadata`` when the first broker needs it (docs/kafka-semantics.md: The metadata
topic)."""

from __future__ import annotations

from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster, TopicView
from milena.protocol.errors import ErrorCode, KafkaError
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.settings import PARTITIONS, MetadataTopicSettings

_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class WrongPartitionCount(Exception):
    """The topic's number of partitions differs from this broker's configuration."""


async def find_or_create(cluster: Cluster, settings: MetadataTopicSettings) -> TopicView:
    """Return the topic's metadata. A missing topic is created; then KafkaError is raised, since not all brokers know it
    yet. Raises WrongPartitionCount; KafkaError and ChannelError, after which the caller retries."""
    view = (await cluster.metadata([REMOTE_LOG_METADATA_TOPIC])).topics.get(REMOTE_LOG_METADATA_TOPIC)
    if view is None or view.error in _MISSING:
        created = await admin.create_topics(cluster, [_topic(settings)])
        error = created[REMOTE_LOG_METADATA_TOPIC]
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was just created")
    if view.error:
        raise KafkaError(ErrorCode(view.error), f"topic {REMOTE_LOG_METADATA_TOPIC}")
    if len(view.partitions) != settings.partitions:
        raise WrongPartitionCount(
            f"topic {REMOTE_LOG_METADATA_TOPIC} has {len(view.partitions)} partitions, but rlmm.config.{PARTITIONS} "
            f"is {settings.partitions}: records would be looked up in the wrong partitions"
        )
    return view


def _topic(settings: MetadataTopicSettings) -> admin.NewTopic:
    return admin.NewTopic(
        REMOTE_LOG_METADATA_TOPIC,
        settings.partitions,
        settings.replication_factor,
        configs=settings.topic_configs(),
    )
