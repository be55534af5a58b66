"""Replays the committed part of a metadata log into an image and publishes the changes to subscribers (Kafka's
``MetadataLoader`` and ``MetadataPublisher``).

The owner of a loader sets the high watermark (``set_high_watermark``); records at or above it are not replayed. In a
broker-only node the owner is the observer, in a combined node the controller. Subscribers are called synchronously in
the order of subscription, with the image and its changes; they must not change the image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from milena.node.metadata.image import Delta, MetadataImage
from milena.node.metadata.replay import Replayer
from milena.node.metadata.snapshots import SnapshotStore, batch_records, load_image
from milena.protocol.cooperative import Cooperative, YieldBudget, run_now
from milena.protocol.metadata_records import MetadataRecord
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.types import Offset
from milena.runtime.containment import Containment
from milena.storage.log.unified_log import UnifiedLog

STEP_BYTES: Final = 64 << 10
"""Maximum bytes replayed and published in one step; one batch may be longer. The caller lets the event loop run between
steps."""

K = TypeVar("K")
V = TypeVar("V")
Subscriber: TypeAlias = Callable[[MetadataImage, Delta], None]
Skipped: TypeAlias = Callable[[Exception, Offset], None]
Decoded: TypeAlias = "tuple[list[object], Exception | None]"
"""Records, and the error of the record after them."""


class MetadataLoader:
    """Owns one image. The loader reads ``log`` and never writes to it."""

    def __init__(self, log: UnifiedLog, snapshots: SnapshotStore, contained: Containment) -> None:
        """Records that cannot be replayed, and subscribers that fail, are skipped, as in Kafka's brokers, and reported
        to ``contained``."""
        self.image = MetadataImage()
        self.high_watermark = Offset(-1)
        """The first offset that is not known to be committed; -1 while unknown."""
        self.bytes_replayed = 0
        """Bytes replayed since the last snapshot was loaded or taken."""
        self._log = log
        self._snapshots = snapshots
        self._contained = contained
        self._replayer = Replayer(self.image)
        self._subscribers: list[Subscriber] = []

    @property
    def next_offset(self) -> Offset:
        """The first offset that is not in the image."""
        return Offset(self.image.offset + 1)

    @property
    def caught_up(self) -> bool:
        """Whether the high watermark is known and the image includes everything below it."""
        return 0 < self.high_watermark <= self.next_offset

    @property
    def in_transaction(self) -> bool:
        return self._replayer.in_transaction

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` with every later change, not with the current image."""
        self._subscribers.append(subscriber)

    def load_snapshot(self) -> None:
        """Load the latest snapshot if it is ahead of the image. Raises CorruptMetadataSnapshot."""
        latest = self._snapshots.latest()
        if latest is None or latest.end_offset <= self.next_offset:
            return
        old, self.image = self.image, load_image(self._snapshots, latest)
        self._replayer = Replayer(self.image)
        self.bytes_replayed = 0
        self.high_watermark = max(self.high_watermark, latest.end_offset)
        self._publish(difference(old, self.image))

    def set_high_watermark(self, high_watermark: Offset) -> None:
        """Set the high watermark; a lower one than before is ignored."""
        self.high_watermark = max(self.high_watermark, high_watermark)

    def step(self) -> bool:
        """Like ``replay_some``, at once."""
        return run_now(self.replay_some())

    def replay_some(self) -> Cooperative[bool]:
        """Replay and publish up to STEP_BYTES. Returns True if more can be replayed now. Yields while the records are
        decoded, before the image changes. If the high watermark is inside a batch, which only a faulty leader sends,
        that batch is postponed.

        Raises KafkaError, and CorruptBatch if the log is damaged.
        """
        start = self.next_offset
        if self.high_watermark <= start:
            return False
        data = self._log.read_bytes(self.next_offset, STEP_BYTES, upper=self.high_watermark, min_one=True)
        batches: list[tuple[BatchView, Decoded]] = []
        for batch in iter_batches(data):
            if batch.last_offset >= self.high_watermark:
                break
            records = yield from decoded(batch)
            batches.append((batch, records))
        # No yield from here on: others must not see changes of the image that are not published yet.
        for batch, records in batches:
            replay_records(self._replayer, batch, records, self._skipped)
            self.bytes_replayed += batch.size_in_bytes
        self._publish(self._replayer.take_delta())
        return start < self.next_offset < self.high_watermark

    def snapshot_taken(self) -> None:
        """Reset ``bytes_replayed``."""
        self.bytes_replayed = 0

    def _skipped(self, error: Exception, offset: Offset) -> None:
        self._contained.note("replay of metadata", error, offset=offset)

    def _publish(self, delta: Delta) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(self.image, delta)
            except Exception as error:
                self._contained.note("publication of metadata", error, offset=self.image.offset)


def decoded(batch: BatchView) -> Cooperative[Decoded]:
    """Return the records of a batch, and the error of the first one that cannot be decoded. Yields between records."""
    records, found, budget = batch_records(batch), list[object](), YieldBudget()
    while True:
        try:
            found.append(next(records))
        except StopIteration:
            return found, None
        except Exception as error:
            return found, error
        if budget.spend(1):
            yield


def replay_batch(replayer: Replayer, batch: BatchView) -> None:
    """Replay the records of a batch that are not in the image yet. Raises ReplayError, CorruptBatch, DecodeError."""
    replay_records(replayer, batch, run_now(decoded(batch)))


def replay_records(replayer: Replayer, batch: BatchView, records: Decoded, skipped: Skipped | None = None) -> None:
    """Replay the records of a batch that are not in the image yet. Raises ReplayError, CorruptBatch, DecodeError.

    With ``skipped`` no error is raised; ``skipped`` is called with the error and the offset instead. A record that
    contradicts the image is skipped alone, a record that cannot be decoded with the later ones of its batch.
    """
    image, epoch, timestamp = replayer.image, batch.leader_epoch, batch.max_timestamp
    for position, record in enumerate(records[0]):
        offset = Offset(batch.base_offset + position)
        if isinstance(record, MetadataRecord) and offset > image.offset:
            try:
                replayer.replay(record, offset=offset, epoch=epoch, timestamp_ms=timestamp)
            except Exception as error:
                if skipped is None:
                    raise
                skipped(error, offset)
    if records[1] is not None:
        if skipped is None:
            raise records[1]
        skipped(records[1], Offset(batch.base_offset + max(len(records[0]) - 1, 0)))
    replayer.advance(offset=batch.last_offset, epoch=epoch, timestamp_ms=timestamp)


def difference(old: MetadataImage, new: MetadataImage) -> Delta:
    """Return the changes from ``old`` to ``new``."""
    delta = Delta(
        brokers={*_changed(old.brokers, new.brokers)},
        controllers={*_changed(old.controllers, new.controllers)},
        configs={*_changed(old.configs, new.configs)},
        features={*_changed(old.features, new.features)},
        producer_ids=old.next_producer_id != new.next_producer_id,
        opaque=old.opaque != new.opaque,
    )
    for topic in old.topics.values():
        if topic.id not in new.topics_by_id:
            delta.deleted_topics.append(topic)
    for topic in new.topics.values():
        before = old.topics_by_id.get(topic.id)
        partitions = topic.partitions if before is None else _changed(before.partitions, topic.partitions)
        if before is None or partitions:
            delta.topics[topic.name] = set(partitions)
    return delta


def _changed(old: dict[K, V], new: dict[K, V]) -> list[K]:
    changed = [key for key, value in new.items() if old.get(key) != value]
    return changed + [key for key in old if key not in new]
