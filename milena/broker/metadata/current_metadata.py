"""The broker's current metadata image."""

from __future__ import annotations

from typing import Final

from milena.broker.metadata.metadata_source import MetadataSource
from milena.node.metadata.image import MetadataImage

_EMPTY: Final = MetadataImage()


class CurrentMetadata:
    """Holds the source of the metadata; the image is empty until the broker has opened it."""

    __slots__ = ("source",)

    def __init__(self) -> None:
        self.source: MetadataSource | None = None

    def image(self) -> MetadataImage:
        """The current image. Callers must not keep it: loading a snapshot replaces the image."""
        return _EMPTY if self.source is None else self.source.image
