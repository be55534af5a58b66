"""What all metadata records have: a key, versions, and the metadata versions from which each is written."""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

from milena.protocol.schemas.schema import Entity


class MetadataRecord(Entity):
    """One change of the cluster's metadata, as it lies in ``__cluster_metadata-0``."""

    __slots__ = ()

    KEY: ClassVar[int]
    """Number of the record's type."""
    WRITTEN_SINCE: ClassVar[tuple[int, ...]] = ()
    """The metadata.version from which version 1, 2, ... is written. Every version is read at any time."""

    @classmethod
    def version_at(cls, metadata_version: int) -> int:
        """The version that Kafka writes at this metadata.version."""
        return bisect_right(cls.WRITTEN_SINCE, metadata_version)
