"""How a partition's registration changes: target ISR, replicas and directories in, one PartitionChange record out.

The steps and their order are Kafka's (docs/kafka-semantics.md: Partition changes). A record bumps the partition epoch;
one that names a leader, even the same, bumps the leader epoch too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from milena.controller.rules.leader_choice import Acceptable, Candidates, Election
from milena.node.metadata.image import NO_LEADER, PartitionImage
from milena.protocol.types import MIGRATING_DIR, UNASSIGNED_DIR, NodeId

RECOVERED: Final = 0
RECOVERING: Final = 1

Brokers = tuple[NodeId, ...]


@dataclass(slots=True, kw_only=True)
class PartitionChangeBuilder:
    """Collects what shall change of one partition; ``build`` decides what that means for its leader.

    Targets start as the partition is. ``min_isr`` counts only where ``elr_enabled`` (KIP-966).
    """

    partition: PartitionImage
    acceptable: Acceptable
    elr_enabled: bool = False
    min_isr: int = 1
    election: Election = Election.ONLINE
    isr: Brokers = ()
    replicas: Brokers = ()
    removing: Brokers = ()
    adding: Brokers = ()
    recovery_state: int = RECOVERED
    unclean_shutdown: Collection[NodeId] = ()
    bump_on_isr_shrink: bool = False
    """Below metadata.version 3.6-IV0 a shrinking ISR bumps the leader epoch."""
    with_directories: bool = True
    """Since metadata.version 3.7-IV2 records say in which log directory a replica lies."""
    directories: dict[NodeId, UUID] = field(default_factory=dict)
    default_directory: Callable[[NodeId], UUID] = lambda _: UNASSIGNED_DIR
    elr: Brokers = field(default=(), init=False)
    _changes: dict[str, Any] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, partition: PartitionImage, acceptable: Acceptable, **options: Any) -> PartitionChangeBuilder:
        """A builder whose targets are the partition's present state, but for ``options``."""
        present: dict[str, Any] = {
            "isr": partition.isr,
            "replicas": partition.replicas,
            "removing": partition.removing,
            "adding": partition.adding,
            "recovery_state": partition.recovery_state,
        }
        builder = cls(partition=partition, acceptable=acceptable, **(present | options))
        builder.elr = partition.elr
        return builder

    def build(self) -> dict[str, Any] | None:
        """The fields of a PartitionChange record without its topic and partition, or None where nothing changes."""
        self._changes = {}
        self._complete_reassignment()
        if self.elr_enabled:
            self._populate_elr()
        self._elect()
        self._bump_for_lost_replicas()
        self._note_elr()
        self._note_isr()
        self._bump_for_isr_shrink()
        if self.elr_enabled:
            self._note_last_known_leader()
        self._note_assignment()
        if self.recovery_state != self.partition.recovery_state:
            self._changes["leader_recovery_state"] = self.recovery_state
        return self._changes or None

    def _complete_reassignment(self) -> None:
        """A reassignment ends when all that is added is in sync and something of either kind is left."""
        if not self.removing and not self.adding:
            return
        replicas = tuple(r for r in self.replicas if r not in self.removing)
        isr = tuple(r for r in self.isr if r not in self.removing)
        if not replicas or not isr or not set(self.adding) <= set(isr):
            return
        if len(self.adding) < len(self.removing) and not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, (), ()

    def _populate_elr(self) -> None:
        """Below min ISR, those that leave the ISR stay eligible, unless their shutdown was unclean."""
        if len(self.isr) >= self.min_isr:
            self.elr = ()
            return
        candidates = sorted({*self.elr, *self.partition.isr})
        self.elr = tuple(r for r in candidates if r not in self.isr and r not in self.unclean_shutdown)

    def _elect(self) -> None:
        last_known = self.partition.last_known_elr
        elected = Candidates(
            replicas=self.replicas,
            leader=self.partition.leader,
            isr=self.isr,
            elr=self.elr,
            last_known=last_known[0] if self.elr_enabled and len(last_known) == 1 else None,
        ).elect(self.election, self.acceptable)
        if elected.leader == self.partition.leader:
            return
        self._changes["leader"] = elected.leader
        if elected.leader in self.elr:
            self.isr = (elected.leader,)
            self.elr = tuple(r for r in self.elr if r != elected.leader)
        if elected.unclean:
            self._changes["isr"] = (elected.leader,)
            self.recovery_state = RECOVERING

    def _bump_for_lost_replicas(self) -> None:
        if "leader" not in self._changes and not set(self.partition.replicas) <= set(self.replicas):
            self._changes["leader"] = self.partition.leader

    def _note_elr(self) -> None:
        if "isr" in self._changes or not self.elr_enabled:
            self.elr = ()
        if self.elr != self.partition.elr:
            self._changes["eligible_leader_replicas"] = self.elr

    def _note_isr(self) -> None:
        """Without ELR the last member stays in the ISR: who else could be elected cleanly?"""
        if "isr" in self._changes or self.isr == self.partition.isr:
            return
        if self.isr or self.elr_enabled:
            self._changes["isr"] = self.isr

    def _bump_for_isr_shrink(self) -> None:
        if not self.bump_on_isr_shrink or "leader" in self._changes or "isr" not in self._changes:
            return
        if not set(self.partition.isr) <= set(self._changes["isr"]):
            self._changes["leader"] = self.partition.leader

    def _note_last_known_leader(self) -> None:
        leader = self._changes.get("leader")
        if leader is None:
            return
        if leader == NO_LEADER:
            if not self.partition.last_known_elr:
                self._changes["last_known_elr"] = (self.partition.leader,)
        elif self.partition.last_known_elr:
            self._changes["last_known_elr"] = ()

    def _note_assignment(self) -> None:
        if self.with_directories:
            present = self.partition.directories or (MIGRATING_DIR,) * len(self.partition.replicas)
            known = dict(zip(self.partition.replicas, present, strict=True)) | self.directories
            directories = tuple(known[r] if r in known else self.default_directory(r) for r in self.replicas)
            if directories != present:
                self._changes["directories"] = directories
        if self.replicas != self.partition.replicas:
            self._changes["replicas"] = self.replicas
        if self.removing != self.partition.removing:
            self._changes["removing_replicas"] = self.removing
        if self.adding != self.partition.adding:
            self._changes["adding_replicas"] = self.adding
