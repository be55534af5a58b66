"""One fetch operation: reads partitions within the limits of KIP-74, and waits for more records
(docs/kafka-semantics.md: Fetch).

The first pass reads in order. If it does not find enough, the operation waits in the purgatory. Each change of a
partition re-evaluates only that partition; when the operation completes, everything is read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Protocol, final

from milena.broker.reading.partition_read import InTier, MovedToTier, PartitionRead
from milena.broker.replica.expected_followers import FetchesOf
from milena.broker.replica.fetch_sessions import FetchPlan, Wanted
from milena.broker.replica.partition import Partition
from milena.broker.replica.partitions import PartitionSet
from milena.broker.replica.read_result import NOTHING, ReadResult, without_file
from milena.broker.replica.replica_state import FollowerFetch, ReplicaState
from milena.broker.replica.replication_quotas import ReplicaQuota
from milena.broker.waiting.purgatory import Requester
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset

CONSUMER: Final = NodeId(-1)
FEW_FILES: Final = 64
MOST_FILES: Final = 256
SMALL_RANGE: Final = 16 << 10
COPIED_BYTES: Final = 2 << 20
"""Each file in a response holds a descriptor until it is sent. After a few files small ranges are copied, up to this
many bytes; after ``MOST_FILES``, the response is full."""
PARTITIONS_PER_YIELD: Final = 500
"""Partitions that are read between two yields: some milliseconds."""
_BEYOND: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE})


class TierReads(Protocol):
    """Reads of the remote tier (``broker.reading.remote_reads``)."""

    def throttles(self) -> bool:
        """Whether the tier's read quota is exceeded: nothing is read from it for now."""
        ...

    def read(
        self,
        fetch: Fetch,
        limits: FetchLimits,
        found: list[PartitionRead],
        done: Callable[[list[PartitionRead]], None],
        requester: Requester,
    ) -> bool:
        """Read the records that are in the tier, then call ``done``; returns False, and does nothing, if ``found`` has
        none there."""
        ...


@final
class FetchLimits:
    """The limits of one request. Sizes in bytes, the wait in milliseconds."""

    __slots__ = (
        "committed", "listener", "max_bytes", "max_wait_ms", "min_bytes", "only_leader", "rack", "refuses", "replica",
        "replica_epoch", "throttle", "tier",
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
        refuses: Callable[[str | None, int], ErrorCode] | None = None,
    ) -> None:
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes
        self.max_wait_ms = max_wait_ms
        self.committed = committed
        """read_committed: up to the last stable offset."""
        self.replica = replica
        """-1 for a consumer, -2 for a debugging one, else the follower's node id."""
        self.replica_epoch = replica_epoch
        """The follower's broker epoch, -1 if it names none."""
        self.only_leader = only_leader
        """False if any replica may serve the request (consumers since KIP-392)."""
        self.rack = rack
        """The rack of a consumer that may be redirected to a nearer replica, at its address of ``listener``; else
        empty."""
        self.listener = listener
        self.throttle = throttle
        """The quota of a follower, if there is one."""
        self.tier = tier
        """Serves consumers the records that have left this broker's disk."""
        self.refuses = refuses
        """The errors of partitions that a rule refuses, by topic name and index."""

    def holds_back(self, partition: Partition) -> bool:
        """Whether a follower that is out of sync gets no records of ``partition`` for now (KIP-73)."""
        quota = self.throttle
        return quota is not None and self.replica not in partition.isr and quota.throttles(partition) and quota.exceeded


class Fetch:
    """A fetch operation. ``done`` is called exactly once with the results, local and from the tier, unless the
    operation is abandoned."""

    __slots__ = (
        "_all",
        "_available",
        "_done",
        "_follows",
        "_limits",
        "_now_ms",
        "_partitions",
        "_plan",
        "_requester",
        "_resume",
        "_sizes",
        "_watched",
    )

    def __init__(
        self,
        partitions: PartitionSet,
        plan: FetchPlan,
        limits: FetchLimits,
        done: Callable[[list[PartitionRead]], None],
        requester: Requester,
        resume: Callable[[Cooperative[None]], None],
        *,
        now_ms: int,
    ) -> None:
        """``resume`` runs the rest of the fetch after its wait. ``now_ms``: time of arrival, on the monotonic clock."""
        self._requester = requester
        self._resume = resume
        self._partitions = partitions
        self._plan = plan
        self._limits = limits
        self._done = done
        self._follows = limits.replica >= 0
        self._now_ms = now_ms
        self._watched: dict[Partition, list[Wanted]] = {}
        self._available = 0
        self._sizes: dict[Wanted, int] = {}
        self._all: list[PartitionRead] | None = None
        """The last pass, if it has read everything there is."""

    def run(self) -> Cooperative[tuple[Hashable, ...] | None]:
        """Read, and record a follower's progress. Returns None if that was enough and ``done`` has been called, else
        the keys to watch: the partitions, or the session, which is notified by its partitions.

        Yields if the partitions are many. One may change after it was read, so the session listens from its read on; a
        fetch without a session gets one of its own. A follower's progress may complete other operations: hold back the
        purgatory's changes until this one waits."""
        plan = self._plan
        if plan.session is None and len(plan.wanted) > PARTITIONS_PER_YIELD:
            plan.make_own_session(self._now_ms)
        session = plan.session
        results = yield from self._read(first=True)
        nothing = not results and (session is None or not session.partitions)
        if self._limits.max_wait_ms <= 0 or nothing or self._is_enough(results):
            self._finish(results)
            return None
        for entry in results:
            self._available += entry.size
            if entry.size:
                self._sizes[entry.wanted] = entry.size
            if plan.notes_reads:  # the session listens already
                continue
            assert entry.partition is not None
            if session is None:
                self._watched.setdefault(entry.partition, []).append(entry.wanted)
            else:
                session.listen(entry.wanted, entry.partition)
        if session is None:
            return tuple(self._watched)
        if not plan.notes_reads:
            session.take_changed()
        elif self.ready(session):  # a partition has changed after it was read
            self._finish((yield from self._read()))
            return None
        return (session,)

    def finish(self) -> Cooperative[None]:
        """Read all partitions once more, and call ``done``."""
        self._finish((yield from self._read()))

    def _finish(self, results: list[PartitionRead]) -> None:
        tier = self._limits.tier
        if tier is None or not tier.read(self, self._limits, results, self._done, self._requester):
            self._done(results)

    def _read(self, *, first: bool = False) -> Cooperative[list[PartitionRead]]:
        """Read all partitions of the plan in order. Only the ``first`` pass records the follower's progress; the others
        return what has changed since."""
        partitions = self._plan.partitions
        session = self._plan.session
        if session is not None:
            self._plan.notes_reads = len(partitions) > PARTITIONS_PER_YIELD
            if self._plan.notes_reads:
                session.take_changed()
        remaining = self._limits.max_bytes
        min_one = True
        results: list[PartitionRead] = []
        files, copies_left = 0, COPIED_BYTES
        for wanted in partitions:
            entry = self._read_partition(wanted, remaining, min_one, notes=first and self._follows)
            size = entry.size
            if size:
                min_one = False
                remaining = max(0, remaining - size)
                if files >= FEW_FILES and size <= min(SMALL_RANGE, copies_left) and entry.result is not None:
                    entry.result = without_file(entry.result)
                    copies_left -= size
                else:
                    files += 1
                    remaining = remaining if files < MOST_FILES else 0  # the next fetch reads the others
            results.append(entry)
            if not len(results) % PARTITIONS_PER_YIELD and len(results) < len(partitions):
                yield
        return results

    def read_around(self, known: Mapping[Wanted, PartitionRead]) -> list[PartitionRead]:
        """One pass over all partitions except those whose results are ``known``. Records that have moved to the tier
        since then are left to the next fetch."""
        remaining = max(0, self._limits.max_bytes - sum(entry.size for entry in known.values()))
        found = []
        for wanted in self._plan.partitions:
            entry = known.get(wanted)
            if entry is None:
                entry = self._read_partition(wanted, remaining, False)
                if isinstance(entry, InTier):
                    entry = PartitionRead(wanted, entry.partition, entry.result)
                remaining = max(0, remaining - entry.size)
            found.append(entry)
        return found

    def _read_partition(self, wanted: Wanted, remaining: int, min_one: bool, *, notes: bool = False) -> PartitionRead:
        entry = self._read_one(wanted, remaining, min_one, notes)
        if self._plan.notes_reads and entry.partition is not None and self._plan.session is not None:
            self._plan.session.note_read(wanted, entry.partition, self._plan)
        return entry

    def _read_one(self, wanted: Wanted, remaining: int, min_one: bool, notes: bool) -> PartitionRead:
        limits = self._limits
        epoch, partition, state, result = wanted.current_leader_epoch, None, None, None
        try:
            partition = self.find(wanted)
            if limits.refuses is not None and (refusal := limits.refuses(wanted.topic, wanted.index)):
                return PartitionRead(wanted, partition, None, refusal)
            if self._follows:
                state = partition.require_follower(limits.replica, limits.replica_epoch, current_leader_epoch=epoch)
            elif limits.rack:
                result = partition.redirect(limits.rack, Offset(wanted.offset), limits.listener, epoch)
            result = result or partition.read(
                Offset(wanted.offset),
                min(wanted.max_bytes, remaining),
                min_one=min_one,
                current_leader_epoch=epoch,
                last_fetched_epoch=(
                    None if wanted.last_fetched_epoch is None else LeaderEpoch(wanted.last_fetched_epoch)
                ),
                committed=limits.committed,
                follower=limits.replica != CONSUMER,
                only_leader=limits.only_leader,
            )
            if notes and result.diverging is None:  # a diverging follower lacks some of it (KAFKA-13141)
                self._note_progress(partition, wanted, result, state)
            if limits.throttle is not None and limits.holds_back(partition):
                result = result.with_slice(NOTHING, result.aborted)
        except KafkaError as error:
            if error.code in _BEYOND and partition is not None:
                tiered = self._beyond(wanted, partition, min(wanted.max_bytes, remaining), min_one)
                if tiered is not None:
                    return tiered
            return PartitionRead(wanted, partition, None, error.code)
        return PartitionRead(wanted, partition, result)

    def _beyond(self, wanted: Wanted, partition: Partition, max_bytes: int, min_one: bool) -> PartitionRead | None:
        """The result if this disk no longer has the offset but the tier may (docs/kafka-semantics.md: Remote fetches);
        else None."""
        log, tier = partition.log, self._limits.tier
        if (
            log is None
            or not log.remote_enabled
            or not log.log_start_offset <= wanted.offset < log.local_log_start_offset
        ):
            return None
        high_watermark, start = log.high_watermark, log.log_start_offset
        if self._follows:
            bounds = ReadResult(high_watermark, Offset(-1), start, log.log_end_offset)
            return MovedToTier(wanted, partition, bounds, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        if tier is None:
            return None
        stable = log.last_stable_offset
        aborted = () if self._limits.committed else None
        upper = stable if self._limits.committed else high_watermark
        bounds = ReadResult(high_watermark, stable, start, upper, aborted=aborted)
        if not (max_bytes or min_one) or tier.throttles():
            return PartitionRead(wanted, partition, bounds)
        return InTier(wanted, partition, bounds, max_bytes=max_bytes, min_one=min_one)

    def _note_progress(
        self, partition: Partition, wanted: Wanted, result: ReadResult, state: ReplicaState | None
    ) -> None:
        partition.follower_fetched(
            FollowerFetch(
                self._limits.replica,
                self._limits.replica_epoch,
                Offset(wanted.offset),
                Offset(wanted.log_start_offset),
                result.upper,
                self._now_ms,
                wanted,
                wanted.current_leader_epoch is not None,
            ),
            state,
        )

    def find(self, wanted: Wanted) -> Partition:
        """Raises KafkaError if the partition is not here. While the topic id of a session's partition has never
        resolved to a name, the error is UNKNOWN_TOPIC_ID. From then on the partition is found by that name, and a topic
        that is missing, or has another id, is not reported as an unknown id."""
        if wanted.topic is None:
            assert wanted.topic_id is not None
            wanted.topic = self._partitions.name_of(wanted.topic_id)
        found = self._partitions.get(wanted.topic, wanted.index)
        if wanted.topic_id is not None and found.topic_id is not wanted.topic_id:
            if found.topic_id != wanted.topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            wanted.topic_id = found.topic_id  # equal, and comparing the same object is cheaper from now on
        return found

    def _is_enough(self, found: list[PartitionRead]) -> bool:
        total = 0
        for entry in found:
            if entry.is_urgent:
                return True
            total += entry.size
        return total >= self._limits.min_bytes

    # -- waiting

    def ready(self, key: Hashable) -> bool:
        """Something has changed: is there now an error, a diverging epoch, or enough to send?"""
        if isinstance(key, FetchesOf):
            return True
        session = self._plan.session
        changed = self._watched[key] if isinstance(key, Partition) else []
        if session is not None:
            changed = session.take_changed()
        for wanted in changed:
            entry = self._read_partition(wanted, self._limits.max_bytes, True)
            self._all = [entry] if len(changed) == 1 and self._plan.is_only(wanted) else None
            if entry.is_urgent or entry.partition is None:
                return True
            self._available += entry.size - self._sizes.get(wanted, 0)
            self._sizes[wanted] = entry.size
            if session is not None:
                session.listen(wanted, entry.partition)
        return self._available >= self._limits.min_bytes

    def complete(self) -> None:
        """Called in the same step as ``ready``."""
        if self._all:
            self._finish(self._all)
        else:
            self._resume(self.finish())

    def expire(self) -> None:
        self._resume(self.finish())

    def abandon(self) -> None:
        """The connection is closed, or about to be."""
        self._plan.close()
