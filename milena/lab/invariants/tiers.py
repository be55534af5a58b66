"""Rules for the tier: it contains every committed record below the leader's local log, unchanged.

They apply to a registered leader that has looked up its log start in the tier. The segments are those in the leader's
remote log metadata; the objects are read from the simulated disk. Records may only be deleted according to
``retention.*``, or at the request of an administrator.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.lab.invariants.broken import demand
from milena.lab.invariants.ledger import Ledger
from milena.lab.invariants.log_cursor import batches_in
from milena.lab.invariants.observed_broker import ObservedBroker
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
    """The state on which a leader's view of the tier depends: if it is unchanged, no check is needed."""

    log: UnifiedLog
    start: int
    local_start: int
    truncations: int
    epochs: int
    cache: RemoteLogMetadataCache
    changes: int


class Freed:
    """Records that administrators have asked to delete. Requests count from when they are sent, whether or not they
    succeed."""

    def __init__(self) -> None:
        self.before: dict[tuple[str, int], int] = {}
        """DeleteRecords: the offset below which records may be deleted, by topic and partition."""
        self.switched_off: dict[str, None] = {}
        """Topics for which the tier was disabled with deletion: their logs start at the local log start."""

    def reaches(self, log: UnifiedLog, start: int) -> bool:
        """Whether the requests permit that the log starts at ``start``."""
        return log.topic in self.switched_off or start <= self.before.get((log.topic, log.partition), 0)


class TierRules:
    """The checks of the tier. ``storage`` is its disk. ``away`` has the paths of objects that a fault has removed
    temporarily, ``lost`` of those removed permanently, ``freed`` the records that administrators have asked to
    delete."""

    def __init__(self, storage: Storage) -> None:
        self.away: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.freed = Freed()
        self._storage = storage
        self._starts: dict[PartitionKey, int] = {}
        self._front_lost: set[PartitionKey] = set()
        self._seen: dict[tuple[int, PartitionKey], _Seen] = {}
        self._verified: set[tuple[UUID, int, int]] = set()

    def forget(self) -> None:
        """Forget which segments were verified, so that all are checked again."""
        self._seen.clear()
        self._verified.clear()

    def start_seen(self, where: object, key: PartitionKey, log: UnifiedLog, ledger: Ledger) -> None:
        """Check a leader's log start. Raises InvariantBroken if records were deleted that retention keeps."""
        before, start = self._starts.get(key, 0), log.log_start_offset
        if start <= before:
            return
        self._starts[key] = start
        limit = log.config.retention_bytes
        if self._is_unknown(key, ledger, limit) or self.freed.reaches(log, start):
            return
        demand(limit >= 0, where, f"its log starts at {start} after {before}, but retention is unlimited")
        size = _bytes_from(log, ledger, start)
        demand(size >= limit, where, f"its log starts at {start} and has {size} bytes; retention.bytes is {limit}")

    def front_lost(self, key: PartitionKey) -> None:
        """Record that a fault has removed more of a log than its end, so that the log may start at any offset from now
        on."""
        self._front_lost.add(key)

    def _is_unknown(self, key: PartitionKey, ledger: Ledger, limit: int) -> bool:
        """Whether void promises make the log start or the number of bytes unknown. A power loss does not raise a log
        start, so without a limit of bytes the rule still applies."""
        return key in self._front_lost or (ledger.floor >= 0 and limit >= 0)

    def _may_start_at(self, key: PartitionKey, log: UnifiedLog, ledger: Ledger, start: int) -> bool:
        """Whether retention or an administrator permits that the log starts at ``start``."""
        if self._is_unknown(key, ledger, log.config.retention_bytes) or self.freed.reaches(log, start):
            return True
        return 0 <= log.config.retention_bytes <= _bytes_from(log, ledger, start)

    def moved(self, observed: ObservedBroker, partition: Partition) -> bool:
        """Whether the replica knows its log start in the tier, and its state has changed since the last call."""
        tier, log = observed.broker.tier, partition.log
        role = None if tier is None else tier.role_of(partition)
        if tier is None or role is None or log is None or not tier.tier.metadata.is_ready(role.partition):
            return False
        if role.leads and role.started_log is not log:
            return False
        cache = tier.tier.metadata.cache(role.partition)
        bounds = (log.log_start_offset, log.local_log_start_offset)
        seen = _Seen(log, *bounds, log.truncations, len(log.epochs.entries), cache, cache.changes)
        key = (observed.broker.node_id, (partition.topic_id, partition.index))
        if self._seen.get(key) == seen:
            return False
        self._seen[key] = seen
        return True

    def check(self, where: object, observed: ObservedBroker, partition: Partition, ledger: Ledger) -> None:
        """Check that the tier serves all records from the log start (or from a start that a leader has announced) to
        the local log, for a replica that has ``moved``. Raises InvariantBroken."""
        key = (partition.topic_id, partition.index)
        seen = self._seen[observed.broker.node_id, key]
        log, cache = seen.log, seen.cache
        end = min(log.local_log_start_offset, log.high_watermark)
        at = first = max(log.log_start_offset, self._starts.get(key, 0))
        served = cache.served(log.log_start_offset, leader_epochs=log.epochs.entries, log_end=log.log_end_offset)
        for served_segment in served:
            if served_segment.last < first:
                continue
            if served_segment.first > at and not (
                at == first and self._may_start_at(key, log, ledger, served_segment.first)
            ):
                break  # Otherwise a former leader deletes expired segments, and the log will start after them.
            at = served_segment.last + 1
            self._check_objects(where, log, served_segment, ledger)
        if at == first and self.freed.reaches(log, end):
            return  # A follower whose leader has more records locally; if it is elected, the log will start there.
        demand(
            at >= end,
            where,
            f"its log starts at {log.log_start_offset} and locally at {end}, and {at} is not in the tier",
        )

    def _check_objects(self, where: object, log: UnifiedLog, served: ServedSegment, ledger: Ledger) -> None:
        segment = served.segment
        paths = {suffix: f"{FOLDER}/{object_path(segment, suffix)}" for suffix in sorted(REQUIRED)}
        if segment.at_risk or any(path in self.away for path in paths.values()):
            return  # A former leader may delete an unreliable segment at any time; it is being republished.
        lost = [path for path in paths.values() if path in self.lost]
        for path in paths.values():
            demand(path in self._storage.files or path in lost, where, f"{path}, which it needs, is not in the tier")
        known = (segment.id, served.first, served.last)
        if known in self._verified:
            return
        if paths[_CHECKPOINT] not in lost:
            self._check_epochs(where, segment, bytes(self._storage.files[paths[_CHECKPOINT]].data))
        if paths[LOG_SUFFIX] not in lost:
            self._check_records(where, log, served, ledger, paths[LOG_SUFFIX])
        self._verified.add(known)

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
        """Check the leader epoch checkpoint of a segment: its last entries are the segment's epochs. The log may have
        started within the segment."""
        entries = decode_epochs(checkpoint)
        last = segment.epochs[1:]
        agree = not last or tuple(entries[-len(last) :]) == last
        first = epoch_at(max(segment.start_offset, segment.epochs[0].start), entries)
        demand(
            agree and first is not None and entries[first].epoch == segment.epochs[0].epoch,
            where,
            f"the tier's checkpoint of {segment.start_offset} says {entries}, its metadata {segment.epochs}",
        )


def _bytes_from(log: UnifiedLog, ledger: Ledger, start: int) -> int:
    """Return the bytes of the log from ``start`` on, as a leader counts them: including uncommitted bytes, those of the
    segments that end after the last committed record."""
    following = [segment.base_offset for segment in log.segments][1:]
    closed = sum(segment.size for segment, end in zip(log.segments, following, strict=False) if end > ledger.end)
    return ledger.bytes_from(start) + closed + log.segments.active.size
