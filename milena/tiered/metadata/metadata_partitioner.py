"""The partition of ``__remote_log_metadata`` that holds a user partition's records (docs/kafka-semantics.md: The
metadata topic)."""

from __future__ import annotations

from typing import Final

from milena.protocol.records.hashing import partition_for_key
from milena.tiered.segments.segment_metadata import TopicIdPartition

REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
_MASK32: Final = 0xFFFFFFFF
_MASK64: Final = 0xFFFFFFFFFFFFFFFF


def metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    """Return the partition: murmur2 over the Java hash of the topic id's low half, its high half and the partition
    number, modulo ``partitions`` (Kafka's ``RemoteLogMetadataTopicPartitioner``)."""
    value = 1
    for half in (partition.topic_id.int & _MASK64, partition.topic_id.int >> 64):
        value = 31 * value + ((half ^ (half >> 32)) & _MASK32)
    return partition_for_key(((31 * value + partition.partition) & _MASK32).to_bytes(4, "big"), partitions)
