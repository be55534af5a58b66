"""Distinct types for Kafka's integers, so that type checkers find mixed-up arguments."""

from __future__ import annotations

from typing import Final, NamedTuple, NewType, TypeAlias
from uuid import UUID

Offset = NewType("Offset", int)
"""A record's position in a partition's log."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of a leader's term for a partition."""
PartitionEpoch = NewType("PartitionEpoch", int)
"""Number that rises with each change of a partition's registration in the metadata log."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""Offset of a broker's registration record in the metadata log (KIP-903)."""
ProducerEpoch = NewType("ProducerEpoch", int)
"""Number of an incarnation of one producer id."""
TopicPartition: TypeAlias = tuple[str, int]
"""A topic's name and the number of a partition."""
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with one of its epochs."""

    producer_id: ProducerId
    epoch: ProducerEpoch


NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
LAST_PRODUCER_EPOCH: Final = ProducerEpoch(2**15 - 1)
"""The last epoch of a producer id. Only a coordinator uses it, to fence the producer with the epoch before."""

ZERO_UUID: Final = UUID(int=0)
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)
OFFSETS_TOPIC: Final = "__consumer_offsets"
REMOTE_METADATA_TOPIC: Final = "__remote_log_metadata"
TRANSACTION_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
UNASSIGNED_DIR: Final = UUID(int=1)
LOST_DIR: Final = UUID(int=2)
MIGRATING_DIR: Final = UUID(int=0)
RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number are reserved (KIP-858) and are not ids of real directories."""
