"""Rules for the tier: it contains every committed record below the leader's local log, unchanged.

They apply to a leader that is registered as such and has looked up its log start in the tier. The segments are those of
its own metadata; the objects are read from the simulated disk. Records may only be deleted according to
``retention.*``.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.lab.invariants.broken import demand
from milena.lab.invariants.hosted import Hosted
from milena.lab.invariants.ledger import Ledger
from milena.lab.invariants.log_cursor import batches_in
from milena.lab.invariants.replicas import PartitionKey
from milena.lab.world.disk import Storage
from milena.lab.world.tiering import FOLDER
from milena.protocol.types import Offset
from milena.storage.files.checkpoints import decode_epochs
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache, ServedSegment
from milena.tiered.segments.lineage import epoch_at
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import LOG_SUFFIX, REQUIRED, IndexType
from milena.tiered.store.tier_names import object_path

_CHECKPOINT: Final = IndexType.LEADER_EPOCH.value


class _Seen(NamedTuple):
    """While this is the same, nothing about a leader's tier can have changed."""

    log: UnifiedLog
    start: int
    local_start: int
    truncations: int
    epochs: int
    cache: RemoteLogMetadataCache
    changes: int


class Freed:
    """Records that administrators have released: requests count from the moment they are made, whether or not they
    succeed."""

    def __init__(self) -> None:
        self.before: dict[tuple[str, int], int] = {}
        """DeleteRecords: the offset before which records are released, by topic and partition."""
        self.switched_off: dict[str, None] = {}
        """Topics whose tier was once to be deleted: their logs then begin at their local log starts."""

    def reaches(self, log: UnifiedLog, start: int) -> bool:
        return log.topic in self.switched_off or start <= self.before.get((log.topic, log.partition), 0)


class TierRules:
    """``storage`` is the tier's disk. ``away`` has the paths of objects that a fault has removed for a while, ``lost``
    of those removed for good, ``freed`` the records that administrators have asked to delete or to remove from the
    tier."""

    def __init__(self, storage: Storage) -> None:
        self.away: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.freed = Freed()
        self._storage = storage
        self._starts: dict[PartitionKey, int] = {}
        self._front_lost: set[PartitionKey] = set()
        self._seen: dict[tuple[int, PartitionKey], _Seen] = {}
        self._right: set[tuple[UUID, int, int]] = set()

    def forget(self) -> None:
        """Check everything again."""
        self._seen.clear()
        self._right.clear()

    def start_seen(self, where: object, key: PartitionKey, log: UnifiedLog, ledger: Ledger) -> None:
        """Check a leader's log start. Raises InvariantBroken if records were deleted that retention keeps."""
        before, start = self._starts.get(key, 0), log.log_start_offset
        if start <= before:
            return
        self._starts[key] = start
        limit = log.config.retention_bytes
        if self._is_unknown(key, ledger, limit) or self.freed.reaches(log, start):
            return
        demand(limit >= 0, where, f"its log starts at {start} after {before}, and nothing lets records go")
        left = _left(log, ledger, start)
        demand(left >= limit, where, f"its log starts at {start}, {left} bytes before its end; retention wants {limit}")

    def front_lost(self, key: PartitionKey) -> None:
        """A fault removed more of a log than its end: it may start anywhere from now on."""
        self._front_lost.add(key)

    def _is_unknown(self, key: PartitionKey, ledger: Ledger, limit: int) -> bool:
        """Whether the number of bytes is unknown because promises are void. But no power loss raises a log start."""
        return key in self._front_lost or (ledger.floor >= 0 and limit >= 0)

    def _may_go(self, key: PartitionKey, log: UnifiedLog, ledger: Ledger, start: int) -> bool:
        """Whether the log may start there."""
        if self._is_unknown(key, ledger, log.config.retention_bytes) or self.freed.reaches(log, start):
            return True
        return 0 <= log.config.retention_bytes <= _left(log, ledger, start)

    def moved(self, hosted: Hosted, partition: Partition) -> bool:
        """Whether something changed since the last call, for a replica that knows its log start in the tier."""
        tier, log = hosted.broker.tier, partition.log
        role = None if tier is None else tier.role_of(partition)
        if tier is None or role is None or log is None or not tier.tier.metadata.is_ready(role.partition):
            return False
        if role.leads and role.started_log is not log:
            return False
        cache = tier.tier.metadata.cache(role.partition)
        bounds = (log.log_start_offset, log.local_log_start_offset)
        seen = _Seen(log, *bounds, log.truncations, len(log.epochs.entries), cache, cache.changes)
        key = (hosted.broker.node_id, (partition.topic_id, partition.index))
        if self._seen.get(key) == seen:
            return False
        self._seen[key] = seen
        return True

    def look(self, where: object, hosted: Hosted, partition: Partition, ledger: Ledger) -> None:
        """Check that the tier serves all records from the log start (or from a start that a leader has announced) to
        the local log, for a replica that has ``moved``. Raises InvariantBroken."""
        key = (partition.topic_id, partition.index)
        seen = self._seen[hosted.broker.node_id, key]
        log, cache = seen.log, seen.cache
        end = min(log.local_log_start_offset, log.high_watermark)
        at = first = max(log.log_start_offset, self._starts.get(key, 0))
        served = cache.served(log.log_start_offset, leader_epochs=log.epochs.entries, log_end=log.log_end_offset)
        for served_segment in served:
            if served_segment.last < first:
                continue
            if served_segment.first > at and not (at == first and self._may_go(key, log, ledger, served_segment.first)):
                break  # else a former leader deletes expired segments: the log will start after them
            at = served_segment.last + 1
            self._check_objects(where, log, served_segment, ledger)
        if at == first and self.freed.reaches(log, end):
            return  # a follower whose leader has more of them locally: led by this one, the log will start there
        demand(
            at >= end,
            where,
            f"its log starts at {log.log_start_offset} and locally at {end}, and {at} is not in the tier",
        )

    def _check_objects(self, where: object, log: UnifiedLog, served: ServedSegment, ledger: Ledger) -> None:
        segment = served.segment
        paths = {suffix: f"{FOLDER}/{object_path(segment, suffix)}" for suffix in sorted(REQUIRED)}
        if segment.at_risk or any(path in self.away for path in paths.values()):
            return  # a former leader may delete it at any time; it is being republished
        lost = [path for path in paths.values() if path in self.lost]
        for path in paths.values():
            demand(path in self._storage.files or path in lost, where, f"{path}, which it needs, is not in the tier")
        known = (segment.id, served.first, served.last)
        if known in self._right:
            return
        if paths[_CHECKPOINT] not in lost:
            self._check_epochs(where, segment, bytes(self._storage.files[paths[_CHECKPOINT]].data))
        if paths[LOG_SUFFIX] not in lost:
            self._check_records(where, log, served, ledger, paths[LOG_SUFFIX])
        self._right.add(known)

    def _check_records(self, where: object, log: UnifiedLog, served: ServedSegment, ledger: Ledger, path: str) -> None:
        data, size = self._storage.files[path].data, served.segment.size
        demand(len(data) == size, where, f"{path} has {len(data)} of {size} bytes")
        epochs = log.epochs.entries
        for batch in batches_in(data):
            if served.first <= batch.base and batch.last <= served.last:
                committed = ledger.at(batch.base)
                cleaned = bool(served.segment.cleaned) and committed is not None and committed.may_become(batch)
                same = cleaned or committed in (None, batch)
                demand(same, where, f"the tier has {batch}, and {committed} is committed")
                index = epoch_at(Offset(batch.base), epochs)
                epoch = None if index is None else epochs[index].epoch
                demand(epoch == batch.epoch, where, f"its epochs say {epoch} at {batch.base}; the tier has {batch}")

    def _check_epochs(self, where: object, segment: RemoteLogSegmentMetadata, checkpoint: bytes) -> None:
        """The checkpoint beside a segment begins with the log's first epoch, and ends with the segment's. The log may
        have started within the segment."""
        entries = decode_epochs(checkpoint)
        last = segment.epochs[1:]
        agree = not last or tuple(entries[-len(last) :]) == last
        first = epoch_at(max(segment.start_offset, segment.epochs[0].start), entries)
        demand(
            agree and first is not None and entries[first].epoch == segment.epochs[0].epoch,
            where,
            f"the tier's checkpoint of {segment.start_offset} says {entries}, its metadata {segment.epochs}",
        )


def _left(log: UnifiedLog, ledger: Ledger, start: int) -> int:
    """Bytes from ``start`` on. A leader also counts uncommitted bytes: those of the segments that end after the last
    committed record."""
    following = [segment.base_offset for segment in log.segments][1:]
    closed = sum(segment.size for segment, end in zip(log.segments, following, strict=False) if end > ledger.end)
    return ledger.bytes_from(start) + closed + log.segments.active.size
