"""AlterPartition: leaders change the ISRs of their partitions (KIP-497, KIP-841, KIP-903; docs/kafka-semantics.md:
AlterPartition).

The checks and their order are those of Kafka's ReplicationControlManager. Epochs above the controller's mean that the
leader knows a newer controller (KAFKA-14154). Every member of the new ISR must be registered, active, and of the
incarnation that the leader saw fetching (KIP-903); the logged reason names the members that are not eligible.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.controller.rules.broker_changes import change_of
from milena.controller.rules.leader_choice import Election, acceptance
from milena.controller.rules.partition_change import RECOVERED, RECOVERING, PartitionChange, Targets
from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import BrokerImage, PartitionImage, TopicImage
from milena.protocol.errors import ErrorCode
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import LeaderEpoch, NodeId, PartitionEpoch

EPOCH_UNCHECKED: Final = -1
"""The broker epoch of a member if the leader does not know it, and in requests below version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The change that a leader requests for one partition. ``isr``: (broker id, broker epoch or EPOCH_UNCHECKED)."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[NodeId, int], ...]
    recovery_state: int = RECOVERED

    @property
    def members(self) -> tuple[NodeId, ...]:
        return tuple(member for member, _ in self.isr)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The error code of a rejected proposal; ``reason`` is for the log."""

    code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The partition's ``registration`` after the request, or an error code with the reason for the log.

    NEW_LEADER_ELECTED is an error code although the change is made (a completed reassignment moved the leader).
    """

    partition: int
    code: ErrorCode = ErrorCode.NONE
    registration: PartitionImage | None = None
    reason: str = ""


def alter_partitions(
    state: ControllerState,
    sender: int,
    broker_epoch: int,
    proposals: Sequence[tuple[UUID, Sequence[Proposal]]],
    *,
    altered: Container[tuple[UUID, int]] = (),
) -> Result[list[tuple[UUID, list[Outcome]]]]:
    """Accept or reject each proposal; outcomes are in the order of proposals. ``altered``: topic id and number of the
    partitions that earlier parts of the same request have altered. Raises KafkaError(STALE_BROKER_EPOCH)."""
    state.checked_broker(sender, broker_epoch)
    records: dict[tuple[UUID, int], PartitionChangeRecord] = {}
    outcomes: list[tuple[UUID, list[Outcome]]] = []
    for topic_id, of_topic in proposals:
        topic = state.image.topics_by_id.get(topic_id)
        if topic is None:
            unknown = [Outcome(p.partition, ErrorCode.UNKNOWN_TOPIC_ID, reason="no such topic") for p in of_topic]
            outcomes.append((topic_id, unknown))
        else:
            outcomes.append(
                (
                    topic_id,
                    [
                        _repeated(proposal.partition)
                        if (topic_id, proposal.partition) in altered
                        else _alter(state, sender, topic, proposal, records)
                        for proposal in of_topic
                    ],
                )
            )
    return Result(list(records.values()), outcomes, atomic=False)


def _repeated(partition: int) -> Outcome:
    return Outcome(partition, ErrorCode.INVALID_UPDATE_VERSION, reason="the partition is in the request twice")


def _alter(
    state: ControllerState,
    sender: int,
    topic: TopicImage,
    proposal: Proposal,
    records: dict[tuple[UUID, int], PartitionChangeRecord],
) -> Outcome:
    number = proposal.partition
    if (topic.id, number) in records:
        return _repeated(number)
    present = topic.partitions.get(number)
    rejection = check(state.image.brokers, sender, present, proposal)
    if rejection is not None:
        return Outcome(number, rejection.code, reason=rejection.reason)
    assert present is not None, "checked"
    targets = Targets(
        isr=proposal.members,
        recovery_state=proposal.recovery_state,
        election=Election.UNCLEAN if state.unclean_elections(topic.name) else Election.ONLINE,
    )
    change = change_of(state, topic, present, acceptance(state.image.brokers, present), targets)
    # None: the proposed ISR is the present one, as in a retry of a request whose response was lost.
    if change is None:
        return Outcome(number, registration=present)
    records[topic.id, number] = change.record(topic.id, number)
    # The new ISR completed a reassignment that removes the leader, so the change also elected another one.
    if change.leader not in (None, sender):
        reason = f"its reassignment is complete, {change.leader} leads"
        return Outcome(number, ErrorCode.NEW_LEADER_ELECTED, reason=reason)
    return Outcome(number, registration=merged(present, change))


def check(
    brokers: Mapping[int, BrokerImage], sender: int, present: PartitionImage | None, proposal: Proposal
) -> Rejection | None:
    """Check one proposal in Kafka's order. Return None if it is valid."""
    if present is None:
        return Rejection(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    rejection = _check_epochs(sender, present, proposal)
    if rejection is not None:
        return rejection
    members = proposal.members
    if len(set(members)) < len(members) or any(m not in present.replicas for m in members):
        return Rejection(
            ErrorCode.INVALID_REQUEST,
            f"the ISR {members} contains brokers that are not replicas or are repeated; replicas are "
            f"{present.replicas}",
        )
    if present.leader not in members:
        return Rejection(ErrorCode.INVALID_REQUEST, f"the ISR {members} does not contain the leader")
    if proposal.recovery_state not in (RECOVERED, RECOVERING):
        return Rejection(ErrorCode.INVALID_REQUEST, f"leader recovery state {proposal.recovery_state} is unknown")
    if proposal.recovery_state == RECOVERING and len(members) > 1:
        return Rejection(ErrorCode.INVALID_REQUEST, f"the ISR {members} of a recovering leader contains other brokers")
    if present.recovery_state == RECOVERED and proposal.recovery_state == RECOVERING:
        return Rejection(ErrorCode.INVALID_REQUEST, "a recovered leader cannot become recovering")
    ineligible = [
        f"{member} ({why})"
        for member, epoch in proposal.isr
        if (why := ineligible_because(brokers.get(member), epoch)) is not None
    ]
    if ineligible:
        return Rejection(ErrorCode.INELIGIBLE_REPLICA, ", ".join(ineligible))
    return None


def _check_epochs(sender: int, present: PartitionImage, proposal: Proposal) -> Rejection | None:
    if proposal.leader_epoch > present.leader_epoch:
        return Rejection(ErrorCode.NOT_CONTROLLER, f"leader epoch {proposal.leader_epoch} above {present.leader_epoch}")
    if proposal.partition_epoch > present.partition_epoch:
        return Rejection(
            ErrorCode.NOT_CONTROLLER, f"partition epoch {proposal.partition_epoch} above {present.partition_epoch}"
        )
    if proposal.leader_epoch < present.leader_epoch:
        return Rejection(
            ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {proposal.leader_epoch} below {present.leader_epoch}"
        )
    if sender != present.leader:
        return Rejection(ErrorCode.INVALID_REQUEST, f"the leader is {present.leader}")
    if proposal.partition_epoch < present.partition_epoch:
        return Rejection(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition epoch {proposal.partition_epoch} below {present.partition_epoch}",
        )
    return None


def ineligible_because(broker: BrokerImage | None, epoch: int) -> str | None:
    """Return why this incarnation may not join an ISR, or None if it may (KIP-841, KIP-903)."""
    if broker is None:
        return "not registered"
    if broker.in_controlled_shutdown:
        return "shutting down"
    if broker.fenced:
        return "fenced"
    if epoch != EPOCH_UNCHECKED and epoch != broker.epoch:
        return f"broker epoch {epoch}, registered is {broker.epoch}"
    return None


def merged(present: PartitionImage, change: PartitionChange) -> PartitionImage:
    """Return the partition after its change, as in the response: leader, ISR, recovery state and epochs."""
    return PartitionImage(
        replicas=present.replicas if change.replicas is None else change.replicas,
        isr=present.isr if change.isr is None else change.isr,
        leader=present.leader if change.leader is None else change.leader,
        leader_epoch=LeaderEpoch(present.leader_epoch + (change.leader is not None)),
        partition_epoch=PartitionEpoch(present.partition_epoch + 1),
        recovery_state=present.recovery_state if change.recovery_state is None else change.recovery_state,
    )
