"""One replica on this broker: its role, its log, its high watermark.

::

    offline <-- (log directory fails) -- leader <--> follower        (roles follow the metadata image)

All methods are synchronous and run on the loop, so that the state has one writer. The leader's work on its followers
(their states, the ISR, the high watermark) is in ``broker.replica.leader_state``; ``broker.follower`` fetches for
followers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from milena.broker.metadata.metadata_view import INTERNAL_TOPICS
from milena.broker.replica.fetch_sessions import Session, Wanted
from milena.broker.replica.isr import Isr
from milena.broker.replica.leader_state import LeaderState
from milena.broker.replica.meters import TopicMeters
from milena.broker.replica.partition_registration import PartitionRegistration
from milena.broker.replica.read_result import NOTHING, ReadResult
from milena.broker.replica.replica_state import FollowerFetch, ReplicaState
from milena.broker.replica.replication import Replication
from milena.broker.waiting.purgatory import OffsetReached, Purgatory, Ticket
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch
from milena.storage.log.append_info import AppendInfo, Origin
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.log.validation import LogValidator

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
        ended: Callable[[Partition, BrokenInvariant], object] = lambda partition, _: partition.take_offline(),
    ) -> None:
        """``ended`` is called if an invariant is broken: it takes this partition offline."""
        self.topic: Final = topic
        self.index: Final = index
        self.topic_id: Final = topic_id
        self.is_internal: Final = topic in INTERNAL_TOPICS
        self.meters: Final = meters
        self.log: UnifiedLog | None = None
        self.is_leader = False
        self.leader_state: LeaderState | None = None
        """The leader's work, while this replica leads."""
        self.listeners: Final[dict[Wanted, Session]] = {}
        """The fetch sessions that listen for its next change."""
        self.term = 0
        """Counts the times that this replica became the leader: records appended in an earlier term may be gone."""
        self.registration: Final = PartitionRegistration()
        """Leader, epochs, replicas and ISR. They change only there."""
        self._purgatory = purgatory
        self._replication = replication
        self._ended = ended

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
        """What the high watermark waits for: also members that the controller may already have added to the ISR."""
        return self.registration.maximal_isr

    @property
    def online_log(self) -> UnifiedLog:
        """Raises KafkaError KAFKA_STORAGE_ERROR while the log's directory is offline."""
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
        return min(self.online_log.config.min_insync_replicas, len(self.registration.replicas))

    # -- roles

    def become(self, image: PartitionImage) -> bool:
        """Take the role that the metadata gives. Returns False if the metadata is older than what is known (equal is
        accepted). Needs a log. Raises KafkaError."""
        log = self.online_log
        try:
            if not self.registration.accepts(image):
                return False
            self._become(image, log)
        except BrokenInvariant as broken:
            raise self.end(broken) from broken
        self.changed()
        return True

    def _become(self, image: PartitionImage, log: UnifiedLog) -> None:
        leads = image.leader == self._replication.node_id
        is_new_epoch = not self.is_leader or image.leader_epoch > self.leader_epoch
        if leads and is_new_epoch:
            log.assign_epoch(image.leader_epoch, log.log_end_offset)
        had = self.isr
        before = self.registration.take(image)
        if not leads:
            self._stop_leading()
            return
        if self.leader_state is None:
            self.leader_state = LeaderState(self, self._replication, had)
            self.is_leader = True
            self.term += 1
        self.leader_state.renew(image, before, new_epoch=is_new_epoch)
        self.leader_state.maybe_advance_high_watermark()

    def _stop_leading(self) -> None:
        self.is_leader = False
        if self.leader_state is not None:
            self.registration.roll_back()
            self.leader_state = None

    def note_offline(self, image: PartitionImage) -> None:
        """The metadata has changed while the log is not available."""
        with suppress(BrokenInvariant):  # it is already offline
            if self.registration.accepts(image):
                self.registration.take(image)
        self._stop_leading()
        self.changed()

    def end(self, broken: BrokenInvariant) -> KafkaError:
        """An invariant is broken: go offline before any request is answered. Returns the error to answer with."""
        self._ended(self, broken)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(broken))

    def take_offline(self) -> None:
        """The log directory has failed."""
        self._stop_leading()
        self.log = None
        self.changed()

    def stop(self) -> None:
        """The replica is removed from this broker: notify the waiting operations."""
        self._stop_leading()
        self.log = None
        self.registration.forget_leader()
        self.changed()

    def changed(self) -> None:
        """Notify the operations that wait for this partition."""
        if self.listeners:
            listeners = list(self.listeners.items())
            self.listeners.clear()
            for wanted, session in listeners:
                session.note_changed(wanted)
                self._purgatory.changed(session)
        self._purgatory.changed(self)

    def watermark_moved(self) -> None:
        """Notify waiting operations. Followers read past the high watermark, and learn of it with the next answer."""
        for wanted, session in list(self.listeners.items()):
            if session.privileged:
                session.read_next(wanted)
            else:
                del self.listeners[wanted]
                session.note_changed(wanted)
                self._purgatory.changed(session)
        self._purgatory.changed(self)

    # -- checks

    def require(self, current_leader_epoch: int | None = None, *, leader: bool = True) -> UnifiedLog:
        """The log, if the caller's view of this partition is right. Raises KafkaError KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER."""
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
        """The state of a follower. Raises KafkaError unless this replica leads and ``replica`` may follow it: the
        errors of ``require`` and of ``LeaderState.follower``."""
        self.require(current_leader_epoch)
        assert self.leader_state is not None
        return self.leader_state.follower(replica, broker_epoch, named_epoch=current_leader_epoch is not None)

    @property
    def is_in_sync(self) -> bool:
        """Whether this replica is in the committed ISR."""
        return self._replication.node_id in self.isr

    def may_join(self, replica: NodeId) -> bool:
        """Whether this is a follower outside of the ISR: each of its fetches may let it join."""
        return self.leader_state is not None and replica in self.leader_state.followers and replica not in self.isr

    # -- the leader's work

    def append(self, records: memoryview, acks: int, *, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Append one batch as the leader. Offsets and epoch are written into ``records`` in place. Raises KafkaError
        with the code for the client, and writes nothing in that case."""
        appended = self.begin_append(records, acks, origin)
        if isinstance(appended, AppendInfo):
            return appended
        appended.finish()
        return self.append_validated(appended, acks)

    def begin_append(self, records: memoryview, acks: int, origin: Origin = Origin.CLIENT) -> AppendInfo | LogValidator:
        """``append`` if the check is little work, else the unfinished check, for ``append_validated``. Raises
        KafkaError."""
        log = self._log_to_append_to(acks)
        try:
            validator = log.validate(records, origin)
            if not validator.is_finished:
                return validator
            return self._grown(log.append_validated(validator, leader_epoch=self.registration.leader_epoch))
        except BrokenInvariant as broken:
            raise self.end(broken) from broken

    def append_validated(self, validator: LogValidator, acks: int) -> AppendInfo:
        """Append the batch of ``validator``, which is finished and for the current configuration. Raises
        KafkaError."""
        log = self._log_to_append_to(acks)
        try:
            return self._grown(log.append_validated(validator, leader_epoch=self.registration.leader_epoch))
        except BrokenInvariant as broken:
            raise self.end(broken) from broken

    def _grown(self, info: AppendInfo) -> AppendInfo:
        assert self.leader_state is not None
        if len(self.registration.isr) == 1:
            self.leader_state.maybe_advance_high_watermark()
        self.changed()
        return info

    def _log_to_append_to(self, acks: int) -> UnifiedLog:
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
        """A follower has everything before an offset and asks for more (docs/kafka-semantics.md: Follower fetch state).
        ``state``: what ``require_follower`` has just returned. Notifies waiting operations if the high or low watermark
        may have moved. Raises KafkaError: NOT_LEADER_OR_FOLLOWER for a stale broker epoch; for a node without a replica
        the same, or UNKNOWN_LEADER_EPOCH if it named a leader epoch; KAFKA_STORAGE_ERROR if an invariant is broken."""
        leader_state = self.leader_state
        if leader_state is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if state is None:
            state = leader_state.follower(fetch.node, fetch.broker_epoch, named_epoch=fetch.named_leader_epoch)
        try:
            moved = leader_state.fetched(state, fetch)
        except BrokenInvariant as broken:
            raise self.end(broken) from broken
        if moved:
            self.watermark_moved()

    def review(self) -> None:
        """Something that the ISR and the high watermark depend on has changed without a fetch."""
        if self.leader_state is not None:
            try:
                self.leader_state.review()
            except BrokenInvariant as broken:
                self.end(broken)

    def on_high_watermark(self, offset: Offset, callback: Callable[[bool], object], *, seconds: float) -> Ticket | None:
        """Call back with True once the high watermark reaches ``offset``, at once if it already has; with False if the
        current leadership ends or the time is up."""
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
        """Move the log start up to ``offset``, None for the high watermark; returns that offset. The records are
        deleted once the low watermark reaches it.

        Raises KafkaError OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION if the topic does not allow it."""
        log = self.require()
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {self.topic} does not let records go")
        wanted = log.high_watermark if offset is None else offset
        if wanted < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no offset {wanted}")
        log.increment_log_start(wanted)
        return wanted

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start of this leader and of the followers on live brokers. Raises KafkaError."""
        self.require()
        assert self.leader_state is not None
        return self.leader_state.low_watermark

    # -- reads

    def end_of_epoch(
        self, requested: LeaderEpoch, *, current_leader_epoch: int | None, leader: bool = True
    ) -> tuple[LeaderEpoch | None, Offset | None]:
        """Where a leader epoch ends in this log (KIP-101), both None if unknown. The newest epoch ends at the log end
        offset, not at the high watermark."""
        return self.require(current_leader_epoch, leader=leader).leader_epoch_end_offset(requested)

    def redirect(self, rack: str, offset: Offset, listener: str, current_leader_epoch: int | None) -> ReadResult | None:
        """A result without records that names a nearer follower for a consumer in ``rack`` (KIP-392), or None. Only
        leaders redirect. Raises KafkaError."""
        if self.leader_state is None:
            return None
        node = self.leader_state.nearest(rack, offset, listener)
        if node is None:
            return None
        log = self.require(current_leader_epoch)
        return ReadResult(log.high_watermark, log.last_stable_offset, log.log_start_offset, offset, nearest=node)

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
        """Read from ``offset`` as far as this reader may (docs/kafka-semantics.md: Diverging epochs, Fetch). Raises
        KafkaError."""
        log = self.require(current_leader_epoch, leader=only_leader)
        high_watermark, stable, start = log.high_watermark, log.last_stable_offset, log.log_start_offset
        upper = log.log_end_offset if follower else stable if committed else high_watermark
        # Most readers are in the latest epoch and within the log, and do not diverge.
        if last_fetched_epoch is not None and not (
            last_fetched_epoch == log.epochs.latest and start <= offset <= log.log_end_offset
        ):
            epoch, end = log.leader_epoch_end_offset(last_fetched_epoch)
            if epoch is None or end is None or offset < start:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < last_fetched_epoch or end < offset:
                return ReadResult(high_watermark, stable, start, upper, diverging=(epoch, end))
        if follower and start <= offset < log.local_log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        # Most fetches wait at the end: there is nothing to look up.
        piece = NOTHING if offset == upper else log.read(offset, max_bytes, upper=upper, min_one=min_one)
        aborted: Sequence[tuple[int, int]] | None = None
        if committed and not follower:
            aborted = None if max_bytes and offset != upper else ()  # None as in Kafka: the first batch is too large
            if piece.length:
                aborted = [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(offset, upper)]
        return ReadResult(high_watermark, stable, start, upper, piece, aborted=aborted)
