"""One classic group, like Kafka's ``ClassicGroup``: members, generation, protocol and offsets, and their invariants.

A group has no clock, disk or network: times are passed in as milliseconds, and records are written through
``GroupShard``. JoinGroup is in ``joining``, rebalances in ``rebalance``; SyncGroup, Heartbeat and LeaveGroup are in
``membership``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from milena.broker.groups.model import (
    SESSION_NOT_BEGUN,
    TRANSITIONS,
    CommittedOffset,
    GroupSettings,
    GroupState,
    JoinAnswer,
    JoinedMember,
    Member,
    SyncAnswer,
)
from milena.broker.groups.pending import PendingMembers
from milena.protocol.errors import ErrorCode
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from milena.protocol.records.coordinator_records import GroupMetadataValue
from milena.protocol.records.hashing import java_map_order

Persisted = Callable[[ErrorCode], None]
"""Called when a write is committed (NONE), or with the error if the wait for that ended."""

MAX_ORDERED_CHARS: Final = 10_000
"""The longest names of protocols, together, that are hashed to decide a tied vote: more would block the broker."""


class GroupShard(Protocol):
    """What a group needs from its shard."""

    def persist(self, group: Group, assignments: Mapping[str, bytes] | None, done: Persisted) -> ErrorCode:
        """Write the group's metadata, with these assignments if given, else with the current ones. Returns NONE if the
        record was appended; ``done`` is then called when it is committed, or when the wait for that ends. With any
        other code nothing was appended and ``done`` is not called."""
        ...

    def persist_static_id(self, group: Group, instance_id: str, member_id: str, done: Persisted) -> ErrorCode:
        """Ensure that the log has no other member id for this static member; write a record if needed. Returns and
        calls ``done`` like ``persist``. If the member got an id that is not in the log, a coordinator that loads the
        log would fence the member for good (KAFKA-10284)."""
        ...

    def new_member_id(self, prefix: str) -> str:
        """Return ``prefix`` (client id or instance id) with a random UUID."""
        ...

    def time_ms(self) -> int:
        """The current time, for code that continues after a write."""
        ...


class Group:
    """The state of one group. Invariants: the leader is a member, and all members support the protocol."""

    __slots__ = (
        "_subscribed",
        "_subscriptions",
        "_supported",
        "assigning",
        "empty_write_retry_ms",
        "generation",
        "group_id",
        "initial_remaining_ms",
        "join_deadline_ms",
        "leader_id",
        "logged",
        "logged_end",
        "members",
        "new_member_added",
        "offsets",
        "pending_members",
        "pending_sync_members",
        "protocol_name",
        "protocol_type",
        "session_bound_ms",
        "settings",
        "shard",
        "state",
        "state_since_ms",
        "static_members",
        "sync_deadline_ms",
    )

    def __init__(
        self,
        group_id: str,
        *,
        now_ms: int,
        settings: GroupSettings,
        shard: GroupShard,
        pending: dict[str, str] | None = None,
    ) -> None:
        """``pending``: the pending member ids of all groups of the shard, see ``PendingMembers``."""
        self.group_id = group_id
        self.settings = settings
        self.shard = shard
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.session_bound_ms: int | None = None
        """No session expires before this time (ms); None without sessions. It avoids a scan of all members for the next
        deadline."""
        self.pending_members = PendingMembers(group_id, {} if pending is None else pending)
        self.offsets: dict[tuple[str, int], CommittedOffset] = {}
        self.join_deadline_ms: int | None = None
        self.initial_remaining_ms: int | None = None
        """Set during the first rebalance of an empty group: how much longer the wait for members may be extended."""
        self.new_member_added = False
        """Whether a member joined since the initial wait was last extended."""
        self.sync_deadline_ms: int | None = None
        self.pending_sync_members: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup yet, in the order of members."""
        self.assigning = False
        """Whether an assignment of this generation is being written; further ones are ignored."""
        self.empty_write_retry_ms: int | None = None
        """When to retry the write of an empty generation; None if it is in the log."""
        self.logged: GroupMetadataValue | None = None
        """The group's latest metadata record in the log. It is committed once the high watermark reaches
        ``logged_end``."""
        self.logged_end = 0
        self._subscriptions: tuple[bytes, ...] | None = None
        self._subscribed: frozenset[str] | None = None
        """The topics of ``_subscriptions``; computed on first use."""
        self._supported: Counter[str] = Counter()
        """How many members support each protocol."""

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state. Raises BrokenInvariant if the transition is not allowed."""
        if state not in TRANSITIONS[self.state]:
            raise self._broken(f"may not become {state.name}")
        if state in (GroupState.COMPLETING, GroupState.STABLE):
            self._check_generation()
        elif state is GroupState.EMPTY and self.members:
            raise self._broken("may not become EMPTY with members")
        self.state = state
        self.state_since_ms = now_ms
        self.assigning = False

    def _check_generation(self) -> None:
        """Raise BrokenInvariant unless the leader is a member and all members support the protocol."""
        if self.leader_id not in self.members:
            raise self._broken("has a leader that is not a member")
        if self._supported[self.protocol_name or ""] != len(self.members):
            supporters = self._supported[self.protocol_name or ""]
            raise self._broken(f"has a protocol that only {supporters} members support")

    def _broken(self, what: str) -> BrokenInvariant:
        return BrokenInvariant(
            f"group {self.group_id} {what}: {self.state.name}, generation {self.generation}, leader {self.leader_id}, "
            f"protocol {self.protocol_name}, {len(self.members)} members, {len(self.static_members)} of them static"
        )

    def add(self, member: Member) -> None:
        """Add a member, or replace the one with the same id. The first member becomes the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if (known := self.members.get(member.member_id)) is not None:
            self._count_protocols(known, -1)
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self._lower_session_bound(member.deadline_ms)
        self.pending_members.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member. If it was the leader, the oldest member becomes the leader."""
        if self.members.pop(member.member_id, None) is not None:
            self._count_protocols(member, -1)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def clear(self, now_ms: int) -> None:
        """Remove all members and end the generation: the group becomes EMPTY from any state. Waiting requests are not
        answered."""
        self.state, self.state_since_ms = GroupState.EMPTY, now_ms
        self.generation += 1
        self.protocol_name = self.leader_id = None
        self.members, self.static_members, self.pending_sync_members = {}, {}, {}
        self.pending_members.clear()
        self._supported.clear()
        self.session_bound_ms = None
        self.join_deadline_ms = self.initial_remaining_ms = self.sync_deadline_ms = None
        self.new_member_added = self.assigning = False

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """Give a static member a new member id; it keeps its position among the members. Waiting requests with the old
        id are answered with FENCED_INSTANCE_ID."""
        old_id = self.static_members[instance_id]
        if old_id not in self.members or new_id in self.members:
            raise self._broken(f"cannot rename static member {instance_id} from {old_id} to {new_id}")
        member = self.members[old_id]
        member.answer_join(JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_id))
        member.answer_sync(SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        member.member_id = new_id
        self.static_members[instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def is_leader(self, member: Member) -> bool:
        return self.leader_id == member.member_id

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def all_joined(self) -> bool:
        """Whether every member waits for a JoinGroup response and no member id is pending."""
        return not self.pending_members and all(member.join_reply is not None for member in self.members.values())

    def common_protocols(self) -> list[str]:
        """Protocols that every member supports, in the first member's order."""
        first = next(iter(self.members.values()), None)
        return [name for name, _ in first.protocols if self._supported[name] == len(self.members)] if first else []

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols may join the group."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self._supported[name] == count for name in names)

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Replace the protocols that a member supports."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            self._supported[name] += by
            if self._supported[name] < 0:
                raise self._broken(f"has {self._supported[name]} members that support {name}")
            if not self._supported[name]:
                del self._supported[name]

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all members support (ClassicGroup.selectProtocol). Of
        several with as many votes it is the first one in the order of Kafka's map of votes."""
        candidates = frozenset(self.common_protocols())
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self.members.values()
        )
        most = max(votes.values())
        tied = [name for name, count in votes.items() if count == most]
        if len(tied) > 1 and sum(map(len, tied)) <= MAX_ORDERED_CHARS:
            tied = java_map_order(tied, len(votes))
        return tied[0]

    def select_protocol_with(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> str:
        """What ``select_protocol`` would return if ``member`` had these protocols."""
        own = member.protocols
        self.set_protocols(member, protocols)
        try:
            return self.select_protocol()
        finally:
            self.set_protocols(member, own)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def join_answer(self, member: Member) -> JoinAnswer:
        """The JoinGroup response of the current generation for one member. Only the leader gets the list of members."""
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            self.joined_members() if self.is_leader(member) else (),
        )

    def sync_answer(self, member: Member) -> SyncAnswer:
        """The SyncGroup response with the member's assignment."""
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def touch(self, member: Member, now_ms: int) -> None:
        """Extend the session of a member that sent a request."""
        member.deadline_ms = now_ms + member.session_timeout_ms
        self._lower_session_bound(member.deadline_ms)

    def begin_sessions(self, now_ms: int) -> None:
        """Begin the sessions of members that were loaded from the log and have sent no request since."""
        for member in self.members.values():
            if member.deadline_ms == SESSION_NOT_BEGUN:
                self.touch(member, now_ms)

    def _lower_session_bound(self, deadline_ms: int) -> None:
        if self.session_bound_ms is None or deadline_ms < self.session_bound_ms:
            self.session_bound_ms = deadline_ms

    def identify(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """The member that sent a request, or the error code for the response (ClassicGroup.validateMember)."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    def answer_all(self, error: ErrorCode) -> None:
        """Answer every waiting request with ``error``."""
        for member in list(self.members.values()):
            member.answer_join(JoinAnswer(error, member.member_id))
            member.answer_sync(SyncAnswer(error))

    def begin_subscriptions(self) -> None:
        """Store the subscriptions of a new generation: the members' metadata for the chosen protocol."""
        self._subscriptions = tuple(member.metadata(self.protocol_name) for member in self.members.values())
        self._subscribed = None

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member of this generation is subscribed to a topic (ClassicGroup.isSubscribedToTopic). Always True
        in a group of consumers without a generation or with a subscription that cannot be decoded; always False in
        groups of other protocol types."""
        if self.protocol_type != PROTOCOL_TYPE:
            return False
        if self._subscriptions is None:
            return True
        if self._subscribed is None:
            decoded = [subscribed_topics(metadata) for metadata in self._subscriptions]
            if None in decoded:
                self._subscriptions = None
                return True
            self._subscribed = frozenset().union(*(topics for topics in decoded if topics is not None))
        return topic in self._subscribed
