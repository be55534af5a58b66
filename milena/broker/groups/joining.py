"""JoinGroup: which members may join a group, with which member id, and whether that starts a rebalance (KIP-134,
345, 394, 814)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, JoinAnswer, JoinReply, JoinRequest, Member
from milena.broker.groups.rebalance import drop, prepare_rebalance, remove_pending
from milena.protocol.errors import ErrorCode


def join(group: Group, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    """Add or refuse a member. ``reply`` is called exactly once: within this call, or when the generation begins."""
    if len(names := {name for name, _ in request.protocols}) < len(request.protocols):
        # A repeated protocol counts once, at its first position, so that each member has one vote.
        request = replace(request, protocols=tuple(_first_of_each(request.protocols, names)))
    if not _accepts_member(group, request.member_id):
        _remove_refused(group, request.member_id, now_ms)
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


def _remove_refused(group: Group, member_id: str, now_ms: int) -> None:
    """Remove the member that a full group refuses (ClassicGroup.remove), so that the rebalance does not wait for it."""
    member = group.members.get(member_id)
    if member is not None:
        drop(group, member, now_ms)
    else:
        remove_pending(group, member_id, now_ms)


def _accepts_member(group: Group, member_id: str) -> bool:
    """Whether ``group.max.size`` allows this member (GroupMetadataManager.acceptJoiningMember)."""
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    limit = group.settings.max_size
    known = group.members.get(member_id)
    if group.state is GroupState.PREPARING:
        # During a rebalance only members that have rejoined count: the others may not rejoin.
        joined = sum(1 for member in group.members.values() if member.join_reply is not None)
        return (known is not None and known.join_reply is not None) or joined < limit
    return known is not None or len(group.members) < limit


def _join_without_id(group: Group, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    if request.instance_id is not None:
        new_id = group.shard.new_member_id(request.instance_id)
        if request.instance_id in group.static_members:
            _rejoin_static(group, request, new_id, reply, now_ms)
        elif (deferred_reply := _persist_static_id(group, request, new_id, reply)) is not None:
            _add_member(group, request, new_id, deferred_reply, now_ms)
        return
    new_id = group.shard.new_member_id(request.client_id)
    # KIP-394: the member rejoins with its id, so that a lost response leaves no member behind that never syncs.
    if request.needs_known_member_id:
        group.pending_members.add(new_id, now_ms + request.session_timeout_ms)
        reply(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, new_id))
    else:
        _add_member(group, request, new_id, reply, now_ms)


def _join_with_id(group: Group, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    if request.member_id in group.pending_members and request.instance_id is None:
        _add_member(group, request, request.member_id, reply, now_ms)
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
            # The response to the member's first request was lost: it gets the current generation again.
            group.touch(member, now_ms)
            reply(group.join_answer(member))
        case GroupState.STABLE if same and not group.is_leader(member):
            # A follower without changes does not start a rebalance; a leader rejoins in order to start one.
            group.touch(member, now_ms)
            reply(group.join_answer(member))
        case GroupState.COMPLETING | GroupState.STABLE:
            _rejoin(group, member, request, reply, now_ms)
        case _:
            reply(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))


def _add_member(group: Group, request: JoinRequest, member_id: str, reply: JoinReply, now_ms: int) -> None:
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
        group.new_member_added = True
    prepare_rebalance(group, now_ms)


def _rejoin(group: Group, member: Member, request: JoinRequest, reply: JoinReply, now_ms: int) -> None:
    _update(group, member, request)
    # The member's second request replaces its first one, whose connection is closed or which timed out at the client.
    member.answer_join(JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.join_reply = reply
    prepare_rebalance(group, now_ms)


def _update(group: Group, member: Member, request: JoinRequest) -> None:
    group.set_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms


def _persist_static_id(group: Group, request: JoinRequest, new_id: str, reply: JoinReply) -> JoinReply | None:
    """Write a static member's new id to the log before the member gets it in a response (KAFKA-10284; Kafka does so
    only in Stable).

    Returns the reply function to use in place of ``reply``: it sends its last answer once the write is committed, or
    the error of the write. Returns None if the write was refused; the error was sent then.
    """
    assert request.instance_id is not None
    answers: list[JoinAnswer] = []
    write_results: list[ErrorCode] = []

    def send_if_complete() -> None:
        if answers and write_results:
            error = write_results[0]
            reply(answers[-1] if error is ErrorCode.NONE else JoinAnswer(error, request.member_id))

    def deferred_reply(answer: JoinAnswer) -> None:
        answers.append(answer)
        send_if_complete()

    def written(error: ErrorCode) -> None:
        write_results.append(error)
        send_if_complete()

    error = group.shard.persist_static_id(group, request.instance_id, new_id, written)
    if error is ErrorCode.NONE:
        return deferred_reply
    reply(JoinAnswer(error, request.member_id))
    return None


def _rejoin_static(group: Group, request: JoinRequest, new_id: str, reply: JoinReply, now_ms: int) -> None:
    """A known static member joins without its id, for example after a restart: it gets a new id (KIP-345). A stable
    generation continues if its protocol does not change."""
    assert request.instance_id is not None
    member = group.members[group.static_members[request.instance_id]]
    if (
        group.state is GroupState.STABLE
        and group.select_protocol_with(member, request.protocols) == group.protocol_name
    ):
        _keep_generation(group, member, request, new_id, reply, now_ms)
        return
    deferred_reply = _persist_static_id(group, request, new_id, reply)
    if deferred_reply is None:
        return
    group.replace_static(request.instance_id, new_id)
    _update(group, member, request)
    group.touch(member, now_ms)
    member.join_reply = deferred_reply
    prepare_rebalance(group, now_ms)


def _keep_generation(
    group: Group, member: Member, request: JoinRequest, new_id: str, reply: JoinReply, now_ms: int
) -> None:
    """Rename a static member in a stable group without a rebalance; undo it if the write is refused."""
    assert request.instance_id is not None
    old_id = member.member_id
    before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
    old_leader = group.leader_id
    group.replace_static(request.instance_id, new_id)
    _update(group, member, request)
    answer = _unchanged_answer(group, member, request, old_leader)

    def written(error: ErrorCode) -> None:
        reply(answer if error is ErrorCode.NONE else JoinAnswer(error, request.member_id))

    error = group.shard.persist(group, None, written)
    if error is ErrorCode.NONE:
        group.touch(member, now_ms)
        return
    group.replace_static(request.instance_id, old_id)
    protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
    group.set_protocols(member, protocols)
    reply(JoinAnswer(error, request.member_id))


def _unchanged_answer(group: Group, member: Member, request: JoinRequest, old_leader: str | None) -> JoinAnswer:
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
