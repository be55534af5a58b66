"""The registration of one partition as its replica knows it: leader, epochs, replicas, ISR.

It is changed by metadata and by responses to AlterPartition. Each change is checked first: epochs do not fall, a leader
epoch has one leader, the ISR is a subset of the replicas. A change that violates one of these raises BrokenInvariant
and has no effect.
"""

from __future__ import annotations

from milena.broker.replica.isr import Committed, Isr, IsrState, Pending
from milena.broker.replica.isr_proposals import AlteredIsr
from milena.node.metadata.image import PartitionImage
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import LeaderEpoch, NodeId, PartitionEpoch


class PartitionRegistration:
    """``isr`` is the committed ISR. The high watermark waits for ``maximal_isr``, which includes the replicas that the
    controller may already have added (KIP-497)."""

    __slots__ = ("_proposed_at", "isr", "leader", "leader_epoch", "maximal_isr", "partition_epoch", "replicas", "state")

    def __init__(self) -> None:
        self.leader: NodeId | None = None
        self.leader_epoch = LeaderEpoch(-1)
        self.partition_epoch = PartitionEpoch(-1)
        self.replicas: tuple[NodeId, ...] = ()
        self.state: IsrState = Committed(())
        self.isr: Isr = ()
        self.maximal_isr: Isr = ()
        self._proposed_at = PartitionEpoch(-1)

    def __repr__(self) -> str:
        return (
            f"leader {self.leader} epoch {self.leader_epoch} partition epoch {self.partition_epoch} "
            f"replicas {self.replicas} ISR {self.isr} {type(self.state).__name__} maximal {self.maximal_isr}"
        )

    def accepts(self, image: PartitionImage) -> bool:
        """Whether ``image`` is not older than this registration. Raises BrokenInvariant if it contradicts it."""
        if image.partition_epoch < self.partition_epoch:
            return False
        if image.leader_epoch < self.leader_epoch:
            raise BrokenInvariant(f"leader epoch falls from {self.leader_epoch} to {image.leader_epoch}")
        if image.leader_epoch == self.leader_epoch and _leader(image) != self.leader:
            raise BrokenInvariant(f"leader epoch {image.leader_epoch} has two leaders: {self.leader}, {image.leader}")
        if image.partition_epoch == self.partition_epoch and set(image.isr) != set(self.isr):
            raise BrokenInvariant(f"partition epoch {image.partition_epoch} has two ISRs: {self.isr}, {image.isr}")
        _check_isr(image.isr, image.replicas)
        _check_leader(_leader(image), image.isr)
        return True

    def apply_image(self, image: PartitionImage) -> IsrState:
        """Apply accepted metadata. Returns the previous ISR state.

        A proposed ISR stays pending until the partition epoch is higher than when it was proposed, unless the leader
        epoch or the replicas change."""
        before = self.state
        stays_pending = (
            not isinstance(before, Committed)
            and image.leader_epoch == self.leader_epoch
            and image.partition_epoch == self._proposed_at
            and all(node in image.replicas for node in before.proposed)
        )
        self.leader = _leader(image)
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self._set(before if stays_pending else Committed(image.isr))
        return before

    def clear_leader(self) -> None:
        """Set no leader: the replica was removed from this broker."""
        self.leader = None

    def propose(self, pending: Pending) -> None:
        """Make ``pending`` the ISR state, before it is proposed to the controller. Raises BrokenInvariant."""
        if self.state is not pending.last_committed:
            raise BrokenInvariant(f"proposed ISR {pending.proposed} is not based on the committed ISR")
        _check_isr(pending.proposed, self.replicas)
        _check_leader(self.leader, pending.proposed)
        self._proposed_at = self.partition_epoch
        self._set(pending)

    def commit(self, altered: AlteredIsr) -> None:
        """Apply the state after the controller has accepted a proposal. Raises BrokenInvariant."""
        if altered.leader_epoch != self.leader_epoch or altered.partition_epoch < self.partition_epoch:
            raise BrokenInvariant(
                f"ISR committed in leader epoch {altered.leader_epoch}, partition epoch {altered.partition_epoch}"
            )
        _check_isr(altered.isr, self.replicas)
        _check_leader(self.leader, altered.isr)
        self.partition_epoch = altered.partition_epoch
        self._set(Committed(altered.isr))

    def roll_back(self) -> None:
        """Drop the pending proposal: it was rejected, or the leadership has ended."""
        self._set(self.state.last_committed)

    def _set(self, state: IsrState) -> None:
        if not set(state.isr) <= set(state.maximal):
            raise BrokenInvariant(f"maximal ISR {state.maximal} lacks members of the ISR {state.isr}")
        self.state = state
        self.isr = state.isr
        self.maximal_isr = state.maximal


def _leader(image: PartitionImage) -> NodeId | None:
    return image.leader if image.leader >= 0 else None


def _check_isr(isr: Isr, replicas: tuple[NodeId, ...]) -> None:
    if not set(isr) <= set(replicas):
        raise BrokenInvariant(f"ISR {isr} contains nodes that are not replicas: {replicas}")
    if len(set(isr)) != len(isr):
        raise BrokenInvariant(f"ISR {isr} has a member twice")


def _check_leader(leader: NodeId | None, isr: Isr) -> None:
    """A leader is always in the ISR, even as its last member."""
    if leader is not None and leader not in isr:
        raise BrokenInvariant(f"leader {leader} outside of the ISR {isr}")
