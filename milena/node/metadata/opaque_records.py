"""Replay of access records (SCRAM, ACLs, quotas, delegation tokens): the image stores them without interpreting them,
so that snapshots include them. This module is imported when the first such record is replayed.
"""

from __future__ import annotations

from milena.node.metadata.access_views import QUOTA_KIND, SCRAM_KIND, entity_of_quota
from milena.node.metadata.image import Delta, MetadataImage
from milena.protocol.metadata_records import MetadataRecord, access


def apply_access_record(image: MetadataImage, delta: Delta, record: MetadataRecord) -> None:
    """Store the record, or remove the one that it deletes. Raises TypeError for other record types."""
    opaque = image.opaque
    match record:
        case access.UserScramCredentialRecord():
            opaque["scram", record.name, record.mechanism] = record
        case access.RemoveUserScramCredentialRecord():
            opaque.pop((SCRAM_KIND, record.name, record.mechanism), None)
        case access.AccessControlEntryRecord():
            opaque["acl", record.id] = record
        case access.RemoveAccessControlEntryRecord():
            opaque.pop(("acl", record.id), None)
        case access.DelegationTokenRecord():
            opaque["token", record.token_id] = record
        case access.RemoveDelegationTokenRecord():
            opaque.pop(("token", record.token_id), None)
        case access.ClientQuotaRecord():
            entity = entity_of_quota(record)
            key = (QUOTA_KIND, entity, record.key)
            if record.remove:
                opaque.pop(key, None)
            else:
                opaque[key] = record
        case _:
            raise TypeError(f"a {type(record).__name__} changes no image")
    delta.opaque = True
