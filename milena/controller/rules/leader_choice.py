"""Leader election: the choice among a partition's replicas, and the ISR of a new partition.

An election is clean if the replica is in the ISR, or in the ELR while the ISR is empty (KIP-966). Any other election is
unclean: acknowledged records may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from milena.node.metadata.image import NO_LEADER, BrokerImage, PartitionImage
from milena.protocol.types import NodeId

Acceptable: TypeAlias = Callable[[NodeId], bool]
"""Whether a broker may lead the partition now."""


class Election(Enum):
    """The reason for an election."""

    PREFERRED = "preferred"
    """The first replica if possible; otherwise as ONLINE."""
    ONLINE = "online"
    """The leader stays if it can; otherwise the first possible replica."""
    UNCLEAN = "unclean"
    """As ONLINE, then any acceptable replica."""


@dataclass(frozen=True, slots=True)
class Elected:
    """The outcome: a replica or NO_LEADER, and whether data may be lost."""

    leader: NodeId
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """The input of an election. ``last_known`` is the last leader of a partition whose ISR and ELR are empty."""

    replicas: Sequence[NodeId]
    leader: NodeId
    isr: Sequence[NodeId]
    elr: Sequence[NodeId] = ()
    last_known: NodeId | None = None

    def elect(self, election: Election, acceptable: Acceptable) -> Elected:
        """Elect in Kafka's order of preference (docs/kafka-semantics.md: Partition changes)."""
        clean = self.isr or self.elr
        if election is Election.PREFERRED:
            order = [self.replicas[0], self.leader, *self.replicas[1:]]
        else:
            order = [self.leader, *self.replicas]
        for replica in order:
            if replica in clean and acceptable(replica):
                return Elected(replica)
        last = self.last_known
        # A reassignment may have removed its replica since.
        if last is not None and last in self.replicas and not clean and acceptable(last):
            return Elected(last, unclean=True)
        if election is Election.UNCLEAN:
            for replica in self.replicas:
                if acceptable(replica):
                    return Elected(replica, unclean=True)
        return Elected(NO_LEADER)


def acceptance(
    brokers: Mapping[int, BrokerImage],
    partition: PartitionImage,
    *,
    joining: NodeId | None = None,
    leaving: Sequence[NodeId] = (),
    moved: Mapping[NodeId, UUID] = MappingProxyType({}),
) -> Acceptable:
    """Return which brokers may lead ``partition``: registered and active ones whose log directory of the replica is
    online.

    ``joining`` counts as active although the image still has it fenced (its unfencing is in the same batch),
    ``leaving`` brokers count as inactive although the image has them active. ``moved`` replicas are in these
    directories in place of those in the image.
    """

    def acceptable(replica: NodeId) -> bool:
        broker = brokers.get(replica)
        if broker is None or replica in leaving or not (broker.active or replica == joining):
            return False
        directory = moved.get(replica) or partition.directory_of(replica)
        return directory is None or broker.has_online_dir(directory)

    return acceptable


def initial_isr(active_replicas: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """The ISR of a new partition, leader first: all replicas on active brokers, because all are empty."""
    return tuple(active_replicas)
