"""Access records: credentials, delegation tokens, access control, quotas. Imported when the first one is decoded."""

from dataclasses import field
from typing import ClassVar
from uuid import UUID

from milena.protocol.metadata_records.base import MetadataRecord
from milena.protocol.schemas.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID_TYPE,
    Entity,
    versioned,
)


@versioned
class DelegationTokenRecord(MetadataRecord):
    """A delegation token was created or renewed. Timestamps in ms."""

    KEY: ClassVar[int] = 10

    owner: str = field(metadata=STRING)
    requester: str = field(metadata=STRING)
    renewers: tuple[str, ...] = field(metadata=STRING)
    issue_timestamp: int = field(metadata=INT64)
    max_timestamp: int = field(metadata=INT64)
    expiration_timestamp: int = field(metadata=INT64)
    token_id: str = field(metadata=STRING)


@versioned
class UserScramCredentialRecord(MetadataRecord):
    """A user's SCRAM credential was set. ``mechanism``: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    KEY: ClassVar[int] = 11

    name: str = field(metadata=STRING)
    mechanism: int = field(metadata=INT8)
    salt: bytes = field(metadata=BYTES)
    stored_key: bytes = field(metadata=BYTES)
    server_key: bytes = field(metadata=BYTES)
    iterations: int = field(metadata=INT32)


@versioned
class QuotaEntity(Entity):
    """One part of a quota's entity; the name None means the default of that type."""

    entity_type: str = field(metadata=STRING)
    entity_name: str | None = field(metadata=STRING)


@versioned
class ClientQuotaRecord(MetadataRecord):
    """A client quota was set or removed."""

    KEY: ClassVar[int] = 14

    entity: tuple[QuotaEntity, ...] = field()
    key: str = field(metadata=STRING)
    value: float = field(metadata=FLOAT64)
    remove: bool = field(metadata=BOOL)


@versioned
class AccessControlEntryRecord(MetadataRecord):
    """An access control entry was added. The numbers are those of Kafka's ACL requests."""

    KEY: ClassVar[int] = 18

    id: UUID = field(metadata=UUID_TYPE)
    resource_type: int = field(metadata=INT8)
    resource_name: str = field(metadata=STRING)
    pattern_type: int = field(metadata=INT8)
    principal: str = field(metadata=STRING)
    host: str = field(metadata=STRING)
    operation: int = field(metadata=INT8)
    permission_type: int = field(metadata=INT8)


@versioned
class RemoveAccessControlEntryRecord(MetadataRecord):
    """An access control entry was removed."""

    KEY: ClassVar[int] = 19

    id: UUID = field(metadata=UUID_TYPE)


@versioned
class RemoveUserScramCredentialRecord(MetadataRecord):
    """A user's SCRAM credential was removed."""

    KEY: ClassVar[int] = 22

    name: str = field(metadata=STRING)
    mechanism: int = field(metadata=INT8)


@versioned
class RemoveDelegationTokenRecord(MetadataRecord):
    """A delegation token was removed."""

    KEY: ClassVar[int] = 26

    token_id: str = field(metadata=STRING)
