"""How a partition's registration changes: from a target ISR, replicas and directories to one PartitionChange record.

The steps and their order are Kafka's (docs/kafka-semantics.md: Partition changes). A record increments the partition
epoch; one that names a leader, even the same, also increments the leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from milena.controller.rules.leader_choice import Acceptable, Candidates, Election
from milena.node.metadata.image import NO_LEADER, PartitionImage
from milena.protocol.metadata_records import NO_LEADER_CHANGE, PartitionChangeRecord
from milena.protocol.types import MIGRATING_DIR, UNASSIGNED_DIR, NodeId

RECOVERED: Final = 0
RECOVERING: Final = 1
NO_RECOVERY_CHANGE: Final = -1

T = TypeVar("T")

Brokers: TypeAlias = tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The changes that a command requests for a partition. None, and a replica without an entry in ``directories``,
    mean no change."""

    isr: Brokers | None = None
    replicas: Brokers | None = None
    removing: Brokers | None = None
    adding: Brokers | None = None
    recovery_state: int | None = None
    directories: Mapping[NodeId, UUID] | None = None
    election: Election = Election.ONLINE
    unclean_shutdown: Collection[NodeId] = ()
    """Brokers that may have lost data: they are removed from the ELR as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules:
    """The cluster's features and the topic's configuration, as far as they affect changes of a partition."""

    elr_enabled: bool = False
    min_isr: int = 1
    """Used only if ``elr_enabled`` (KIP-966)."""
    bump_on_isr_shrink: bool = False
    """Below metadata.version 3.6-IV0 a shrinking ISR bumps the leader epoch."""
    with_directories: bool = True
    """Since metadata.version 3.7-IV2 records name the log directory of each replica."""
    default_directory: Callable[[NodeId], UUID] = lambda _: UNASSIGNED_DIR


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """The fields of a partition that change; None: no change. Naming a ``leader``, even the same, increments the leader
    epoch."""

    leader: NodeId | None = None
    isr: Brokers | None = None
    replicas: Brokers | None = None
    removing: Brokers | None = None
    adding: Brokers | None = None
    recovery_state: int | None = None
    directories: tuple[UUID, ...] | None = None
    elr: Brokers | None = None
    last_known_elr: Brokers | None = None

    def record(self, topic_id: UUID, partition: int) -> PartitionChangeRecord:
        return PartitionChangeRecord(
            partition_id=partition,
            topic_id=topic_id,
            isr=self.isr,
            leader=NO_LEADER_CHANGE if self.leader is None else self.leader,
            replicas=self.replicas,
            removing_replicas=self.removing,
            adding_replicas=self.adding,
            leader_recovery_state=NO_RECOVERY_CHANGE if self.recovery_state is None else self.recovery_state,
            directories=self.directories,
            eligible_leader_replicas=self.elr,
            last_known_elr=self.last_known_elr,
        )


class PartitionChangeBuilder:
    """Turns ``targets`` into changes of one partition and its leader (Kafka's PartitionChangeBuilder)."""

    __slots__ = (
        "_acceptable",
        "_adding",
        "_change",
        "_elr",
        "_isr",
        "_partition",
        "_recovery_state",
        "_removing",
        "_replicas",
        "_rules",
        "_targets",
    )

    def __init__(self, partition: PartitionImage, acceptable: Acceptable, targets: Targets, rules: ChangeRules) -> None:
        self._partition = partition
        self._acceptable = acceptable
        self._targets = targets
        self._rules = rules
        self._isr = _given(targets.isr, partition.isr)
        self._replicas = _given(targets.replicas, partition.replicas)
        self._removing = _given(targets.removing, partition.removing)
        self._adding = _given(targets.adding, partition.adding)
        self._recovery_state = _given(targets.recovery_state, partition.recovery_state)
        self._elr = partition.elr
        self._change = PartitionChange()

    def build(self) -> PartitionChange | None:
        """The change, or None if there is none. Call once."""
        self._complete_reassignment()
        if self._rules.elr_enabled:
            self._populate_elr()
        self._elect()
        self._bump_for_removed_replicas()
        self._set_elr()
        self._set_isr()
        self._bump_for_isr_shrink()
        if self._rules.elr_enabled:
            self._set_last_known_leader()
        self._set_assignment()
        if self._recovery_state != self._partition.recovery_state:
            self._change.recovery_state = self._recovery_state
        return None if self._change == PartitionChange() else self._change

    def _complete_reassignment(self) -> None:
        """Complete the reassignment if all added replicas are in sync, and both replicas and ISR remain non-empty
        without the removed ones."""
        if not self._removing and not self._adding:
            return
        replicas = tuple(r for r in self._replicas if r not in self._removing)
        isr = tuple(r for r in self._isr if r not in self._removing)
        if not replicas or not isr or not set(self._adding) <= set(isr):
            return
        if len(self._adding) < len(self._removing) and not set(replicas) <= set(isr):
            return
        self._isr, self._replicas, self._removing, self._adding = isr, replicas, (), ()

    def _populate_elr(self) -> None:
        """Keep replicas that leave the ISR in the ELR while the ISR is below min.insync.replicas, unless they shut down
        uncleanly (KIP-966)."""
        if len(self._isr) >= self._rules.min_isr:
            self._elr = ()
            return
        candidates = sorted({*self._elr, *self._partition.isr})
        self._elr = tuple(r for r in candidates if r not in self._isr and r not in self._targets.unclean_shutdown)

    def _elect(self) -> None:
        last_known = self._partition.last_known_elr
        elected = Candidates(
            replicas=self._replicas,
            leader=self._partition.leader,
            isr=self._isr,
            elr=self._elr,
            last_known=last_known[0] if self._rules.elr_enabled and len(last_known) == 1 else None,
        ).elect(self._targets.election, self._acceptable)
        if elected.leader == self._partition.leader:
            return
        self._change.leader = elected.leader
        if elected.leader in self._elr:
            self._isr = (elected.leader,)
            self._elr = tuple(r for r in self._elr if r != elected.leader)
        if elected.unclean:
            self._change.isr = (elected.leader,)
            self._recovery_state = RECOVERING

    def _bump_for_removed_replicas(self) -> None:
        """Increment the leader epoch if a reassignment has removed a replica."""
        if self._change.leader is None and not set(self._partition.replicas) <= set(self._replicas):
            self._change.leader = self._partition.leader

    def _set_elr(self) -> None:
        if self._change.isr is not None or not self._rules.elr_enabled:
            self._elr = ()
        if self._elr != self._partition.elr:
            self._change.elr = self._elr

    def _set_isr(self) -> None:
        """Set the ISR. Without ELR the last member stays in it: no other replica could be elected cleanly."""
        if self._change.isr is not None or self._isr == self._partition.isr:
            return
        if self._isr or self._rules.elr_enabled:
            self._change.isr = self._isr

    def _bump_for_isr_shrink(self) -> None:
        if not self._rules.bump_on_isr_shrink or self._change.leader is not None or self._change.isr is None:
            return
        if not set(self._partition.isr) <= set(self._change.isr):
            self._change.leader = self._partition.leader

    def _set_last_known_leader(self) -> None:
        leader = self._change.leader
        if leader is None:
            return
        if leader == NO_LEADER:
            if not self._partition.last_known_elr:
                self._change.last_known_elr = (self._partition.leader,)
        elif self._partition.last_known_elr:
            self._change.last_known_elr = ()

    def _set_assignment(self) -> None:
        if self._rules.with_directories:
            present = self._partition.directories or (MIGRATING_DIR,) * len(self._partition.replicas)
            known = dict(zip(self._partition.replicas, present, strict=True)) | dict(self._targets.directories or {})
            directories = tuple(known[r] if r in known else self._rules.default_directory(r) for r in self._replicas)
            if directories != present:
                self._change.directories = directories
        if self._replicas != self._partition.replicas:
            self._change.replicas = self._replicas
        if self._removing != self._partition.removing:
            self._change.removing = self._removing
        if self._adding != self._partition.adding:
            self._change.adding = self._adding


def _given(target: T | None, present: T) -> T:
    return present if target is None else target
