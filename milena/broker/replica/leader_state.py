"""The leader's work on one partition: its followers, ISR proposals, and the high watermark.

Lives as long as the leadership, across leader epochs. Everything is synchronous: proposals are sent by
``broker.replica.isr_proposals``, and their answers come back to ``_altered``, which first checks that they are still
current. Rules: docs/kafka-semantics.md: Partition leaders, High watermark and acks, Follower fetch state, Expanding and
shrinking the ISR, AlterPartition; KIPs 497, 903, 966 (strict minimum ISR); KIP-903 for the broker epochs.
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
from milena.broker.replica.isr_proposals import Altered, Proposal
from milena.broker.replica.partition_registration import PartitionRegistration
from milena.broker.replica.replica_selector import Candidate, nearest
from milena.broker.replica.replica_state import NEVER, NO_EPOCH, UNKNOWN, FollowerFetch, ReplicaState
from milena.broker.replica.replication import Replication
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import BrokerEpoch, NodeId, Offset
from milena.runtime.logging import get_logger
from milena.storage.log.unified_log import UnifiedLog


class Led(Protocol):
    """The partition that this broker leads (``broker.replica.partition``)."""

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
    def watermark_moved(self) -> None: ...
    def end(self, broken: BrokenInvariant) -> object: ...


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

    def __init__(self, partition: Led, replication: Replication, previous_isr: Isr = ()) -> None:
        """``previous_isr``: the committed ISR that this broker knew before it became leader; empty if it knew none."""
        self.followers: dict[NodeId, ReplicaState] = {}
        self._directories: dict[NodeId, UUID] = {}
        """The log directories of the followers, as far as the metadata names them."""
        self.start_offset = Offset(-1)
        self._partition = partition
        self._registration = partition.registration
        self._replication = replication
        self._events = get_logger("isr")
        self._logged_isr = previous_isr

    @property
    def _log(self) -> UnifiedLog:
        """A leader always has a log."""
        log = self._partition.log
        assert log is not None
        return log

    # -- metadata

    def renew(self, image: PartitionImage, before: IsrState, *, new_epoch: bool) -> None:
        """Take the assignment. The registration has already taken the metadata, and ``before`` was its ISR. In a new
        leader epoch the followers' times start again."""
        now = self._replication.now_ms()
        if new_epoch:
            self.start_offset = self._log.log_end_offset
            if (latest := self._log.epochs.latest) != image.leader_epoch:
                raise BrokenInvariant(f"leader epoch {image.leader_epoch} begins where the log is in {latest}")
        followers: dict[NodeId, ReplicaState] = {}
        for node in image.replicas:
            if node == self._replication.node_id:
                continue
            in_sync = node in image.isr
            follower = self.followers.get(node)
            if follower is None:
                follower = ReplicaState(now_ms=now, in_sync=in_sync)
            elif new_epoch:
                follower.renew(now_ms=now, in_sync=in_sync, leader_end=self.start_offset)
            followers[node] = follower
        self.followers = followers
        self._directories = {node: found for node in followers if (found := image.directory_of(node)) is not None}
        if not isinstance(before, Committed) and set(image.isr) == set(before.proposed):
            self._count(before)  # the metadata arrived before the response
        self._log_isr_change()

    def _log_isr_change(self) -> None:
        """Log each change of the committed ISR once, whether the controller's response or the metadata brought it."""
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

    def _count(self, pending: Pending) -> None:
        meters = self._replication.meters
        (meters.expands if isinstance(pending, PendingExpand) else meters.shrinks).value += 1

    # -- followers

    def follower(self, node: NodeId, broker_epoch: BrokerEpoch, *, named_epoch: bool) -> ReplicaState:
        """The state of the follower that sends this epoch. Raises KafkaError.

        A node without a replica may have one in newer metadata: UNKNOWN_LEADER_EPOCH if its request named a leader
        epoch, else NOT_LEADER_OR_FOLLOWER. The same error for a broker epoch older than that of the metadata, or than
        the one already seen (KIP-903; Kafka compares only with its metadata)."""
        state = self.followers.get(node)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if named_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if broker_epoch != NO_EPOCH:
            registered, held = self._replication.broker(node), state.broker_epoch
            if (registered is not None and broker_epoch < registered.epoch) or (
                held is not None and broker_epoch < held
            ):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return state

    def fetched(self, state: ReplicaState, fetch: FollowerFetch) -> bool:
        """``follower``, whose state this is, has fetched. Returns whether that moved the high watermark, or may have
        moved the low watermark. Raises BrokenInvariant."""
        held = state.broker_epoch
        if held is not None and NO_EPOCH != fetch.broker_epoch < held:
            raise BrokenInvariant(f"broker epoch {fetch.broker_epoch} of follower {fetch.node} after {held}")
        if fetch.offset > fetch.leader_end:
            raise BrokenInvariant(
                f"follower {fetch.node} has offset {fetch.offset} after the log end {fetch.leader_end}"
            )
        had, began = state.log_end, state.log_start
        state.fetched(fetch)
        if fetch.node not in self._registration.isr:
            self._maybe_expand(fetch.node, state)
        moved = fetch.offset != had and self.maybe_advance_high_watermark()
        return moved or fetch.log_start > began

    def _is_eligible(self, node: NodeId, state: ReplicaState) -> bool:
        """Whether the controller may add it to the ISR, as far as the metadata tells. The epoch is that of the fetches:
        the one in the metadata could belong to an incarnation that has fetched nothing. A replica in a failed log
        directory returns with another epoch or directory (Kafka waits for it until it lags, KIP-858)."""
        registered = self._replication.broker(node)
        epoch = state.broker_epoch
        if registered is None or not registered.active or epoch not in (NO_EPOCH, registered.epoch):
            return False
        directory = self._directories.get(node)
        return directory is None or registered.has_online_dir(directory)

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start of all replicas on live brokers; -1 until each follower has reported its own."""
        alive = (self._replication.broker(node) for node in self.followers)
        starts = [self.followers[broker.id].log_start for broker in alive if broker is not None and not broker.fenced]
        return min([self._log.log_start_offset, *starts])

    def nearest(self, rack: str, offset: Offset, listener: str) -> NodeId | None:
        """The follower from which a consumer in ``rack`` should read ``offset``, or None for this leader."""
        replication, now = self._replication, self._replication.now_ms()
        me = replication.broker(replication.node_id)
        candidates = []
        for node in self._registration.isr:
            state, broker = self.followers.get(node), replication.broker(node)
            if state is None or broker is None or broker.fenced or broker.endpoint(listener) is None:
                continue
            if state.log_start <= offset <= state.log_end:
                candidates.append(Candidate(node, broker.rack, state.log_end, now - state.caught_up_ms))
        return nearest(rack, None if me is None else me.rack, candidates)

    # -- the ISR

    def _maybe_expand(self, node: NodeId, state: ReplicaState) -> None:
        committed = self._registration.state
        if not isinstance(committed, Committed) or state.log_end < max(self._log.high_watermark, self.start_offset):
            return
        if self._is_eligible(node, state):
            self._check_newcomer(node, state)
            self._propose(PendingExpand(committed, node))

    def _check_newcomer(self, node: NodeId, state: ReplicaState) -> None:
        """It has all committed records, and the broker epoch that is registered (KIP-903)."""
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

    def review(self) -> None:
        """Time has passed or brokers have changed, without a fetch: remove lagging followers from the ISR, and stop
        waiting for followers that can no longer join it."""
        self.maybe_shrink()
        if self.maybe_advance_high_watermark():
            self._partition.watermark_moved()

    def _propose(self, pending: Pending) -> None:
        """The broker epochs are the current ones, also if the proposal has to be sent again: a later incarnation of a
        follower may lack records that this one has."""
        partition, registration, replication = self._partition, self._registration, self._replication
        members = []
        for node in pending.proposed:
            state = self.followers.get(node)
            epoch = replication.broker_epoch() if state is None else state.broker_epoch
            members.append((node, NO_EPOCH if epoch is None else epoch))
        proposal = Proposal(
            topic_id=partition.topic_id,
            index=partition.index,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            members=tuple(members),
            done=lambda answer: self._altered(pending, proposal, answer),
        )
        registration.propose(pending)
        self._submit(pending, proposal)

    def _submit(self, pending: Pending, proposal: Proposal) -> None:
        if not self._replication.proposals.submit(proposal):
            self._altered(pending, proposal, ErrorCode.OPERATION_NOT_ATTEMPTED)

    def _altered(self, pending: Pending, proposal: Proposal, answer: Altered | ErrorCode) -> None:
        """React to the controller's response (docs/kafka-semantics.md: AlterPartition)."""
        if self._registration.state is not pending:
            return
        if isinstance(answer, Altered):
            try:
                self._commit(pending, answer)
            except BrokenInvariant as broken:
                self._partition.end(broken)
            return
        self._failed(answer)
        match reaction(answer):
            case Reaction.ROLL_BACK:
                self._registration.roll_back()
            case Reaction.AGAIN:
                self._submit(pending, proposal)
            case Reaction.WAIT:
                pass

    def _commit(self, pending: Pending, altered: Altered) -> None:
        registration = self._registration
        current = registration.leader_epoch, registration.partition_epoch
        if altered.leader_epoch != current[0] or altered.partition_epoch < current[1]:
            self._replication.meters.failed.value += 1  # this leader does not know that state yet: its metadata will
            return
        registration.commit(altered)
        self._count(pending)
        self._log_isr_change()
        self.maybe_advance_high_watermark()
        self._partition.changed()

    def _failed(self, error: ErrorCode) -> None:
        partition = self._partition
        self._replication.meters.failed.value += 1
        self._events.info("ISR not changed", topic=partition.topic, partition=partition.index, error=error.name)

    def describe(self) -> dict[str, object]:
        """The state as a command reports it; null if unknown. Times are milliseconds ago."""
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
        """Move the high watermark to the lowest offset that all of the maximal ISR, and the followers about to join it,
        have. It stays while the ISR is smaller than ``min.insync.replicas``. Only here does the high watermark of a
        leader move. Raises BrokenInvariant."""
        log, registration = self._log, self._registration
        end = log.log_end_offset
        candidate = log.reportable_end
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
        """The high watermark must not pass an offset that a member of the maximal ISR lacks."""
        me, followers = self._replication.node_id, self.followers
        for node in self._registration.maximal_isr:
            if node != me and ((follower := followers.get(node)) is None or follower.log_end < candidate):
                has = None if follower is None else follower.log_end
                raise BrokenInvariant(f"high watermark {candidate} where member {node} of the ISR has {has}")
        if candidate > end:
            raise BrokenInvariant(f"high watermark {candidate} beyond the log end {end}")

    def _should_wait_for(self, node: NodeId, follower: ReplicaState, end: Offset) -> bool:
        """Whether the high watermark waits for a follower outside of the ISR that has nearly caught up, so that it can
        join (Kafka's ``shouldWaitForReplicaToJoinIsr``). Without this the follower might never reach the moving log
        end."""
        replication = self._replication
        return follower.is_caught_up(end, replication.now_ms(), replication.lag_ms) and self._is_eligible(
            node, follower
        )
