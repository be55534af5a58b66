"""Access records (SCRAM, ACLs, quotas, tokens): stored as they are, so that snapshots include them.

Nothing here interprets them. This module is imported when the first one is replayed.
"""

from __future__ import annotations

from milena.node.metadata.access_views import OF_QUOTAS, OF_SCRAM, entity_of_quota
from milena.node.metadata.image import Delta, MetadataImage
from milena.protocol.metadata_records import MetadataRecord, access


def keep(image: MetadataImage, delta: Delta, record: MetadataRecord) -> None:
    """Store the record, or remove the one that it deletes. Raises TypeError for other record types."""
    kept = image.opaque
    match record:
        case access.UserScramCredentialRecord():
            kept["scram", record.name, record.mechanism] = record
        case access.RemoveUserScramCredentialRecord():
            kept.pop((OF_SCRAM, record.name, record.mechanism), None)
        case access.AccessControlEntryRecord():
            kept["acl", record.id] = record
        case access.RemoveAccessControlEntryRecord():
            kept.pop(("acl", record.id), None)
        case access.DelegationTokenRecord():
            kept["token", record.token_id] = record
        case access.RemoveDelegationTokenRecord():
            kept.pop(("token", record.token_id), None)
        case access.ClientQuotaRecord():
            entity = entity_of_quota(record)
            key = (OF_QUOTAS, entity, record.key)
            if record.remove:
                kept.pop(key, None)
            else:
                kept[key] = record
        case _:
            raise TypeError(f"a {type(record).__name__} changes no image")
    delta.opaque = True
