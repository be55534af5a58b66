"""The leader's state of one partition: its followers, ISR proposals, and the high watermark.

It exists as long as the leadership, across leader epochs. Everything is synchronous: proposals are sent by
``broker.replica.isr_proposals``, and their answers are passed to ``_answered``, which ignores those of a proposal that
is no longer pending. Rules: docs/kafka-semantics.md: Partition leaders, High watermark and acks, Follower fetch state,
Expanding and shrinking the ISR, AlterPartition; KIPs 497, 903 (broker epochs), 966 (strict minimum ISR).
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from milena.broker.replica.isr import (
    Committed,
    Isr,
    IsrState,
    Pending,
    PendingExpand,
    PendingShrink,
    Reaction,
    reaction,
)
from milena.broker.replica.isr_proposals import AlteredIsr, IsrProposal
from milena.broker.replica.partition_registration import PartitionRegistration
from milena.broker.replica.replica_selector import Candidate, select_replica
from milena.broker.replica.replica_state import NEVER, NO_EPOCH, UNKNOWN, FollowerFetch, ReplicaState
from milena.broker.replica.replication import Replication
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import BrokerEpoch, NodeId, Offset
from milena.runtime.logging import get_logger
from milena.storage.log.unified_log import UnifiedLog


class LedPartition(Protocol):
    """What LeaderState needs of its partition (``broker.replica.partition``)."""

    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def registration(self) -> PartitionRegistration: ...
    @property
    def log(self) -> UnifiedLog | None: ...
    @property
    def effective_min_isr(self) -> int: ...
    def changed(self) -> None: ...
    def watermarks_changed(self) -> None: ...
    def fail(self, broken: BrokenInvariant) -> object: ...


class LeaderState:
    """One leadership. ``start_offset`` is the log end at the beginning of the current leader epoch."""

    __slots__ = (
        "_directories",
        "_events",
        "_logged_isr",
        "_partition",
        "_registration",
        "_replication",
        "followers",
        "start_offset",
    )

    def __init__(self, partition: LedPartition, replication: Replication, previous_isr: Isr = ()) -> None:
        """``previous_isr``: the committed ISR that this broker knew before it became leader; empty if it knew none."""
        self.followers: dict[NodeId, ReplicaState] = {}
        self._directories: dict[NodeId, UUID] = {}
        """The log directories of the followers; without those whose directory is not in the metadata."""
        self.start_offset = Offset(-1)
        self._partition = partition
        self._registration = partition.registration
        self._replication = replication
        self._events = get_logger("isr")
        self._logged_isr = previous_isr

    @property
    def _log(self) -> UnifiedLog:
        """The partition's log, which a leader always has."""
        log = self._partition.log
        assert log is not None
        return log

    # -- metadata

    def update_assignment(self, image: PartitionImage, before: IsrState, *, new_epoch: bool) -> None:
        """Apply the partition's assignment. The registration has already applied ``image``; ``before`` was its ISR
        state. In a new leader epoch the followers' times are reset. Raises BrokenInvariant."""
        now = self._replication.now_ms()
        if new_epoch:
            self.start_offset = self._log.log_end_offset
            if (latest := self._log.epochs.latest) != image.leader_epoch:
                raise BrokenInvariant(
                    f"leader epoch {image.leader_epoch} begins, but the latest epoch of the log is {latest}"
                )
        followers: dict[NodeId, ReplicaState] = {}
        for node in image.replicas:
            if node == self._replication.node_id:
                continue
            in_sync = node in image.isr
            follower = self.followers.get(node)
            if follower is None:
                follower = ReplicaState(now_ms=now, in_sync=in_sync)
            elif new_epoch:
                follower.reset(now_ms=now, in_sync=in_sync, leader_end=self.start_offset)
            followers[node] = follower
        self.followers = followers
        self._directories = {node: known for node in followers if (known := image.directory_of(node)) is not None}
        if not isinstance(before, Committed) and set(image.isr) == set(before.proposed):
            self._count_change(before)  # the metadata arrived before the response
        self._log_isr_change()

    def _log_isr_change(self) -> None:
        """Log each change of the committed ISR once, whether the controller's response or the metadata arrives
        first."""
        registration = self._registration
        before, self._logged_isr = self._logged_isr, registration.isr
        if before and set(before) != set(registration.isr):
            partition = self._partition
            self._events.info(
                "ISR changed",
                topic=partition.topic,
                partition=partition.index,
                before=before,
                isr=registration.isr,
                partition_epoch=registration.partition_epoch,
            )

    def _count_change(self, pending: Pending) -> None:
        meters = self._replication.meters
        (meters.expands if isinstance(pending, PendingExpand) else meters.shrinks).value += 1

    # -- followers

    def follower(self, node: NodeId, broker_epoch: BrokerEpoch, *, named_epoch: bool) -> ReplicaState:
        """Return the state of follower ``node``, whose request has ``broker_epoch``.

        Raises KafkaError for a node that is not a replica, which may be one in newer metadata: UNKNOWN_LEADER_EPOCH if
        its request named a leader epoch (``named_epoch``), else NOT_LEADER_OR_FOLLOWER. Raises NOT_LEADER_OR_FOLLOWER
        too for a broker epoch older than that of the metadata or of an earlier fetch (KIP-903; Kafka compares only with
        its metadata)."""
        state = self.followers.get(node)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if named_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if broker_epoch != NO_EPOCH:
            registered, seen_epoch = self._replication.broker(node), state.broker_epoch
            if (registered is not None and broker_epoch < registered.epoch) or (
                seen_epoch is not None and broker_epoch < seen_epoch
            ):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return state

    def fetched(self, state: ReplicaState, fetch: FollowerFetch) -> bool:
        """Apply a follower's fetch to its ``state`` (Partition.updateFollowerFetchState): propose the follower for the
        ISR if it has caught up, and advance the high watermark. Returns whether the high watermark has moved or the low
        watermark may have moved. Raises BrokenInvariant."""
        seen_epoch = state.broker_epoch
        if seen_epoch is not None and NO_EPOCH != fetch.broker_epoch < seen_epoch:
            raise BrokenInvariant(f"broker epoch {fetch.broker_epoch} of follower {fetch.node} is below {seen_epoch}")
        if fetch.offset > fetch.leader_end:
            raise BrokenInvariant(
                f"follower {fetch.node} fetches offset {fetch.offset} beyond the log end {fetch.leader_end}"
            )
        previous_end, previous_start = state.log_end, state.log_start
        state.fetched(fetch)
        if fetch.node not in self._registration.isr:
            self._maybe_expand(fetch.node, state)
        moved = fetch.offset != previous_end and self.maybe_advance_high_watermark()
        return moved or fetch.log_start > previous_start

    def _is_eligible(self, node: NodeId, state: ReplicaState) -> bool:
        """Whether the controller would add the follower to the ISR, by this broker's metadata.

        The follower's incarnation is the one that fetches: another one in the metadata may lack the records. A replica
        in a failed log directory is not eligible; it returns with another broker epoch or directory (KIP-858; Kafka
        waits for such a replica until it lags)."""
        registered = self._replication.broker(node)
        epoch = state.broker_epoch
        if registered is None or not registered.active or epoch not in (NO_EPOCH, registered.epoch):
            return False
        directory = self._directories.get(node)
        return directory is None or registered.has_online_dir(directory)

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start of all replicas on live brokers; -1 until each follower has reported its own."""
        brokers = (self._replication.broker(node) for node in self.followers)
        starts = [self.followers[broker.id].log_start for broker in brokers if broker is not None and not broker.fenced]
        return min([self._log.log_start_offset, *starts])

    def preferred_read_replica(self, rack: str, offset: Offset, listener: str) -> NodeId | None:
        """The follower from which a consumer in ``rack`` should read ``offset``, or None for this leader (KIP-392)."""
        replication, now = self._replication, self._replication.now_ms()
        me = replication.broker(replication.node_id)
        candidates = []
        for node in self._registration.isr:
            state, broker = self.followers.get(node), replication.broker(node)
            if state is None or broker is None or broker.fenced or broker.endpoint(listener) is None:
                continue
            if state.log_start <= offset <= state.log_end:
                candidates.append(Candidate(node, broker.rack, state.log_end, now - state.caught_up_ms))
        return select_replica(rack, None if me is None else me.rack, candidates)

    # -- the ISR

    def _maybe_expand(self, node: NodeId, state: ReplicaState) -> None:
        """Propose an ISR with a follower that has everything up to the high watermark and the start of the epoch, if it
        is eligible and no change is pending."""
        committed = self._registration.state
        if not isinstance(committed, Committed) or state.log_end < max(self._log.high_watermark, self.start_offset):
            return
        if self._is_eligible(node, state):
            self._check_joining(node, state)
            self._propose(PendingExpand(committed, node))

    def _check_joining(self, node: NodeId, state: ReplicaState) -> None:
        """Raise BrokenInvariant unless the follower has all committed records and its registered broker epoch
        (KIP-903)."""
        registered, epoch, high_watermark = self._replication.broker(node), state.broker_epoch, self._log.high_watermark
        if registered is None or epoch not in (NO_EPOCH, registered.epoch) or state.log_end < high_watermark:
            known = None if registered is None else registered.epoch
            raise BrokenInvariant(
                f"follower {node} joins the ISR with broker epoch {epoch} (registered: {known}) and log end "
                f"{state.log_end}"
            )

    def maybe_shrink(self) -> None:
        """Propose an ISR without the followers that have not caught up for ``replica.lag.time.max.ms``."""
        committed = self._registration.state
        if not isinstance(committed, Committed):
            return
        now, end = self._replication.now_ms(), self._log.log_end_offset
        lagging = tuple(
            node
            for node in committed.isr
            if node in self.followers and not self.followers[node].is_caught_up(end, now, self._replication.lag_ms)
        )
        if lagging:
            self._events.info(
                "followers lag", topic=self._partition.topic, partition=self._partition.index, nodes=lagging
            )
            self._propose(PendingShrink(committed, lagging))

    def check_followers(self) -> None:
        """Re-evaluate the followers without a fetch, because time has passed or a broker has changed: propose to remove
        lagging ones from the ISR, and advance a high watermark that waited for a follower which can no longer join."""
        self.maybe_shrink()
        if self.maybe_advance_high_watermark():
            self._partition.watermarks_changed()

    def _propose(self, pending: Pending) -> None:
        """Submit the proposed ISR with the members' broker epochs as of now. They stay the same if the proposal is sent
        again: a later incarnation of a follower may lack records that this one has."""
        partition, registration, replication = self._partition, self._registration, self._replication
        members = []
        for node in pending.proposed:
            state = self.followers.get(node)
            epoch = replication.broker_epoch() if state is None else state.broker_epoch
            members.append((node, NO_EPOCH if epoch is None else epoch))
        proposal = IsrProposal(
            topic_id=partition.topic_id,
            index=partition.index,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            members=tuple(members),
            done=lambda answer: self._answered(pending, proposal, answer),
        )
        registration.propose(pending)
        self._submit(pending, proposal)

    def _submit(self, pending: Pending, proposal: IsrProposal) -> None:
        if not self._replication.proposals.submit(proposal):
            self._answered(pending, proposal, ErrorCode.OPERATION_NOT_ATTEMPTED)

    def _answered(self, pending: Pending, proposal: IsrProposal, answer: AlteredIsr | ErrorCode) -> None:
        """Handle the controller's answer to a proposal (docs/kafka-semantics.md: AlterPartition)."""
        if self._registration.state is not pending:  # the metadata has settled it, or the leadership has ended
            return
        if isinstance(answer, AlteredIsr):
            try:
                self._commit(pending, answer)
            except BrokenInvariant as broken:
                self._partition.fail(broken)
            return
        self._failed(answer)
        match reaction(answer):
            case Reaction.ROLL_BACK:
                self._registration.roll_back()
            case Reaction.RESEND:
                self._submit(pending, proposal)
            case Reaction.WAIT:
                pass

    def _commit(self, pending: Pending, altered: AlteredIsr) -> None:
        registration = self._registration
        current = registration.leader_epoch, registration.partition_epoch
        if altered.leader_epoch != current[0] or altered.partition_epoch < current[1]:
            # The response is for another leader epoch, or older than the metadata, which decides in that case.
            self._replication.meters.failed.value += 1
            return
        registration.commit(altered)
        self._count_change(pending)
        self._log_isr_change()
        self.maybe_advance_high_watermark()
        self._partition.changed()

    def _failed(self, error: ErrorCode) -> None:
        partition = self._partition
        self._replication.meters.failed.value += 1
        self._events.info("ISR not changed", topic=partition.topic, partition=partition.index, error=error.name)

    def describe(self) -> dict[str, object]:
        """The state for a lab command; None for unknown values. ``caught_up_ms``: milliseconds ago."""
        now = self._replication.now_ms()
        return {
            "isr_state": type(self._registration.state).__name__,
            "maximal_isr": list(self._registration.maximal_isr),
            "replicas": {
                str(node): {
                    "log_end_offset": None if state.log_end == UNKNOWN else state.log_end,
                    "broker_epoch": state.broker_epoch,
                    "caught_up_ms": None if state.caught_up_ms == NEVER else now - state.caught_up_ms,
                }
                for node, state in self.followers.items()
            },
        }

    # -- the high watermark

    def maybe_advance_high_watermark(self) -> bool:
        """Advance the high watermark to the lowest log end offset of the maximal ISR and of the followers that are
        about to join it. Returns whether it has moved. Raises BrokenInvariant.

        It does not move while the ISR is smaller than ``min.insync.replicas`` (KIP-966). Nothing else moves the high
        watermark of a leader. It is called after a follower's fetch, an append if the leader is alone in the ISR, an
        accepted ISR change, on becoming leader, and when followers are checked (``check_followers``)."""
        log, registration = self._log, self._registration
        end = log.log_end_offset
        candidate = log.reportable_end  # the log end offset, unless a sync is pending
        if candidate <= log.high_watermark or len(registration.isr) < self._partition.effective_min_isr:
            return False
        maximal = registration.maximal_isr
        for node, follower in self.followers.items():
            if follower.log_end < candidate and (node in maximal or self._should_wait_for(node, follower, end)):
                candidate = follower.log_end
        if candidate <= log.high_watermark:
            return False
        self._check_high_watermark(candidate, end)
        log.raise_high_watermark(candidate)
        return True

    def _check_high_watermark(self, candidate: Offset, end: Offset) -> None:
        """Raise BrokenInvariant if a member of the maximal ISR lacks records below ``candidate``."""
        me, followers = self._replication.node_id, self.followers
        for node in self._registration.maximal_isr:
            if node != me and ((follower := followers.get(node)) is None or follower.log_end < candidate):
                has = None if follower is None else follower.log_end
                raise BrokenInvariant(f"high watermark {candidate}, but ISR member {node} has log end offset {has}")
        if candidate > end:
            raise BrokenInvariant(f"high watermark {candidate} beyond the log end {end}")

    def _should_wait_for(self, node: NodeId, follower: ReplicaState, end: Offset) -> bool:
        """Whether the high watermark waits for a follower outside of the ISR that has nearly caught up (Kafka's
        ``shouldWaitForReplicaToJoinIsr``). Otherwise the follower might never reach the advancing high watermark, and
        never join."""
        replication = self._replication
        return follower.is_caught_up(end, replication.now_ms(), replication.lag_ms) and self._is_eligible(
            node, follower
        )
