"""The leader's work on one partition: its followers, the ISR, and the high watermark over them.

Lives as long as the leadership, over leader epochs. Everything is synchronous; proposals go out through
``broker.replica.isr_proposals`` and their answers come back to ``_altered``, which looks first whether they are still
meant. Rules: docs/kafka-semantics.md: Partition leaders, High watermark and acks, Follower fetch state, Expanding and
shrinking the ISR, AlterPartition; KIPs 497, 903, 966 (strict minimum ISR); KIP-903 for the broker epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
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
from milena.broker.replica.replica_selector import Candidate, nearest
from milena.broker.replica.replica_state import NEVER, NO_EPOCH, UNKNOWN, ReplicaState, Visited
from milena.broker.replica.replication import Replication
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import BrokerEpoch, NodeId, Offset, PartitionEpoch
from milena.runtime.logging import get_logger
from milena.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from milena.broker.replica.partition import Partition


class Leading:
    """One leadership. ``start_offset`` is the log end at the beginning of the current leader epoch."""

    __slots__ = (
        "_directories",
        "_events",
        "_partition",
        "_proposed_on",
        "_replication",
        "_told",
        "followers",
        "isr",
        "start_offset",
    )

    def __init__(self, partition: Partition, replication: Replication, known: Isr = ()) -> None:
        """``known``: the committed ISR as this broker knew it before it led, empty where it did not."""
        self.followers: dict[NodeId, ReplicaState] = {}
        self.isr: IsrState = Committed(())
        self._directories: dict[NodeId, UUID] = {}
        """The log directories of the followers, as far as the metadata names them."""
        self._proposed_on = PartitionEpoch(-1)
        self.start_offset = Offset(-1)
        self._partition = partition
        self._replication = replication
        self._events = get_logger("isr")
        self._told = known

    @property
    def _log(self) -> PartitionLog:
        """A leader has a log: without one it is no leader."""
        log = self._partition.log
        assert log is not None
        return log

    # -- what the metadata says

    def renew(self, image: PartitionImage, *, new_epoch: bool) -> None:
        """Take assignment and ISR. A new leader epoch begins the followers' times anew.

        What was proposed is settled by a later partition epoch than the one it was made on, and stays open in that."""
        now = self._replication.now_ms()
        if new_epoch:
            self.start_offset = self._log.log_end_offset
        state = self.isr
        stays_open = (
            not isinstance(state, Committed)
            and not new_epoch
            and image.partition_epoch == self._proposed_on
            and all(node in image.replicas for node in state.proposed)
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
                follower.renew(now_ms=now, in_sync=in_sync, leader_end=self.start_offset)
            followers[node] = follower
        self.followers = followers
        self._directories = {node: found for node in followers if (found := image.directory_of(node)) is not None}
        if not isinstance(state, Committed) and set(image.isr) == set(state.proposed):
            self._count(state)  # the metadata were here before the answer
        self._set(state if stays_open else Committed(image.isr))

    def end(self) -> None:
        """The leadership is over: what is still answered is stale."""
        self.isr = Committed(self.isr.isr)

    def _set(self, state: IsrState) -> None:
        self.isr = state
        self._partition.isr = state.isr
        self._partition.maximal_isr = state.maximal
        self._tell(state.isr)

    def _tell(self, isr: Isr) -> None:
        """Every change of the committed ISR is logged once, whether the answer or the metadata brought it."""
        before, self._told = self._told, isr
        if before and set(before) != set(isr):
            partition = self._partition
            self._events.info(
                "ISR changed",
                topic=partition.topic,
                partition=partition.index,
                before=before,
                isr=isr,
                partition_epoch=partition.partition_epoch,
            )

    def _count(self, pending: Pending) -> None:
        meters = self._replication.meters
        (meters.expands if isinstance(pending, PendingExpand) else meters.shrinks).value += 1

    # -- followers

    def follower(self, node: NodeId, broker_epoch: BrokerEpoch, *, named_epoch: bool) -> ReplicaState:
        """The state of the follower that sends this epoch. Raises KafkaError.

        A node without a replica may have it in newer metadata: UNKNOWN_LEADER_EPOCH where its request named a leader
        epoch, else NOT_LEADER_OR_FOLLOWER. That also for a broker epoch older than the metadata's or than the one
        already seen (KIP-903; Kafka compares with its metadata alone)."""
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

    def fetched(
        self,
        node: NodeId,
        state: ReplicaState,
        *,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start: Offset,
        leader_end: Offset,
        now_ms: int,
        visited: Visited | None,
    ) -> bool:
        """The ``follower`` of this state has everything before ``offset``. Returns whether that moved the high
        watermark, or may have moved the low one."""
        had, began = state.log_end, state.log_start
        state.fetched(
            broker_epoch=broker_epoch,
            offset=offset,
            log_start=log_start,
            leader_end=leader_end,
            now_ms=now_ms,
            visited=visited,
        )
        if node not in self.isr.isr:
            self._maybe_expand(node, state)
        moved = offset != had and self.maybe_advance_high_watermark()
        return moved or log_start > began

    def _is_eligible(self, node: NodeId, state: ReplicaState) -> bool:
        """Whether the controller may let it into the ISR, as far as the metadata tells. The epoch is that of the
        fetches: the metadata's could belong to an incarnation that has fetched nothing. A replica in a failed log
        directory comes back with another epoch or directory (Kafka waits for it until it lags, KIP-858)."""
        registered = self._replication.broker(node)
        epoch = state.broker_epoch
        if registered is None or not registered.active or epoch not in (NO_EPOCH, registered.epoch):
            return False
        directory = self._directories.get(node)
        return directory is None or registered.has_online_dir(directory)

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start of all replicas on brokers that live; -1 until each has told its own."""
        alive = (self._replication.broker(node) for node in self.followers)
        starts = [self.followers[broker.id].log_start for broker in alive if broker is not None and not broker.fenced]
        return min([self._log.log_start_offset, *starts])

    def nearest(self, rack: str, offset: Offset, listener: str) -> NodeId | None:
        """The follower that a consumer in ``rack`` had better read ``offset`` from, None for this leader."""
        replication, now = self._replication, self._replication.now_ms()
        me = replication.broker(replication.node_id)
        candidates = []
        for node in self.isr.isr:
            state, broker = self.followers.get(node), replication.broker(node)
            if state is None or broker is None or broker.fenced or broker.endpoint(listener) is None:
                continue
            if state.log_start <= offset <= state.log_end:
                candidates.append(Candidate(node, broker.rack, state.log_end, now - state.caught_up_ms))
        return nearest(rack, None if me is None else me.rack, candidates)

    # -- the ISR

    def _maybe_expand(self, node: NodeId, state: ReplicaState) -> None:
        committed = self.isr
        if not isinstance(committed, Committed) or state.log_end < max(self._log.high_watermark, self.start_offset):
            return
        if self._is_eligible(node, state):
            self._propose(PendingExpand(committed, node))

    def maybe_shrink(self) -> None:
        """Propose an ISR without those who have not caught up for ``replica.lag.time.max.ms``."""
        committed = self.isr
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
        """Time has passed or brokers have changed, without any fetch: take laggards out of the ISR, and wait no more
        for followers that can no longer join it."""
        self.maybe_shrink()
        if self.maybe_advance_high_watermark():
            self._partition.watermark_moved()

    def _propose(self, pending: Pending) -> None:
        """The broker epochs are those of now, also if it has to be sent again: a later incarnation of a follower need
        not have what this one has."""
        partition, replication = self._partition, self._replication
        members = []
        for node in pending.proposed:
            state = self.followers.get(node)
            epoch = replication.broker_epoch() if state is None else state.broker_epoch
            members.append((node, NO_EPOCH if epoch is None else epoch))
        proposal = Proposal(
            topic_id=partition.topic_id,
            index=partition.index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            members=tuple(members),
            done=lambda answer: self._altered(pending, proposal, answer),
        )
        self._proposed_on = partition.partition_epoch
        self._set(pending)
        self._submit(pending, proposal)

    def _submit(self, pending: Pending, proposal: Proposal) -> None:
        if not self._replication.proposals.submit(proposal):
            self._altered(pending, proposal, ErrorCode.OPERATION_NOT_ATTEMPTED)

    def _altered(self, pending: Pending, proposal: Proposal, answer: Altered | ErrorCode) -> None:
        """What to do about the controller's answer (docs/kafka-semantics.md: AlterPartition)."""
        if self.isr is not pending:
            return
        if isinstance(answer, Altered):
            self._commit(pending, answer)
            return
        self._failed(answer)
        match reaction(answer):
            case Reaction.ROLL_BACK:
                self._set(pending.last_committed)
            case Reaction.AGAIN:
                self._submit(pending, proposal)
            case Reaction.WAIT:
                pass

    def _commit(self, pending: Pending, altered: Altered) -> None:
        partition = self._partition
        if altered.leader_epoch != partition.leader_epoch or altered.partition_epoch < partition.partition_epoch:
            self._replication.meters.failed.value += 1  # a state that this leader does not know: its metadata will
            return
        self._count(pending)
        partition.partition_epoch = altered.partition_epoch
        self._set(Committed(altered.isr))
        self.maybe_advance_high_watermark()
        partition.changed()

    def _failed(self, error: ErrorCode) -> None:
        partition = self._partition
        self._replication.meters.failed.value += 1
        self._events.info("ISR not changed", topic=partition.topic, partition=partition.index, error=error.name)

    def describe(self) -> dict[str, Any]:
        """What a verb tells of it; null for what is not known. Times are milliseconds ago."""
        now = self._replication.now_ms()
        return {
            "isr_state": type(self.isr).__name__,
            "maximal_isr": list(self.isr.maximal),
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
        """Move it to what all of the maximal ISR has, and those who are about to join. It stays while fewer than
        ``min.insync.replicas`` are in sync. The one place where a leader's high watermark moves."""
        log, state = self._log, self.isr
        end = log.log_end_offset
        candidate = log.vouched_end
        if candidate <= log.high_watermark or len(state.isr) < self._partition.effective_min_isr:
            return False
        maximal = state.maximal
        for node, follower in self.followers.items():
            if follower.log_end < candidate and (node in maximal or self._joins(node, follower, end)):
                candidate = follower.log_end
        if candidate <= log.high_watermark:
            return False
        log.raise_high_watermark(candidate)
        return True

    def _joins(self, node: NodeId, follower: ReplicaState, end: Offset) -> bool:
        """Waiting for one that has nearly caught up lets it into the ISR; otherwise it would chase the end for ever."""
        replication = self._replication
        return follower.is_caught_up(end, replication.now_ms(), replication.lag_ms) and self._is_eligible(
            node, follower
        )
