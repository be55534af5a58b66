"""The in-sync replicas as their leader sees them: what is committed, and the one change that is under way.

::

                      propose
    Committed -----------------------> PendingExpand or PendingShrink
        ^                                           |
        +--- committed, rolled back, or replaced by the metadata ---+

``maximal`` is what the high watermark waits for: with the newcomers, as the controller may have let them in already;
a shrink counts once it is committed (KIP-497, docs/kafka-semantics.md: Partition leaders). All values; nothing here
has a clock or waits.
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
    """What the controller has written."""

    isr: Isr

    @property
    def maximal(self) -> Isr:
        return self.isr

    @property
    def last_committed(self) -> Committed:
        return self


@dataclass(frozen=True, slots=True, eq=False)
class PendingExpand:
    """``added`` was proposed on top of ``last_committed``."""

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
    """``last_committed`` without ``removed`` was proposed."""

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
    """What a leader does about a proposal that the controller has not accepted."""

    ROLL_BACK = auto()
    """Certainly not applied: back to what is committed."""
    WAIT = auto()
    """Maybe applied: the metadata will say."""
    AGAIN = auto()
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
    """The table of docs/kafka-semantics.md: AlterPartition; what is not in it (a controller that is behind, an unknown
    failure) is sent again."""
    return _REACTIONS.get(error, Reaction.AGAIN)
