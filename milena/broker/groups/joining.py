"""JoinGroup: who may join a group, under which member id, and whether that starts a rebalance (KIP-134, 345, 394,
814)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, JoinAnswer, JoinReply, JoinRequest, Member
from milena.broker.groups.rebalance import drop, forget_pending, prepare
from milena.protocol.errors import ErrorCode


def join(group: Group, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    """Let a member join, or refuse it. ``reply`` is called exactly once: now, or when the generation begins."""
    if len(names := {name for name, _ in request.protocols}) < len(request.protocols):
        # A protocol that is listed twice counts once, at its first place: two votes of one member elect nothing.
        request = replace(request, protocols=tuple(_first_of_each(request.protocols, names)))
    if not _has_room(group, request.member_id):
        _give_up(group, request.member_id, now_ms)
        reply(JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    elif (error := _refusal(group, request)) is not None:
        reply(JoinAnswer(error, request.member_id))
    elif not request.member_id:
        _join_without_id(group, request, reply, now_ms)
    else:
        _join_with_id(group, request, reply, now_ms)


def _first_of_each(protocols: Iterable[tuple[str, bytes]], names: set[str]) -> Iterator[tuple[str, bytes]]:
    for name, metadata in protocols:
        if name in names:
            names.discard(name)
            yield name, metadata


def _refusal(group: Group, request: JoinRequest) -> ErrorCode | None:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def _give_up(group: Group, member_id: str, now_ms: int) -> None:
    """A member that a full group refuses is removed (ClassicGroup.remove), so that the others do not wait for it."""
    member = group.members.get(member_id)
    if member is not None:
        drop(group, member, now_ms)
    else:
        forget_pending(group, member_id, now_ms)


def _has_room(group: Group, member_id: str) -> bool:
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    limit = group.settings.max_size
    known = group.members.get(member_id)
    if group.state is GroupState.PREPARING:
        # During a rebalance only the members that have rejoined count: the others may be gone.
        joined = sum(1 for member in group.members.values() if member.join_reply is not None)
        return (known is not None and known.join_reply is not None) or joined < limit
    return known is not None or len(group.members) < limit


def _join_without_id(group: Group, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    if request.instance_id is not None:
        new_id = group.effects.new_member_id(request.instance_id)
        if request.instance_id in group.static_members:
            _rejoin_static(group, request, new_id, reply, now_ms)
        elif (told := _claim(group, request, new_id, reply)) is not None:
            _enter(group, request, new_id, told, now_ms)
        return
    new_id = group.effects.new_member_id(request.client_id)
    if request.needs_known_member_id:
        group.pending_members.add(new_id, now_ms + request.session_timeout_ms)
        reply(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, new_id))
    else:
        _enter(group, request, new_id, reply, now_ms)


def _join_with_id(group: Group, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    if request.member_id in group.pending_members and request.instance_id is None:
        _enter(group, request, request.member_id, reply, now_ms)
        return
    member = group.identify(request.member_id, request.instance_id)
    if isinstance(member, ErrorCode):
        reply(JoinAnswer(member, request.member_id))
        return
    same = member.protocols == request.protocols
    match group.state:
        case GroupState.PREPARING:
            _rejoin(group, member, request, reply, now_ms)
        case GroupState.COMPLETING if same:
            # The response to its first request was lost: it gets the current generation again.
            group.touch(member, now_ms)
            reply(group.join_answer(member))
        case GroupState.STABLE if same and not group.is_leader(member):
            group.touch(member, now_ms)
            reply(group.join_answer(member))
        case GroupState.COMPLETING | GroupState.STABLE:
            _rejoin(group, member, request, reply, now_ms)
        case _:
            reply(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))


def _enter(group: Group, request: JoinRequest, member_id: str, reply: JoinReply, now_ms: int) -> None:
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        request.protocols,
        deadline_ms=now_ms + group.settings.new_member_timeout_ms,
        is_new=True,
        join_reply=reply,
    )
    group.add(member)
    if group.initial_remaining_ms is not None:
        group.newcomer = True
    prepare(group, now_ms)


def _rejoin(group: Group, member: Member, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    _update(group, member, request)
    # A second request of a member replaces the first one, whose connection is closed or which the client has given up.
    member.answer_join(JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.join_reply = reply
    prepare(group, now_ms)


def _update(group: Group, member: Member, request: JoinRequest) -> None:
    group.set_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms


def _claim(group: Group, request: JoinRequest, new_id: str, reply: JoinReply) -> JoinReply | None:
    """Write a static member's new id to the log before the member learns it (KAFKA-10284; Kafka does so only in
    Stable). Returns the reply to call after the write, or None if the write was refused and the member has got the
    error."""
    assert request.instance_id is not None
    held: list[JoinAnswer] = []
    outcome: list[ErrorCode] = []

    def answer() -> None:
        if held and outcome:
            error = outcome[0]
            reply(held[-1] if error is ErrorCode.NONE else JoinAnswer(error, request.member_id))

    def told(found: JoinAnswer) -> None:
        held.append(found)
        answer()

    def written(error: ErrorCode) -> None:
        outcome.append(error)
        answer()

    error = group.effects.claim(group, request.instance_id, new_id, written)
    if error is ErrorCode.NONE:
        return told
    reply(JoinAnswer(error, request.member_id))
    return None


def _rejoin_static(group: Group, request: JoinRequest, new_id: str, reply: JoinReply, now_ms: int) -> None:
    """A static member rejoined under a new id: the generation continues unless the protocol would change."""
    assert request.instance_id is not None
    member = group.members[group.static_members[request.instance_id]]
    if group.state is GroupState.STABLE and group.vote_with(member, request.protocols) == group.protocol_name:
        _keep_generation(group, member, request, new_id, reply, now_ms)
        return
    told = _claim(group, request, new_id, reply)
    if told is None:
        return
    group.replace_static(request.instance_id, new_id)
    _update(group, member, request)
    group.touch(member, now_ms)
    member.join_reply = told
    prepare(group, now_ms)


def _keep_generation(
    group: Group, member: Member, request: JoinRequest, new_id: str, reply: JoinReply, now_ms: int
) -> None:
    assert request.instance_id is not None
    old_id = member.member_id
    before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
    old_leader = group.leader_id
    group.replace_static(request.instance_id, new_id)
    _update(group, member, request)
    answer = _kept(group, member, request, old_leader)

    def written(error: ErrorCode) -> None:
        reply(answer if error is ErrorCode.NONE else JoinAnswer(error, request.member_id))

    error = group.effects.persist(group, None, written)
    if error is ErrorCode.NONE:
        group.touch(member, now_ms)
        return
    group.replace_static(request.instance_id, old_id)
    protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
    group.set_protocols(member, protocols)
    reply(JoinAnswer(error, request.member_id))


def _kept(group: Group, member: Member, request: JoinRequest, old_leader: str | None) -> JoinAnswer:
    leads = group.is_leader(member)
    return JoinAnswer(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        # Before KIP-814, a returning leader gets its old id as the leader's id, so that it computes no assignment.
        (group.leader_id if request.can_skip_assignment else old_leader) or "",
        group.joined_members() if leads and request.can_skip_assignment else (),
        skip_assignment=leads and request.can_skip_assignment,
    )
