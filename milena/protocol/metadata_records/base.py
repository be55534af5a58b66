"""The base class of metadata records: key, versions, and the metadata.version from which each version is written."""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

from milena.protocol.schemas.schema import Entity


class MetadataRecord(Entity):
    """One change of the cluster's metadata, a record of ``__cluster_metadata-0``."""

    __slots__ = ()

    KEY: ClassVar[int]
    """Number of the record's type."""
    WRITTEN_SINCE: ClassVar[tuple[int, ...]] = ()
    """The metadata.version from which version 1, 2, ... is written."""

    @classmethod
    def version_at(cls, metadata_version: int) -> int:
        """Return the version that Kafka writes with this metadata.version."""
        return bisect_right(cls.WRITTEN_SINCE, metadata_version)
