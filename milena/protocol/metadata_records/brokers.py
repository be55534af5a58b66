"""Records about the nodes: registration of brokers and controllers, fencing, log directories."""

from dataclasses import field
from typing import ClassVar
from uuid import UUID

from milena.protocol.metadata_records.base import MetadataRecord
from milena.protocol.schemas.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID_TYPE,
    Entity,
    versioned,
)


@versioned
class Endpoint(Entity):
    """A listener of a node. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str = field(metadata=STRING)
    host: str = field(metadata=STRING)
    port: int = field(metadata=UINT16)
    security_protocol: int = field(metadata=INT16)


@versioned
class FeatureRange(Entity):
    """The levels of a feature that a node supports."""

    name: str = field(metadata=STRING)
    min_supported_version: int = field(metadata=INT16)
    max_supported_version: int = field(metadata=INT16)


@versioned
class RegisterBrokerRecord(MetadataRecord):
    """A broker registered. Its broker epoch is this record's offset.

    Written as version 1 from metadata.version 7 (3.3-IV3), 2 from 8 (3.4-IV0), 3 from 17 (3.7-IV2), 4 from 30
    (4.3-IV0).
    """

    KEY: ClassVar[int] = 0
    __version__: ClassVar[int] = 4
    WRITTEN_SINCE: ClassVar[tuple[int, ...]] = (7, 8, 17, 30)

    broker_id: int = field(metadata=INT32)
    is_migrating_zk_broker: bool = field(metadata={**BOOL, "since": 2}, default=False)
    incarnation_id: UUID = field(metadata=UUID_TYPE)
    broker_epoch: int = field(metadata=INT64)
    end_points: tuple[Endpoint, ...] = field(default=())
    features: tuple[FeatureRange, ...] = field(default=())
    rack: str | None = field(metadata=STRING, default=None)
    fenced: bool = field(metadata=BOOL, default=True)
    in_controlled_shutdown: bool = field(metadata={**BOOL, "since": 1}, default=False)
    log_dirs: tuple[UUID, ...] = field(metadata={**UUID_TYPE, "since": 3, "tag": 0}, default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = field(metadata={**UUID_TYPE, "since": 4, "tag": 1}, default=None)


@versioned
class UnregisterBrokerRecord(MetadataRecord):
    """A broker was removed from the cluster."""

    KEY: ClassVar[int] = 1

    broker_id: int = field(metadata=INT32)
    broker_epoch: int = field(metadata=INT64)


@versioned
class FenceBrokerRecord(MetadataRecord):
    """A broker was fenced. Kafka 4 reads it and writes BrokerRegistrationChangeRecord."""

    KEY: ClassVar[int] = 7

    id: int = field(metadata=INT32)
    epoch: int = field(metadata=INT64)


@versioned
class UnfenceBrokerRecord(MetadataRecord):
    """A broker was unfenced. Kafka 4 reads it and writes BrokerRegistrationChangeRecord."""

    KEY: ClassVar[int] = 8

    id: int = field(metadata=INT32)
    epoch: int = field(metadata=INT64)


@versioned
class BrokerRegistrationChangeRecord(MetadataRecord):
    """A registered broker changed. A field at its default changes nothing.

    ``fenced``: -1 unfenced, 1 fenced. ``in_controlled_shutdown``: 1 entered. ``log_dirs``: the new ones, () for no
    change.
    Written as version 1 from metadata.version 7, 2 from 17, 3 from 30.
    """

    KEY: ClassVar[int] = 17
    __version__: ClassVar[int] = 3
    WRITTEN_SINCE: ClassVar[tuple[int, ...]] = (7, 17, 30)

    broker_id: int = field(metadata=INT32)
    broker_epoch: int = field(metadata=INT64)
    fenced: int = field(metadata={**INT8, "tag": 0}, default=0)
    in_controlled_shutdown: int = field(metadata={**INT8, "since": 1, "tag": 1}, default=0)
    log_dirs: tuple[UUID, ...] = field(metadata={**UUID_TYPE, "since": 2, "tag": 2}, default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = field(metadata={**UUID_TYPE, "since": 3, "tag": 3}, default=None)


@versioned
class UnregisterControllerRecord(MetadataRecord):
    """A controller's registration was removed. Written from metadata.version 33 (4.4-IV2)."""

    KEY: ClassVar[int] = 29

    controller_id: int = field(metadata=INT32)


@versioned
class RegisterControllerRecord(MetadataRecord):
    """A controller registered. Written from metadata.version 15 (3.7-IV0)."""

    KEY: ClassVar[int] = 27

    controller_id: int = field(metadata=INT32)
    incarnation_id: UUID = field(metadata=UUID_TYPE)
    zk_migration_ready: bool = field(metadata=BOOL, default=False)
    end_points: tuple[Endpoint, ...] = field(default=())
    features: tuple[FeatureRange, ...] = field(default=())
