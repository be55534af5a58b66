"""One replica on this broker, like Kafka's Partition: its leadership, its log, its high watermark.

::

    offline <-- (log directory fails) -- leader <--> follower        (the metadata image decides)

All methods are synchronous and run on the event loop, so that the state has one writer. The followers' states, the ISR
and the high watermark of a leader are in ``broker.replica.leader_state``; ``broker.follower`` fetches for followers.
How a replica leaves service:

- ``take_offline``: the log directory has failed; waiting operations are completed with an error.
- ``fail``: an invariant is broken; the replica goes offline.
- ``update_offline``: the metadata of an offline replica has changed.
- ``stop``: the replica is removed from this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from milena.broker.metadata.metadata_view import INTERNAL_TOPICS
from milena.broker.replica.fetch_sessions import RequestedPartition, Session
from milena.broker.replica.isr import Isr
from milena.broker.replica.leader_state import LeaderState
from milena.broker.replica.meters import TopicMeters
from milena.broker.replica.partition_registration import PartitionRegistration
from milena.broker.replica.read_result import EMPTY_SLICE, ReadResult
from milena.broker.replica.replica_state import FollowerFetch, ReplicaState
from milena.broker.replica.replication import Replication
from milena.broker.waiting.purgatory import OffsetReached, Purgatory, Ticket
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.validation import LogValidator, Origin
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch
from milena.storage.log.unified_log import AppendInfo, UnifiedLog
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard

ACKS_ALL: Final = -1


class Partition:
    """A hosted replica. ``log`` is None while its log directory is offline."""

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        purgatory: Purgatory,
        meters: TopicMeters,
        replication: Replication,
        on_failure: Callable[[Partition, BrokenInvariant], object] = lambda partition, _: partition.take_offline(),
    ) -> None:
        """``on_failure`` is called if an invariant is broken, and must take this partition offline."""
        self.topic: Final = topic
        self.index: Final = index
        self.topic_id: Final = topic_id
        self.is_internal: Final = topic in INTERNAL_TOPICS
        self.meters: Final = meters
        self.log: UnifiedLog | None = None
        self.is_leader = False
        self.leader_state: LeaderState | None = None
        """The state of the leadership; None if this replica does not lead."""
        self.listeners: Final[dict[RequestedPartition, Session]] = {}
        """The fetch sessions that are notified of the partition's next change."""
        self.term = 0
        """Counts how often this replica became the leader. Records that it appended in an earlier term may have been
        truncated since."""
        self.registration: Final = PartitionRegistration()
        """Leader, epochs, replicas and ISR."""
        self._purgatory = purgatory
        self._replication = replication
        self._on_failure = on_failure

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index} epoch {self.leader_epoch}{' leader' if self.is_leader else ''}>"

    @property
    def leader(self) -> NodeId | None:
        return self.registration.leader

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.registration.leader_epoch

    @property
    def partition_epoch(self) -> PartitionEpoch:
        return self.registration.partition_epoch

    @property
    def replicas(self) -> tuple[NodeId, ...]:
        return self.registration.replicas

    @property
    def isr(self) -> Isr:
        """The committed ISR."""
        return self.registration.isr

    @property
    def maximal_isr(self) -> Isr:
        """The ISR with the members that the controller may already have added (PartitionState.maximalIsr)."""
        return self.registration.maximal_isr

    @property
    def online_log(self) -> UnifiedLog:
        """The log. Raises KafkaError KAFKA_STORAGE_ERROR while the log directory is offline."""
        if self.log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return self.log

    @property
    def high_watermark(self) -> Offset:
        return self.online_log.high_watermark

    @property
    def leader_epoch_start_offset(self) -> Offset:
        """The log end offset when the current leader epoch began; -1 on a follower."""
        return Offset(-1) if self.leader_state is None else self.leader_state.start_offset

    @property
    def effective_min_isr(self) -> int:
        """``min.insync.replicas``, or the replication factor if that is lower."""
        return min(self.online_log.config.min_insync_replicas, len(self.registration.replicas))

    # -- leadership

    def become(self, image: PartitionImage) -> bool:
        """Become leader or follower by the metadata (Partition.makeLeader, makeFollower). Returns False if the metadata
        is older than that applied already; equal metadata is accepted. Raises KafkaError KAFKA_STORAGE_ERROR if there
        is no log or an invariant is broken."""
        log = self.online_log
        try:
            if not self.registration.accepts(image):
                return False
            self._become(image, log)
        except BrokenInvariant as broken:
            raise self.fail(broken) from broken
        self.changed()
        return True

    def _become(self, image: PartitionImage, log: UnifiedLog) -> None:
        leads = image.leader == self._replication.node_id
        is_new_epoch = not self.is_leader or image.leader_epoch > self.leader_epoch
        # Before the registration changes: if the epoch cannot be written, the replica does not become leader.
        if leads and is_new_epoch:
            log.assign_epoch(image.leader_epoch, log.log_end_offset)
        previous_isr = self.isr
        before = self.registration.apply_image(image)
        if not leads:
            self._stop_leading()
            return
        if self.leader_state is None:
            self.leader_state = LeaderState(self, self._replication, previous_isr)
            self.is_leader = True
            self.term += 1
        self.leader_state.update_assignment(image, before, new_epoch=is_new_epoch)
        self.leader_state.maybe_advance_high_watermark()

    def _stop_leading(self) -> None:
        self.is_leader = False
        if self.leader_state is not None:
            self.registration.roll_back()
            self.leader_state = None

    def update_offline(self, image: PartitionImage) -> None:
        """Apply metadata while the log is offline."""
        with suppress(BrokenInvariant):  # a broken invariant takes the replica offline, and it is offline already
            if self.registration.accepts(image):
                self.registration.apply_image(image)
        self._stop_leading()
        self.changed()

    def fail(self, broken: BrokenInvariant) -> KafkaError:
        """Go offline because an invariant is broken, before any further request is answered. Returns the error for
        the current one, KAFKA_STORAGE_ERROR."""
        self._on_failure(self, broken)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(broken))

    def take_offline(self) -> None:
        """Stop using the log, because its directory has failed."""
        self._stop_leading()
        self.log = None
        self.changed()

    def stop(self) -> None:
        """End the replica, which is removed from this broker, and notify waiting operations."""
        self._stop_leading()
        self.log = None
        self.registration.clear_leader()
        self.changed()

    def changed(self) -> None:
        """Notify waiting operations and listening fetch sessions that the partition has changed."""
        if self.listeners:
            listeners = list(self.listeners.items())
            self.listeners.clear()
            for requested, session in listeners:
                session.note_changed(requested)
                self._purgatory.changed(session)
        self._purgatory.changed(self)

    def watermarks_changed(self) -> None:
        """Notify waiting operations that the high or low watermark may have changed. Followers' fetches are not
        completed, because followers read up to the log end; their next response has the new high watermark."""
        for requested, session in list(self.listeners.items()):
            if session.privileged:
                session.read_next(requested)
            else:
                del self.listeners[requested]
                session.note_changed(requested)
                self._purgatory.changed(session)
        self._purgatory.changed(self)

    # -- checks

    def require(self, current_leader_epoch: int | None = None, *, leader: bool = True) -> UnifiedLog:
        """Return the log if the request has the current leader epoch (None: not checked) and, with ``leader``, this
        replica leads. Raises KafkaError KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or
        NOT_LEADER_OR_FOLLOWER."""
        log = self.log
        if log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if current_leader_epoch is not None and current_leader_epoch != self.registration.leader_epoch:
            if current_leader_epoch < self.registration.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if leader and not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def require_follower(
        self, replica: NodeId, broker_epoch: BrokerEpoch, *, current_leader_epoch: int | None
    ) -> ReplicaState:
        """Return the state of a follower. Raises KafkaError unless this replica leads and ``replica`` follows it; the
        errors are those of ``require`` and of ``LeaderState.follower``."""
        self.require(current_leader_epoch)
        assert self.leader_state is not None
        return self.leader_state.follower(replica, broker_epoch, named_epoch=current_leader_epoch is not None)

    @property
    def is_in_sync(self) -> bool:
        """Whether this replica is in the committed ISR."""
        return self._replication.node_id in self.isr

    def may_join_isr(self, replica: NodeId) -> bool:
        """Whether ``replica`` is a follower outside of the ISR, so that each of its fetches may let it join."""
        return self.leader_state is not None and replica in self.leader_state.followers and replica not in self.isr

    # -- appends and followers' fetches

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard:
        """Return the guard with which the first batch of a transaction may be appended once the coordinator has
        confirmed the transaction; NO_GUARD if no verification is needed (``ProducerState.begin_verification``). Raises
        KafkaError: this replica does not lead, or INVALID_PRODUCER_EPOCH."""
        return self.require().producers.begin_verification(
            producer_id, epoch, sequence, now_ms, bumps_epoch=bumps_epoch
        )

    def append(
        self,
        records: memoryview,
        acks: int,
        *,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check and append one batch as the leader. Offsets and epoch are written into ``records`` in place.

        ``guard``: that of the verification, for the first batch of a transaction. ``transaction_version``: that of a
        marker's transaction. Raises KafkaError with the code for the client, and appends nothing in that case."""
        appended = self.begin_append(records, acks, origin, guard, transaction_version)
        if isinstance(appended, AppendInfo):
            return appended
        appended.finish()
        return self.append_validated(appended, acks, guard, transaction_version)

    def begin_append(
        self,
        records: memoryview,
        acks: int,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> AppendInfo | LogValidator:
        """Append the batch like ``append`` if its validation is short. Otherwise return the unfinished validator; the
        caller finishes it and calls ``append_validated``. Raises KafkaError."""
        log = self._log_for_append(acks)
        try:
            begun = log.begin_append(records, self.registration.leader_epoch, origin, guard, transaction_version)
            if isinstance(begun, AppendInfo):
                self._after_append()
        except BrokenInvariant as broken:
            raise self.fail(broken) from broken
        return begun

    def append_validated(
        self,
        validator: LogValidator,
        acks: int,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append the batch of ``validator``, which is finished and was made with the current configuration. Raises
        KafkaError."""
        log = self._log_for_append(acks)
        try:
            info = log.append_validated(validator, self.registration.leader_epoch, guard, transaction_version)
            self._after_append()
        except BrokenInvariant as broken:
            raise self.fail(broken) from broken
        return info

    def _after_append(self) -> None:
        assert self.leader_state is not None
        if len(self.registration.isr) == 1:  # no follower's fetch will advance the high watermark
            self.leader_state.maybe_advance_high_watermark()
        self.changed()

    def _log_for_append(self, acks: int) -> UnifiedLog:
        log = self.log
        if self.leader_state is None or log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR if log is None else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and len(self.registration.isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas in sync where min.insync.replicas asks for {self.effective_min_isr}",
            )
        return log

    def follower_fetched(self, fetch: FollowerFetch, state: ReplicaState | None = None) -> None:
        """Apply a follower's fetch: it has everything before its fetch offset (docs/kafka-semantics.md: Follower fetch
        state). ``state``: the result of ``require_follower``, if it was called for this fetch.

        Notifies waiting operations if the high or low watermark may have moved. Raises KafkaError:
        NOT_LEADER_OR_FOLLOWER for a stale broker epoch; for a node that is not a replica the same, or
        UNKNOWN_LEADER_EPOCH if the request named a leader epoch; KAFKA_STORAGE_ERROR if an invariant is broken."""
        leader_state = self.leader_state
        if leader_state is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if state is None:
            state = leader_state.follower(fetch.node, fetch.broker_epoch, named_epoch=fetch.named_leader_epoch)
        try:
            moved = leader_state.fetched(state, fetch)
        except BrokenInvariant as broken:
            raise self.fail(broken) from broken
        if moved:
            self.watermarks_changed()

    def check_isr(self) -> None:
        """Re-evaluate ISR and high watermark of a leader without a fetch: time has passed or a broker has changed."""
        if self.leader_state is not None:
            try:
                self.leader_state.check_followers()
            except BrokenInvariant as broken:
                self.fail(broken)

    def on_high_watermark(self, offset: Offset, callback: Callable[[bool], object], *, seconds: float) -> Ticket | None:
        """Call ``callback`` with True once the high watermark reaches ``offset``, within this call if it already has;
        with False if the leadership ends or after ``seconds``."""
        if self.is_leader and self.high_watermark >= offset:
            callback(True)
            return None
        term = self.term

        def reached() -> bool | None:
            if not self.is_leader or self.term != term or self.log is None:
                return None
            return bool(self.log.high_watermark >= offset)

        return self._purgatory.wait(OffsetReached(reached, callback), (self,), seconds)

    def delete_records(self, offset: Offset | None) -> Offset:
        """Advance the log start to ``offset`` (None: to the high watermark) and return the new log start. The records
        are deleted on all replicas once ``low_watermark`` reaches it.

        Raises KafkaError OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION if cleanup.policy has no ``delete``."""
        log = self.require()
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {self.topic} does not allow to delete records"
            )
        new_start = log.high_watermark if offset is None else offset
        if new_start < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {new_start} is negative")
        log.increment_log_start(new_start)
        return new_start

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start of this leader and of the followers on unfenced brokers. Raises KafkaError."""
        self.require()
        assert self.leader_state is not None
        return self.leader_state.low_watermark

    # -- reads

    def end_of_epoch(
        self, requested: LeaderEpoch, *, current_leader_epoch: int | None, leader: bool = True
    ) -> tuple[LeaderEpoch | None, Offset | None]:
        """Return the largest leader epoch not above ``requested`` and its end offset in this log (KIP-101); both None
        if unknown. The latest epoch ends at the log end offset. Raises KafkaError."""
        return self.require(current_leader_epoch, leader=leader).leader_epoch_end_offset(requested)

    def redirect(self, rack: str, offset: Offset, listener: str, current_leader_epoch: int | None) -> ReadResult | None:
        """Return a result without records that names the preferred read replica for a consumer in ``rack`` (KIP-392);
        None if this replica should serve it. Only leaders redirect. Raises KafkaError."""
        if self.leader_state is None:
            return None
        node = self.leader_state.preferred_read_replica(rack, offset, listener)
        if node is None:
            return None
        log = self.require(current_leader_epoch)
        bounds = log.high_watermark, log.last_stable_offset, log.log_start_offset
        return ReadResult(*bounds, offset, preferred_replica=node)

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        min_one: bool,
        current_leader_epoch: int | None,
        last_fetched_epoch: LeaderEpoch | None,
        committed: bool,
        follower: bool,
        only_leader: bool,
    ) -> ReadResult:
        """Read at most ``max_bytes`` from ``offset``, for a follower or a consumer (docs/kafka-semantics.md: Diverging
        epochs, Fetch).

        ``committed``: isolation read_committed. ``min_one``: read the first batch even if it is longer.
        ``only_leader``: fail on a follower. If the reader's log diverges, the result has ``diverging`` and no records.
        Raises KafkaError."""
        log = self.require(current_leader_epoch, leader=only_leader)
        high_watermark, stable, start = log.high_watermark, log.last_stable_offset, log.log_start_offset
        upper = log.log_end_offset if follower else stable if committed else high_watermark
        # The look-up is skipped in the common case: the reader is in the latest epoch and within the log.
        if last_fetched_epoch is not None and not (
            last_fetched_epoch == log.epochs.latest and start <= offset <= log.log_end_offset
        ):
            epoch, end = log.leader_epoch_end_offset(last_fetched_epoch)
            # This log has no records of the reader's epoch or an earlier one, or no longer the record at ``offset``.
            if epoch is None or end is None or offset < start:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < last_fetched_epoch or end < offset:
                return ReadResult(high_watermark, stable, start, upper, diverging=(epoch, end))
        if follower and start <= offset < log.local_log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        # The look-up is skipped if the reader has everything, as most fetches have.
        piece = EMPTY_SLICE if offset == upper else log.read(offset, max_bytes, upper=upper, min_one=min_one)
        aborted: Sequence[tuple[int, int]] | None = None
        if committed and not follower:
            aborted = None if max_bytes and offset < upper else ()  # None as in Kafka: the first batch is too large
            if piece.length:
                aborted = [(txn.producer_id, txn.first_offset) for txn in log.aborted_in(piece, offset, upper)]
        return ReadResult(high_watermark, stable, start, upper, piece, aborted=aborted)
