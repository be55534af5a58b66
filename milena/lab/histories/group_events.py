"""The events of consumer groups: requests to coordinators with their outcomes, and times with faults.

``node`` is the node that answered, "" if the client does not know it. A request took effect between ``begun`` and
``ended``; one of unknown outcome may take effect later, or never. Partitions are (topic, number).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from milena.protocol.types import TopicPartition

Share: TypeAlias = tuple[TopicPartition, ...]
NO_OFFSET: Final = -1


class RequestOutcome(Enum):
    """The outcome of a request. ``UNKNOWN``: it may have taken effect, or may take effect later."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of one group."""

    group: str
    node: str
    begun: float
    ended: float
    outcome: RequestOutcome


@dataclass(frozen=True, slots=True)
class AsMember(Asked):
    """A request of a member, under one id; ``instance`` is "" for a dynamic member."""

    member: str
    generation: int
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Awaited(AsMember):
    """``silent``: no answer came within the maximum time, over a connection that did not break."""

    silent: bool = False


@dataclass(frozen=True, slots=True)
class Join(Awaited):
    """JoinGroup. ``member`` and ``generation`` are the answer's; ``members`` are those in the leader's answer."""

    leader: str = ""
    members: tuple[tuple[str, str], ...] = ()
    """(member id, instance id or "")."""


@dataclass(frozen=True, slots=True)
class Sync(Awaited):
    """SyncGroup. ``sent``: the assignments that a leader sent; ``share``: the assignment in the answer."""

    sent: tuple[tuple[str, Share], ...] | None = None
    share: Share = ()


@dataclass(frozen=True, slots=True)
class MemberHeartbeat(AsMember):
    """A heartbeat. It is OK if it was answered without an error."""


@dataclass(frozen=True, slots=True)
class OffsetCommit(AsMember):
    """One partition of an OffsetCommit. ``generation`` is -1 for a commit without membership, or if it is unknown."""

    partition: TopicPartition = ("", 0)
    offset: int = 0
    metadata: str = ""
    retention: float | None = None
    """Seconds after which the offset expires (OffsetCommit up to version 4); None if it does not."""
    retried: bool = False
    """Whether the client may have sent the request several times: each but the last may take effect later."""


@dataclass(frozen=True, slots=True)
class OffsetFetch(Asked):
    """One partition of an answered OffsetFetch; ``offset`` is -1 for none."""

    partition: TopicPartition
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetDelete(Asked):
    """One partition of an OffsetDelete (KIP-496)."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupDelete(Asked):
    """DeleteGroups. ``absent``: it was rejected, since the group does not exist."""

    absent: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """From ``at`` on all faults have ended: no replaced coordinator still acts as one, and earlier requests without an
    answer have taken effect, or never will."""

    at: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """A node, or its link to the clients, had a fault: missing answers from it prove nothing. ``node`` is "" for all
    nodes."""

    node: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Expiry:
    """From ``at`` on coordinators may remove empty groups without offsets."""

    at: float


GroupEvent: TypeAlias = (
    Join | Sync | MemberHeartbeat | OffsetCommit | OffsetFetch | OffsetDelete | GroupDelete | Settled | Trouble | Expiry
)
GROUP_KINDS: Final[Mapping[str, type[GroupEvent]]] = {
    "join": Join,
    "sync": Sync,
    "heartbeat": MemberHeartbeat,
    "offset commit": OffsetCommit,
    "offset fetch": OffsetFetch,
    "offset delete": OffsetDelete,
    "group delete": GroupDelete,
    "settled": Settled,
    "trouble": Trouble,
    "expiry": Expiry,
}
