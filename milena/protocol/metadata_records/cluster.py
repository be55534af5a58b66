"""Records about the cluster as a whole: configuration, features, producer ids, metadata transactions."""

from dataclasses import field
from typing import ClassVar

from milena.protocol.metadata_records.base import MetadataRecord
from milena.protocol.schemas.schema import INT8, INT16, INT32, INT64, STRING, versioned


@versioned
class ConfigRecord(MetadataRecord):
    """A configuration value; None deletes it.

    ``resource_type``: 2 topic, 4 broker (name "" for all), 8 broker logger, 16 client metrics, 32 group.
    """

    KEY: ClassVar[int] = 4

    resource_type: int = field(metadata=INT8)
    resource_name: str = field(metadata=STRING)
    name: str = field(metadata=STRING)
    value: str | None = field(metadata=STRING)


@versioned
class FeatureLevelRecord(MetadataRecord):
    """The finalized level of a feature; 0 removes it."""

    KEY: ClassVar[int] = 12

    name: str = field(metadata=STRING)
    feature_level: int = field(metadata=INT16)


@versioned
class ProducerIdsRecord(MetadataRecord):
    """A broker got a block of producer ids; ``next_producer_id`` is the first after it."""

    KEY: ClassVar[int] = 15

    broker_id: int = field(metadata=INT32)
    broker_epoch: int = field(metadata=INT64, default=-1)
    next_producer_id: int = field(metadata=INT64)


@versioned
class NoOpRecord(MetadataRecord):
    """Does not change the metadata; written regularly, so that the log end offset advances (KIP-835)."""

    KEY: ClassVar[int] = 20


@versioned
class ZkMigrationStateRecord(MetadataRecord):
    """State of a migration from ZooKeeper. Kafka 4 reads and ignores it."""

    KEY: ClassVar[int] = 21

    zk_migration_state: int = field(metadata=INT8)


@versioned
class BeginTransactionRecord(MetadataRecord):
    """The following records are published together at EndTransactionRecord (KIP-868)."""

    KEY: ClassVar[int] = 23

    name: str | None = field(metadata={**STRING, "tag": 0}, default=None)


@versioned
class EndTransactionRecord(MetadataRecord):
    """The metadata transaction is complete."""

    KEY: ClassVar[int] = 24


@versioned
class AbortTransactionRecord(MetadataRecord):
    """The metadata transaction is dropped."""

    KEY: ClassVar[int] = 25

    reason: str | None = field(metadata={**STRING, "tag": 0}, default=None)
