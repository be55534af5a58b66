"""The source of a broker's metadata image: its own copy of the metadata log (``broker.metadata.observed_metadata``), or
in a combined process the log of the controller.

The broker and the controller of a combined process share one metadata log on disk, as in Kafka. The controller writes
it; the broker builds its own image of the committed records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from milena.node.metadata.image import MetadataImage
from milena.node.metadata.loader import MetadataLoader, Subscriber
from milena.node.metadata.snapshots import SnapshotStore
from milena.node.metrics import Metrics
from milena.protocol.types import Offset
from milena.runtime.containment import Containment
from milena.runtime.tasks import Tasks
from milena.storage.log.unified_log import UnifiedLog


class MetadataSource(Protocol):
    """Keeps one image up to date."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def ahead(self) -> bool:
        """Whether this broker has metadata beyond the end of the controller's log. Its image does not change then."""
        ...

    @property
    def current_at(self) -> float:
        """When the image last contained everything that was committed, as far as known (monotonic seconds)."""
        ...

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of this node in the metadata quorum."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify ``subscriber`` of each change of the image."""
        ...

    def start(self, tasks: Tasks) -> None:
        """Start updating the image."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SharedLog:
    """The metadata log of the controller in the same process. ``on_commit`` registers a callback for commits;
    ``address``: the host and port of the controller."""

    log: UnifiedLog
    snapshots: SnapshotStore
    on_commit: Callable[[Callable[[], None]], None]
    address: tuple[str, int]


class SharedMetadata:
    """Builds the image from the log of the controller in the same process, which also writes the snapshots."""

    def __init__(self, shared: SharedLog, contained: Containment) -> None:
        self._shared = shared
        self._loader = MetadataLoader(shared.log, shared.snapshots, contained)
        self.ahead = False

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    @property
    def current_at(self) -> float:
        return inf

    def register(self, metrics: Metrics) -> None:
        """Do nothing: the controller registers them."""

    def subscribe(self, subscriber: Subscriber) -> None:
        self._loader.subscribe(subscriber)

    def start(self, tasks: Tasks) -> None:
        self._loader.load_snapshot()
        self._shared.on_commit(self._committed)
        self._committed()

    def close(self) -> None:
        """Do nothing: the controller closes the log."""

    def _committed(self) -> None:
        self._loader.set_high_watermark(Offset(self._shared.log.high_watermark))
        while self._loader.step():
            continue
