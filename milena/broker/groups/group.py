"""One classic group: members, generation, protocol and offsets, and the rules between them.

It has no clock, disk or network: times are passed in as milliseconds, and writes go out through ``Effects``. Joining,
rebalancing and syncing are in the modules with these names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

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

Persisted = Callable[[ErrorCode], None]


class Effects(Protocol):
    """What a group needs from its coordinator."""

    def persist(self, group: Group, assignments: Mapping[str, bytes] | None, done: Persisted) -> ErrorCode:
        """Write the group's metadata, with these assignments if given. Returns NONE if the record was appended;
        ``done`` is then called when it is committed, or when the wait for that ends. With any other code nothing was
        appended and ``done`` is not called."""
        ...

    def claim(self, group: Group, instance_id: str, member_id: str, done: Persisted) -> ErrorCode:
        """Ensure that the log gives this static member no other member id; write a record if needed, as ``persist``
        does. If a member learned an id before the log did, a coordinator that loads the log would fence the member for
        good (KAFKA-10284)."""
        ...

    def new_member_id(self, prefix: str) -> str: ...

    def time_ms(self) -> int:
        """The current time, for steps that continue after a write."""
        ...


class Group:
    """The state of one group. Invariants: the leader is a member, and all members support the protocol."""

    __slots__ = (
        "_subscribed",
        "_subscriptions",
        "_supported",
        "assigning",
        "effects",
        "empty_unwritten_ms",
        "generation",
        "group_id",
        "initial_remaining_ms",
        "join_deadline_ms",
        "leader_id",
        "logged",
        "logged_end",
        "members",
        "newcomer",
        "offsets",
        "pending_members",
        "protocol_name",
        "protocol_type",
        "session_bound_ms",
        "settings",
        "state",
        "state_since_ms",
        "static_members",
        "sync_deadline_ms",
        "unsynced",
    )

    def __init__(
        self,
        group_id: str,
        *,
        now_ms: int,
        settings: GroupSettings,
        effects: Effects,
        pending: dict[str, str] | None = None,
    ) -> None:
        """``pending`` is shared by the groups of a shard: the pending member ids of all groups, as PendingMembers keeps
        them."""
        self.group_id = group_id
        self.settings = settings
        self.effects = effects
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.session_bound_ms: int | None = None
        """No session that can expire does so before this time; None if there is none. It saves a look at every
        member."""
        self.pending_members = PendingMembers(group_id, {} if pending is None else pending)
        self.offsets: dict[tuple[str, int], CommittedOffset] = {}
        self.join_deadline_ms: int | None = None
        self.initial_remaining_ms: int | None = None
        """Set during the first rebalance of an empty group: how much longer the wait for members may be extended."""
        self.newcomer = False
        self.sync_deadline_ms: int | None = None
        self.unsynced: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup yet, in order."""
        self.assigning = False
        """Whether the assignment of this generation is being written: the first one wins."""
        self.empty_unwritten_ms: int | None = None
        """Set while the log does not yet say that the group is empty: when to write that again."""
        self.logged: GroupMetadataValue | None = None
        """The group's latest record in the log. It is committed once the high watermark reaches ``logged_end``."""
        self.logged_end = 0
        self._subscriptions: tuple[bytes, ...] | None = None
        self._subscribed: frozenset[str] | None = None
        """The topics of these subscriptions; computed on first use."""
        self._supported: Counter[str] = Counter()
        """How many members support each protocol."""

    def move_to(self, state: GroupState, now_ms: int) -> None:
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
        """A generation has a leader, and a protocol that all of its members support."""
        if self.leader_id not in self.members:
            raise self._broken("has a leader that is no member")
        if self._supported[self.protocol_name or ""] != len(self.members):
            raise self._broken(f"has a protocol that {self._supported[self.protocol_name or '']} members support")

    def _broken(self, what: str) -> BrokenInvariant:
        return BrokenInvariant(
            f"group {self.group_id} {what}: {self.state.name}, generation {self.generation}, leader {self.leader_id}, "
            f"protocol {self.protocol_name}, {len(self.members)} members, {len(self.static_members)} of them static"
        )

    def add(self, member: Member) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if (known := self.members.get(member.member_id)) is not None:
            self._count(known, -1)
        self.members[member.member_id] = member
        self._count(member, 1)
        self._bound(member.deadline_ms)
        self.pending_members.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        if self.members.pop(member.member_id, None) is not None:
            self._count(member, -1)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def clear(self, now_ms: int) -> None:
        """The last member has left: the group becomes empty, whatever state it was in, and its generation ends."""
        self.state, self.state_since_ms = GroupState.EMPTY, now_ms
        self.generation += 1
        self.protocol_name = self.leader_id = None
        self.members, self.static_members, self.unsynced = {}, {}, {}
        self.pending_members.clear()
        self._supported.clear()
        self.session_bound_ms = None
        self.join_deadline_ms = self.initial_remaining_ms = self.sync_deadline_ms = None
        self.newcomer = self.assigning = False

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """Give a static member a new member id and keep its place. Requests that wait under the old id are fenced."""
        old_id = self.static_members[instance_id]
        if old_id not in self.members or new_id in self.members:
            raise self._broken(f"knows {instance_id} as {old_id}, which becomes {new_id}")
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
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def all_joined(self) -> bool:
        return not self.pending_members and all(member.join_reply is not None for member in self.members.values())

    def common_protocols(self) -> list[str]:
        """Protocols that every member supports, in the first member's order."""
        first = next(iter(self.members.values()), None)
        return [name for name, _ in first.protocols if self._supported[name] == len(self.members)] if first else []

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols may join the group."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(self._supported[name] == everyone for name in names)

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """The member supports these protocols from now on."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            self._supported[name] += by
            if self._supported[name] < 0:
                raise self._broken(f"has {self._supported[name]} members that support {name}")
            if not self._supported[name]:
                del self._supported[name]

    def vote(self) -> str:
        """The protocol that most members prefer among those that all of them support."""
        candidates = dict.fromkeys(self.common_protocols())
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self.members.values()
        )
        return max(candidates, key=lambda name: votes[name])

    def vote_with(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> str:
        """The result of the vote if one member had these protocols."""
        own = member.protocols
        self.set_protocols(member, protocols)
        try:
            return self.vote()
        finally:
            self.set_protocols(member, own)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def join_answer(self, member: Member) -> JoinAnswer:
        """The current generation as JoinGroup reports it to one member. Only the leader gets the list of members."""
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
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def touch(self, member: Member, now_ms: int) -> None:
        """Extend the session of a member that sent a request."""
        member.deadline_ms = now_ms + member.session_timeout_ms
        self._bound(member.deadline_ms)

    def begin_sessions(self, now_ms: int) -> None:
        """The group can be asked from now on: begin the sessions of members that were read from the log and have not
        been heard of since."""
        for member in self.members.values():
            if member.deadline_ms == SESSION_NOT_BEGUN:
                self.touch(member, now_ms)

    def _bound(self, deadline_ms: int) -> None:
        if self.session_bound_ms is None or deadline_ms < self.session_bound_ms:
            self.session_bound_ms = deadline_ms

    def identify(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """The member that a request is from, or the error if the request is not allowed."""
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
        """Answer every waiting request."""
        for member in list(self.members.values()):
            member.answer_join(JoinAnswer(error, member.member_id))
            member.answer_sync(SyncAnswer(error))

    def note_subscriptions(self) -> None:
        """A generation begins: its subscriptions are those that its members have for the chosen protocol."""
        self._subscriptions = tuple(member.metadata(self.protocol_name) for member in self.members.values())
        self._subscribed = None

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member of this generation is subscribed to a topic (ClassicGroup.isSubscribedToTopic). In a group
        of consumers every topic counts if a subscription cannot be read, or if no generation has begun."""
        if self.protocol_type != PROTOCOL_TYPE:
            return False
        if self._subscriptions is None:
            return True
        if self._subscribed is None:
            read = [subscribed_topics(metadata) for metadata in self._subscriptions]
            if None in read:
                self._subscriptions = None
                return True
            self._subscribed = frozenset().union(*(topics for topics in read if topics is not None))
        return topic in self._subscribed
