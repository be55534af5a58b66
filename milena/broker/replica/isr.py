"""The leader's state of the ISR, like Kafka's PartitionState: the committed ISR, or one pending change of it.

::

                      propose
    Committed -----------------------> PendingExpand or PendingShrink
        ^                                           |
        +--- committed, rolled back, or replaced by the metadata ---+

The high watermark waits for ``maximal``. It includes proposed new members, since the controller may already have added
them; a shrink counts only once it is committed (KIP-497, docs/kafka-semantics.md: Partition leaders). All states are
immutable values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from milena.protocol.errors import ErrorCode
from milena.protocol.types import NodeId

Isr: TypeAlias = tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """The ISR that the controller has written; no change is pending."""

    isr: Isr

    @property
    def maximal(self) -> Isr:
        return self.isr

    @property
    def last_committed(self) -> Committed:
        return self


@dataclass(frozen=True, slots=True, eq=False)
class PendingExpand:
    """A proposal to add ``added`` to ``last_committed``."""

    last_committed: Committed
    added: NodeId

    @property
    def isr(self) -> Isr:
        return self.last_committed.isr

    @property
    def maximal(self) -> Isr:
        return (*self.last_committed.isr, self.added)

    @property
    def proposed(self) -> Isr:
        return self.maximal


@dataclass(frozen=True, slots=True, eq=False)
class PendingShrink:
    """A proposal to remove ``removed`` from ``last_committed``."""

    last_committed: Committed
    removed: Isr

    @property
    def isr(self) -> Isr:
        return self.last_committed.isr

    @property
    def maximal(self) -> Isr:
        return self.last_committed.isr

    @property
    def proposed(self) -> Isr:
        return tuple(node for node in self.last_committed.isr if node not in self.removed)


Pending: TypeAlias = PendingExpand | PendingShrink
IsrState: TypeAlias = Committed | Pending


class Reaction(Enum):
    """What a leader does after the controller has rejected a proposal."""

    ROLL_BACK = auto()
    """The change was not applied: return to the committed state."""
    WAIT = auto()
    """The change may have been applied: wait for the metadata."""
    RESEND = auto()
    """Send the same proposal again."""


_REACTIONS: Final = {
    ErrorCode.OPERATION_NOT_ATTEMPTED: Reaction.ROLL_BACK,
    ErrorCode.INELIGIBLE_REPLICA: Reaction.ROLL_BACK,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.WAIT,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.WAIT,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.WAIT,
    ErrorCode.INVALID_UPDATE_VERSION: Reaction.WAIT,
    ErrorCode.INVALID_REQUEST: Reaction.WAIT,
    ErrorCode.NEW_LEADER_ELECTED: Reaction.WAIT,
}


def reaction(error: ErrorCode) -> Reaction:
    """The reaction to an error code (docs/kafka-semantics.md: AlterPartition). After any other error, such as that of a
    controller with older metadata, the proposal is sent again."""
    return _REACTIONS.get(error, Reaction.RESEND)
