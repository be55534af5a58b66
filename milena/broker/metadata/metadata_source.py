"""Where a broker's metadata comes from: observed over the wire (``broker.metadata.observed_metadata``), or read beside
the controller of the same process.

The two nodes of a combined process share one metadata log on disk, as Kafka's do. Its writer is the controller; the
broker has an image of its own, which only ever holds what is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from milena.node.metadata.image import MetadataImage
from milena.node.metadata.loader import MetadataLoader, Subscriber
from milena.node.metadata.snapshots import SnapshotStore
from milena.protocol.types import Offset
from milena.runtime.containment import Containment
from milena.runtime.tasks import Tasks
from milena.storage.log.unified_log import UnifiedLog


class MetadataSource(Protocol):
    """Feeds one image."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def ahead(self) -> bool:
        """The controller lacks metadata that it had committed: what is told here stands still."""
        ...

    @property
    def current_at(self) -> float:
        """When the image was last known to be all that was committed (monotonic seconds)."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None: ...

    def start(self, tasks: Tasks) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SharedLog:
    """The controller's metadata log in the same process. ``on_commit`` takes a call-back for each commit;
    ``address`` is where that controller is reached."""

    log: UnifiedLog
    snapshots: SnapshotStore
    on_commit: Callable[[Callable[[], None]], None]
    address: tuple[str, int]


class SharedMetadata:
    """Follows the commits of the controller beside it. Its writer also keeps its snapshots."""

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

    def subscribe(self, subscriber: Subscriber) -> None:
        self._loader.subscribe(subscriber)

    def start(self, tasks: Tasks) -> None:
        self._loader.load_snapshot()
        self._shared.on_commit(self._committed)
        self._committed()

    def close(self) -> None:
        """The log is the controller's to close."""

    def _committed(self) -> None:
        self._loader.committed(Offset(self._shared.log.high_watermark))
        while self._loader.step():
            continue
