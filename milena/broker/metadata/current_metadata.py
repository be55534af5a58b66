"""The broker's metadata as it is now, for all who ask at different times."""

from __future__ import annotations

from typing import Final

from milena.broker.metadata.metadata_source import MetadataSource
from milena.node.metadata.image import MetadataImage

_EMPTY: Final = MetadataImage()


class CurrentMetadata:
    """Holds the source of the metadata once the broker has opened it; the image is empty until then."""

    __slots__ = ("source",)

    def __init__(self) -> None:
        self.source: MetadataSource | None = None

    def image(self) -> MetadataImage:
        """To be asked each time: loading a snapshot replaces the image."""
        return _EMPTY if self.source is None else self.source.image
