"""Records about topics and partitions."""

from dataclasses import field
from typing import ClassVar
from uuid import UUID

from milena.protocol.metadata_records.base import MetadataRecord
from milena.protocol.schemas.schema import INT8, INT32, STRING, UUID_TYPE, versioned

NO_LEADER_CHANGE = -2
"""In a PartitionChangeRecord: the leader does not change. -1 means no leader."""


@versioned
class TopicRecord(MetadataRecord):
    """A topic was created."""

    KEY: ClassVar[int] = 2

    name: str = field(metadata=STRING)
    topic_id: UUID = field(metadata=UUID_TYPE)


@versioned
class PartitionRecord(MetadataRecord):
    """A partition was created; in a snapshot, the partition's state.

    ``directories`` is parallel to ``replicas``. Written as version 1 from metadata.version 17 (3.7-IV2, directories),
    2 from 23 (4.0-IV1, eligible leader replicas).
    """

    KEY: ClassVar[int] = 3
    __version__: ClassVar[int] = 2
    WRITTEN_SINCE: ClassVar[tuple[int, ...]] = (17, 23)

    partition_id: int = field(metadata=INT32, default=-1)
    topic_id: UUID = field(metadata=UUID_TYPE)
    replicas: tuple[int, ...] = field(metadata=INT32, default=())
    isr: tuple[int, ...] = field(metadata=INT32, default=())
    removing_replicas: tuple[int, ...] = field(metadata=INT32, default=())
    adding_replicas: tuple[int, ...] = field(metadata=INT32, default=())
    leader: int = field(metadata=INT32, default=-1)
    leader_recovery_state: int = field(metadata={**INT8, "tag": 0}, default=0)
    leader_epoch: int = field(metadata=INT32, default=-1)
    partition_epoch: int = field(metadata=INT32, default=-1)
    directories: tuple[UUID, ...] = field(metadata={**UUID_TYPE, "since": 1}, default=())
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata={**INT32, "since": 2, "tag": 1}, default=None)
    last_known_elr: tuple[int, ...] | None = field(metadata={**INT32, "since": 2, "tag": 2}, default=None)


@versioned
class PartitionChangeRecord(MetadataRecord):
    """A partition changed. A field at its default (None; leader -2, recovery state -1) changes nothing.

    Written in the same versions as PartitionRecord.
    """

    KEY: ClassVar[int] = 5
    __version__: ClassVar[int] = 2
    WRITTEN_SINCE: ClassVar[tuple[int, ...]] = PartitionRecord.WRITTEN_SINCE

    partition_id: int = field(metadata=INT32, default=-1)
    topic_id: UUID = field(metadata=UUID_TYPE)
    isr: tuple[int, ...] | None = field(metadata={**INT32, "tag": 0}, default=None)
    leader: int = field(metadata={**INT32, "tag": 1}, default=NO_LEADER_CHANGE)
    replicas: tuple[int, ...] | None = field(metadata={**INT32, "tag": 2}, default=None)
    removing_replicas: tuple[int, ...] | None = field(metadata={**INT32, "tag": 3}, default=None)
    adding_replicas: tuple[int, ...] | None = field(metadata={**INT32, "tag": 4}, default=None)
    leader_recovery_state: int = field(metadata={**INT8, "tag": 5}, default=-1)
    directories: tuple[UUID, ...] | None = field(metadata={**UUID_TYPE, "since": 1, "tag": 8}, default=None)
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata={**INT32, "since": 2, "tag": 6}, default=None)
    last_known_elr: tuple[int, ...] | None = field(metadata={**INT32, "since": 2, "tag": 7}, default=None)


@versioned
class RemoveTopicRecord(MetadataRecord):
    """A topic was deleted, with its partitions and its configuration."""

    KEY: ClassVar[int] = 9

    topic_id: UUID = field(metadata=UUID_TYPE)


@versioned
class ClearElrRecord(MetadataRecord):
    """The eligible leader replicas of a topic were cleared; "" means all topics."""

    KEY: ClassVar[int] = 28

    topic_name: str = field(metadata=STRING)
