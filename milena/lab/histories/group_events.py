"""What a history says of consumer groups: requests to coordinators with their outcomes, and when those were in trouble.

``node`` is who answered, "" where the client cannot tell. A request took effect, if it did, between ``begun`` and
``ended``; one whose outcome is unknown may also do so later. Partitions are (topic, number).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
Share: TypeAlias = tuple[TopicPartition, ...]
NO_OFFSET: Final = -1


class RequestOutcome(Enum):
    """``UNKNOWN``: it may have happened, or may happen yet."""

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
    """Of a member, under one id; ``instance`` is "" for a dynamic one."""

    member: str
    generation: int
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Awaited(AsMember):
    """``silent``: no answer came in longer than it may take, over a connection that did not break."""

    silent: bool = False


@dataclass(frozen=True, slots=True)
class Join(Awaited):
    """JoinGroup. ``member`` and ``generation`` are the answer's; ``members`` those of whom the leader was told."""

    leader: str = ""
    members: tuple[tuple[str, str], ...] = ()
    """(member id, instance id or "")."""


@dataclass(frozen=True, slots=True)
class Sync(Awaited):
    """SyncGroup. ``sent``: what a leader shared out; ``share``: what the answer gave."""

    sent: tuple[tuple[str, Share], ...] | None = None
    share: Share = ()


@dataclass(frozen=True, slots=True)
class MemberHeartbeat(AsMember):
    """One that was answered without an error is OK."""


@dataclass(frozen=True, slots=True)
class OffsetCommit(AsMember):
    """One partition of an OffsetCommit. ``generation`` is -1 for one without membership, or where nobody knows."""

    partition: TopicPartition = ("", 0)
    offset: int = 0
    metadata: str = ""
    retention: float | None = None
    """Seconds after which it expires (up to version 4), None where it stays."""
    retried: bool = False
    """The client may have sent it several times: each but the last may take effect later."""


@dataclass(frozen=True, slots=True)
class OffsetFetch(Asked):
    """One partition of an OffsetFetch that was answered; ``offset`` is -1 for none."""

    partition: TopicPartition
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetDelete(Asked):
    """One partition of an OffsetDelete (KIP-496)."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupDelete(Asked):
    """DeleteGroups. ``absent``: it was refused, since there is no such group."""

    absent: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """From ``at`` on everything is mended: no broker takes itself for a coordinator that is none any more, and what was
    asked before without an answer has taken effect, or never will."""

    at: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """A node, or its link to the clients, was in trouble: what it did not answer proves nothing."""

    node: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Expiry:
    """From ``at`` on coordinators look for empty groups without offsets and forget them, within the history's time."""

    at: float


GroupEvent: TypeAlias = (
    Join | Sync | MemberHeartbeat | OffsetCommit | OffsetFetch | OffsetDelete | GroupDelete | Settled | Trouble | Expiry
)
GROUP_KINDS: Final[Mapping[str, type[Any]]] = {
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
