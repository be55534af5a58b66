"""A fingerprint of a metadata image: equal for equal content, independent of insertion order."""

from __future__ import annotations

import hashlib

from milena.node.metadata.image import MetadataImage
from milena.node.metadata.image_records import to_records
from milena.protocol.metadata_records import encode_record


def image_digest(image: MetadataImage) -> str:
    """Return a hexadecimal digest of the records that a snapshot of the image would contain."""
    digest = hashlib.sha256()
    for data in sorted(bytes(encode_record(record, image.metadata_version)) for record in to_records(image)):
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.hexdigest()[:16]
