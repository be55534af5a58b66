"""SyncGroup, Heartbeat and LeaveGroup of one classic group (GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Mapping

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, SyncAnswer, SyncReply
from milena.broker.groups.rebalance import drop, fail_syncs, prepare_rebalance, remove_pending
from milena.protocol.errors import ErrorCode


def sync(
    group: Group,
    *,
    member_id: str,
    instance_id: str | None,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    assignments: Mapping[str, bytes],
    reply: SyncReply,
    now_ms: int,
) -> None:
    """Answer a SyncGroup request: in a stable group at once, otherwise when the leader's assignments are committed.
    ``reply`` is called exactly once."""
    member = group.identify(member_id, instance_id)
    if isinstance(member, ErrorCode):
        reply(SyncAnswer(member))
        return
    if generation != group.generation:
        reply(SyncAnswer(ErrorCode.ILLEGAL_GENERATION))
        return
    if (protocol_type is not None and protocol_type != group.protocol_type) or (
        protocol_name is not None and protocol_name != group.protocol_name
    ):
        reply(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    group.pending_sync_members.pop(member.member_id, None)
    match group.state:
        case GroupState.PREPARING:
            reply(SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        case GroupState.STABLE:
            group.touch(member, now_ms)
            reply(group.sync_answer(member))
        case GroupState.COMPLETING:
            # The member's second request replaces its first one, as in JoinGroup.
            member.answer_sync(SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_reply = reply
            if group.is_leader(member) and not group.assigning:
                _assign(group, assignments)
        case _:
            reply(SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))


def _assign(group: Group, assignments: Mapping[str, bytes]) -> None:
    """Write the leader's assignments; when they are committed, the group is stable and waiting members get theirs."""
    generation = group.generation
    assigned = {member_id: assignments.get(member_id, b"") for member_id in group.members}

    def failed(error: ErrorCode) -> None:
        now_ms = group.shard.time_ms()  # not that of the request: the write may have taken as long as a session
        fail_syncs(group, error, now_ms)
        prepare_rebalance(group, now_ms)

    def written(error: ErrorCode) -> None:
        # Another rebalance may have begun while the assignment was being written.
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            return
        if error is not ErrorCode.NONE:
            failed(error)
            return
        now_ms = group.shard.time_ms()
        group.move_to(GroupState.STABLE, now_ms)
        for member in list(group.members.values()):
            member.assignment = assigned.get(member.member_id, b"")
            if member.sync_reply is not None:
                group.touch(member, now_ms)
                member.answer_sync(group.sync_answer(member))

    group.assigning = True
    error = group.shard.persist(group, assigned, written)
    if error is not ErrorCode.NONE:
        failed(error)


def heartbeat(group: Group, *, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
    """Extend a member's session. Returns REBALANCE_IN_PROGRESS if the member has to rejoin."""
    member = group.identify(member_id, instance_id)
    if isinstance(member, ErrorCode):
        return member
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    group.touch(member, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorCode.NONE


def leave(group: Group, *, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
    """Remove the member named in a LeaveGroup request. A static member may be named by its instance id alone
    (KIP-345)."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if instance_id is not None and not member_id:
        member_id = group.static_members.get(instance_id, "")
    # As in Kafka, a member id that is pending leaves whatever instance id is with it.
    if remove_pending(group, member_id, now_ms):
        return ErrorCode.NONE
    member = group.identify(member_id, instance_id)
    if isinstance(member, ErrorCode):
        return member
    drop(group, member, now_ms)
    return ErrorCode.NONE
