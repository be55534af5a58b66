"""One fetch, like Kafka's DelayedFetch: reads partitions within the limits of KIP-74, and waits for more records
(docs/kafka-semantics.md: Fetch).

The first pass reads all partitions in order. If there are fewer than ``min_bytes``, the operation waits in the
purgatory. A change of a partition reads only that partition again; when the operation completes, all are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Protocol, final

from milena.broker.reading.partition_read import PartitionRead, RemotePartitionRead, TieredForFollower
from milena.broker.replica.expected_followers import FollowerFetches
from milena.broker.replica.fetch_sessions import FetchPlan, RequestedPartition
from milena.broker.replica.partition import Partition
from milena.broker.replica.partitions import PartitionSet
from milena.broker.replica.read_result import EMPTY_SLICE, ReadResult, without_file
from milena.broker.replica.replica_state import FollowerFetch, ReplicaState
from milena.broker.replica.replication_quotas import ReplicaQuota
from milena.broker.waiting.purgatory import Requester
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset

CONSUMER: Final = NodeId(-1)
FILES_BEFORE_COPIES: Final = 64
MAX_FILES: Final = 256
MAX_COPIED_RANGE: Final = 16 << 10
MAX_COPIED_BYTES: Final = 2 << 20
"""Each file range in a response holds a file descriptor until it is sent. After ``FILES_BEFORE_COPIES`` ranges, those
of at most ``MAX_COPIED_RANGE`` bytes are copied, up to this many bytes in total; after ``MAX_FILES`` ranges, the
response is full."""
PARTITIONS_PER_YIELD: Final = 500
"""Partitions that are read between two yields: a few milliseconds."""
_MAYBE_IN_TIER: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE})


class TierReads(Protocol):
    """Reads of the remote tier (``broker.reading.remote_reads``)."""

    def throttles(self) -> bool:
        """Whether the tier's read quota is exceeded, so that nothing may be read from it now."""
        ...

    def read(
        self,
        fetch: Fetch,
        limits: FetchLimits,
        results: list[PartitionRead],
        done: Callable[[list[PartitionRead]], None],
        requester: Requester,
    ) -> bool:
        """Read the records of each RemotePartitionRead in ``results``, then call ``done``. Returns False, and does
        nothing, if there is none."""
        ...


@final
class FetchLimits:
    """The limits of one request. Sizes in bytes, the wait in milliseconds."""

    __slots__ = (
        "committed", "listener", "max_bytes", "max_wait_ms", "min_bytes", "only_leader", "rack", "refusal_of",
        "replica", "replica_epoch", "throttle", "tier",
    )  # fmt: skip

    def __init__(
        self,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        committed: bool,
        replica: NodeId,
        replica_epoch: BrokerEpoch,
        only_leader: bool,
        rack: str,
        listener: str,
        throttle: ReplicaQuota | None = None,
        tier: TierReads | None = None,
        refusal_of: Callable[[str | None, int], ErrorCode] | None = None,
    ) -> None:
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes
        self.max_wait_ms = max_wait_ms
        self.committed = committed
        """Whether the isolation level is read_committed: reads end at the last stable offset."""
        self.replica = replica
        """-1 for a consumer, -2 for a debugging one, else the follower's node id."""
        self.replica_epoch = replica_epoch
        """The follower's broker epoch; -1 if the request has none."""
        self.only_leader = only_leader
        """False if any replica may serve the request (consumers since KIP-392)."""
        self.rack = rack
        """The consumer's rack, if it may be redirected to a replica there (KIP-392); else empty."""
        self.listener = listener
        """The listener of the request; a preferred replica must have it."""
        self.throttle = throttle
        """The replication quota for a follower; None for consumers or without a quota."""
        self.tier = tier
        """Serves consumers the records that are only in the tier."""
        self.refusal_of = refusal_of
        """Returns the error of a partition, by topic name and index, if a fault rule refuses it."""

    def is_throttled(self, partition: Partition) -> bool:
        """Whether an out-of-sync follower gets no records of ``partition`` now (KIP-73)."""
        quota = self.throttle
        return quota is not None and self.replica not in partition.isr and quota.throttles(partition) and quota.exceeded


class Fetch:
    """The fetch of one request. ``done`` is called exactly once with all results, local and from the tier, unless the
    operation is abandoned."""

    __slots__ = (
        "_available",
        "_done",
        "_final_results",
        "_is_follower",
        "_limits",
        "_now_ms",
        "_partitions",
        "_plan",
        "_requester",
        "_run_later",
        "_sizes",
        "_watched_partitions",
    )

    def __init__(
        self,
        partitions: PartitionSet,
        plan: FetchPlan,
        limits: FetchLimits,
        done: Callable[[list[PartitionRead]], None],
        requester: Requester,
        run_later: Callable[[Cooperative[None]], None],
        *,
        now_ms: int,
    ) -> None:
        """``run_later`` runs the cooperative work that remains after the wait. ``now_ms``: the time of the request on
        the monotonic clock."""
        self._requester = requester
        self._run_later = run_later
        self._partitions = partitions
        self._plan = plan
        self._limits = limits
        self._done = done
        self._is_follower = limits.replica >= 0
        self._now_ms = now_ms
        self._watched_partitions: dict[Partition, list[RequestedPartition]] = {}
        """The partitions of a fetch without session, with the entries of the request that name them."""
        self._available = 0
        """Bytes that could be sent now."""
        self._sizes: dict[RequestedPartition, int] = {}
        """The part of ``_available`` of each partition."""
        self._final_results: list[PartitionRead] | None = None
        """The results of ``ready``, if they are all results of the request."""

    def run(self) -> Cooperative[tuple[Hashable, ...] | None]:
        """Read all partitions, and record a follower's progress. Returns None if the fetch is complete and ``done`` was
        called, else the keys to watch: the partitions, or the session, which its partitions notify.

        If there are more than ``PARTITIONS_PER_YIELD`` partitions, it yields, and the session listens for changes of
        each partition from its read on; a fetch without a session gets a temporary one. The caller must hold the
        purgatory's changes until this operation waits: a follower's progress may complete others."""
        plan = self._plan
        if plan.session is None and len(plan.requested) > PARTITIONS_PER_YIELD:
            plan.create_temporary_session(self._now_ms)
        session = plan.session
        results = yield from self._read(first=True)
        is_empty = not results and (session is None or not session.partitions)
        if self._limits.max_wait_ms <= 0 or is_empty or self._is_enough(results):
            self._finish(results)
            return None
        for entry in results:
            self._available += entry.size
            if entry.size:
                self._sizes[entry.requested] = entry.size
            if plan.notes_reads:  # the session listens already
                continue
            assert entry.partition is not None
            if session is None:
                self._watched_partitions.setdefault(entry.partition, []).append(entry.requested)
            else:
                session.listen(entry.requested, entry.partition)
        if session is None:
            return tuple(self._watched_partitions)
        if not plan.notes_reads:
            session.take_changed()
        elif self.ready(session):  # a partition has changed after it was read
            self._finish((yield from self._read()))
            return None
        return (session,)

    def finish(self) -> Cooperative[None]:
        """Read all partitions again, and call ``done``."""
        self._finish((yield from self._read()))

    def _finish(self, results: list[PartitionRead]) -> None:
        tier = self._limits.tier
        if tier is None or not tier.read(self, self._limits, results, self._done, self._requester):
            self._done(results)

    def _read(self, *, first: bool = False) -> Cooperative[list[PartitionRead]]:
        """Read all partitions of the plan in order. Only the ``first`` pass records the follower's progress."""
        partitions = self._plan.partitions
        session = self._plan.session
        if session is not None:
            self._plan.notes_reads = len(partitions) > PARTITIONS_PER_YIELD
            if self._plan.notes_reads:
                session.take_changed()
        remaining = self._limits.max_bytes
        min_one = True
        results: list[PartitionRead] = []
        files, copy_budget = 0, MAX_COPIED_BYTES
        for requested in partitions:
            entry = self._read_partition(requested, remaining, min_one, records_progress=first and self._is_follower)
            size = entry.size
            # KIP-74: the first batch of the first non-empty partition is sent even if it exceeds the limits.
            if size:
                min_one = False
                remaining = max(0, remaining - size)
                if (
                    files >= FILES_BEFORE_COPIES
                    and size <= min(MAX_COPIED_RANGE, copy_budget)
                    and entry.result is not None
                ):
                    entry.result = without_file(entry.result)
                    copy_budget -= size
                else:
                    files += 1
                    remaining = remaining if files < MAX_FILES else 0  # the next fetch reads the other partitions
            results.append(entry)
            if not len(results) % PARTITIONS_PER_YIELD and len(results) < len(partitions):
                yield
        return results

    def read_others(self, known: Mapping[RequestedPartition, PartitionRead]) -> list[PartitionRead]:
        """Read all partitions except those whose results are ``known``, within the remaining limit. Returns all
        results. Records that have moved to the tier since then are read by the next fetch."""
        remaining = max(0, self._limits.max_bytes - sum(entry.size for entry in known.values()))
        results = []
        for requested in self._plan.partitions:
            entry = known.get(requested)
            if entry is None:
                entry = self._read_partition(requested, remaining, False)
                if isinstance(entry, RemotePartitionRead):
                    entry = PartitionRead(requested, entry.partition, entry.result)
                remaining = max(0, remaining - entry.size)
            results.append(entry)
        return results

    def _read_partition(
        self, requested: RequestedPartition, remaining: int, min_one: bool, *, records_progress: bool = False
    ) -> PartitionRead:
        entry = self._read_one(requested, remaining, min_one, records_progress)
        if self._plan.notes_reads and entry.partition is not None and self._plan.session is not None:
            self._plan.session.note_read(requested, entry.partition, self._plan)
        return entry

    def _read_one(
        self, requested: RequestedPartition, remaining: int, min_one: bool, records_progress: bool
    ) -> PartitionRead:
        limits = self._limits
        epoch, partition, state, result = requested.current_leader_epoch, None, None, None
        try:
            partition = self.find(requested)
            if limits.refusal_of is not None and (refusal := limits.refusal_of(requested.topic, requested.index)):
                return PartitionRead(requested, partition, None, refusal)
            if self._is_follower:
                state = partition.require_follower(limits.replica, limits.replica_epoch, current_leader_epoch=epoch)
            elif limits.rack:
                result = partition.redirect(limits.rack, Offset(requested.offset), limits.listener, epoch)
            result = result or partition.read(
                Offset(requested.offset),
                min(requested.max_bytes, remaining),
                min_one=min_one,
                current_leader_epoch=epoch,
                last_fetched_epoch=(
                    None if requested.last_fetched_epoch is None else LeaderEpoch(requested.last_fetched_epoch)
                ),
                committed=limits.committed,
                follower=limits.replica != CONSUMER,  # or a debugging consumer (-2), which reads to the log end
                only_leader=limits.only_leader,
            )
            # A diverging follower does not have everything before its offset (KAFKA-13141).
            if records_progress and result.diverging is None:
                self._record_progress(partition, requested, result, state)
            if limits.throttle is not None and limits.is_throttled(partition):
                result = result.with_slice(EMPTY_SLICE, result.aborted)
        except KafkaError as error:
            if error.code in _MAYBE_IN_TIER and partition is not None:
                tiered = self._read_tiered(requested, partition, min(requested.max_bytes, remaining), min_one)
                if tiered is not None:
                    return tiered
            return PartitionRead(requested, partition, None, error.code)
        return PartitionRead(requested, partition, result)

    def _read_tiered(
        self, requested: RequestedPartition, partition: Partition, max_bytes: int, min_one: bool
    ) -> PartitionRead | None:
        """Return the result for an offset between log start and local log start, whose records may be in the tier
        (docs/kafka-semantics.md: Remote fetches); None for other offsets or without a tier."""
        log, tier = partition.log, self._limits.tier
        if (
            log is None
            or not log.remote_enabled
            or not log.log_start_offset <= requested.offset < log.local_log_start_offset
        ):
            return None
        high_watermark, start = log.high_watermark, log.log_start_offset
        if self._is_follower:
            bounds = ReadResult(high_watermark, Offset(-1), start, log.log_end_offset)
            return TieredForFollower(requested, partition, bounds, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        if tier is None:
            return None
        stable = log.last_stable_offset
        aborted = () if self._limits.committed else None
        upper = stable if self._limits.committed else high_watermark
        bounds = ReadResult(high_watermark, stable, start, upper, aborted=aborted)
        if not (max_bytes or min_one) or tier.throttles():  # an empty result: the client fetches again
            return PartitionRead(requested, partition, bounds)
        return RemotePartitionRead(requested, partition, bounds, max_bytes=max_bytes, min_one=min_one)

    def _record_progress(
        self, partition: Partition, requested: RequestedPartition, result: ReadResult, state: ReplicaState | None
    ) -> None:
        partition.follower_fetched(
            FollowerFetch(
                self._limits.replica,
                self._limits.replica_epoch,
                Offset(requested.offset),
                Offset(requested.log_start_offset),
                result.upper,
                self._now_ms,
                requested,
                requested.current_leader_epoch is not None,
            ),
            state,
        )

    def find(self, requested: RequestedPartition) -> Partition:
        """Return the hosted partition. Raises KafkaError.

        The topic id of a session's partition is resolved to a name once (UNKNOWN_TOPIC_ID until then), as in Kafka.
        Later the partition is found by that name, so the error for a deleted topic is UNKNOWN_TOPIC_OR_PARTITION, and
        INCONSISTENT_TOPIC_ID if another topic has the name."""
        if requested.topic is None:
            assert requested.topic_id is not None
            requested.topic = self._partitions.name_of(requested.topic_id)
        partition = self._partitions.get(requested.topic, requested.index)
        if requested.topic_id is not None and partition.topic_id is not requested.topic_id:
            if partition.topic_id != requested.topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            requested.topic_id = partition.topic_id  # the same object, so that later comparisons are by identity
        return partition

    def _is_enough(self, results: list[PartitionRead]) -> bool:
        """Whether the results are sent without a wait: an urgent one, or ``min_bytes``."""
        total = 0
        for entry in results:
            if entry.is_urgent:
                return True
            total += entry.size
        return total >= self._limits.min_bytes

    # -- waiting

    def ready(self, key: Hashable) -> bool:
        """Read the changed partitions. Returns whether one is urgent (an error, a diverging epoch) or there are
        ``min_bytes`` to send. A new partition to follow ends the wait too, see ``expected_followers``."""
        if isinstance(key, FollowerFetches):
            return True
        session = self._plan.session
        changed = self._watched_partitions[key] if isinstance(key, Partition) else []
        if session is not None:
            changed = session.take_changed()
        for requested in changed:
            entry = self._read_partition(requested, self._limits.max_bytes, True)
            self._final_results = [entry] if len(changed) == 1 and self._plan.is_only(requested) else None
            if entry.is_urgent or entry.partition is None:
                return True
            self._available += entry.size - self._sizes.get(requested, 0)
            self._sizes[requested] = entry.size
            if session is not None:
                session.listen(requested, entry.partition)
        return self._available >= self._limits.min_bytes

    def complete(self) -> None:
        """Called directly after ``ready``, so the results of ``ready`` are still valid."""
        if self._final_results:
            self._finish(self._final_results)
        else:
            self._run_later(self.finish())

    def expire(self) -> None:
        self._run_later(self.finish())

    def abandon(self) -> None:
        """Close the temporary session: the connection is closed, or about to be."""
        self._plan.close()
