"""The parts of a classic group: states, members, and the responses that members wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from milena.protocol.errors import ErrorCode
from milena.protocol.types import ZERO_UUID

NO_GENERATION: Final = -1
"""The generation in an error response."""
SESSION_NOT_BEGUN: Final = 1 << 62
"""The deadline (ms) of a member that was read from the log, until ``Group.begin_sessions``."""


class GroupState(Enum):
    """The states of a group. The values are Kafka's names, as in DescribeGroups.

    ::

        Empty -> PreparingRebalance -> CompletingRebalance -> Stable
                    ^    |  (no members left: Empty) |           |
                    +----+---------------------------+-----------+     any -> Dead
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final = {
    GroupState.EMPTY: {GroupState.PREPARING, GroupState.DEAD},
    GroupState.PREPARING: {GroupState.EMPTY, GroupState.COMPLETING, GroupState.DEAD},
    GroupState.COMPLETING: {GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD},
    GroupState.STABLE: {GroupState.PREPARING, GroupState.DEAD},
    GroupState.DEAD: {GroupState.DEAD},
}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's ``group.*`` configs. Times are in milliseconds."""

    min_session_ms: int = 6_000
    max_session_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    initial_delay_ms: int = 3_000
    new_member_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member, as in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """A JoinGroup response."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """A SyncGroup response."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


A = TypeVar("A", JoinAnswer, SyncAnswer)


class ReplyOnce(Generic[A]):
    """Sends at most one response; further ones are ignored. If sending raises for an error response too, ``lost`` is
    called. Raises what ``reply`` raises."""

    __slots__ = ("_lost", "_reply", "_sent")

    def __init__(self, reply: Callable[[A], None], lost: Callable[[], object]) -> None:
        self._reply: Callable[[A], None] = reply
        self._lost = lost
        self._sent = False

    def __call__(self, answer: A) -> None:
        if self._sent:
            return
        try:
            self._reply(answer)
        except Exception:
            # A response that cannot be sent may still be followed by an error response.
            if answer.error is not ErrorCode.NONE:
                self._sent = True
                self._lost()
            raise
        self._sent = True


JoinReply: TypeAlias = Callable[[JoinAnswer], None]
SyncReply: TypeAlias = Callable[[SyncAnswer], None]


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request; fields that its version lacks have defaults."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_member_id: bool
    """v4 and later (KIP-394): a dynamic member without an id gets one, and has to rejoin with it."""
    can_skip_assignment: bool
    """v9 and later (KIP-814): the response may order a static leader to compute no assignment."""


@dataclass(slots=True)
class Member:
    """One member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    deadline_ms: int = 0
    """When the session expires (ms). It does not expire while the member waits for a response, unless it is new."""
    is_new: bool = False
    """Whether the member waits for its first generation."""
    join_reply: JoinReply | None = field(default=None, repr=False)
    sync_reply: SyncReply | None = field(default=None, repr=False)

    @property
    def waits(self) -> bool:
        """Whether the session cannot expire because the member waits for a response."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol; empty if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def answer_join(self, answer: JoinAnswer) -> None:
        """Answer the waiting JoinGroup, if any. If the reply raises, the request keeps waiting."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            try:
                reply(answer)
            except Exception:
                self.join_reply = reply
                raise

    def answer_sync(self, answer: SyncAnswer) -> None:
        """As ``answer_join``, for SyncGroup."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            try:
                reply(answer)
            except Exception:
                self.sync_reply = reply
                raise


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's offset for one partition (OffsetCommitValue)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: UUID = ZERO_UUID
    """Id of the topic; zero in records from before Kafka 4.1."""
