"""Rebalances: when a group starts one, when it is complete, and what time does to it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, JoinAnswer, Member, SyncAnswer
from milena.protocol.errors import ErrorCode

LOOK_AGAIN_MS: Final = 5_000
"""When the sessions of members that wait are looked at next."""
EMPTY_AGAIN_MS: Final = 5_000
"""How long after a refused write of an empty generation the next is tried."""


def prepare(group: Group, now_ms: int) -> None:
    """Start a rebalance if the state allows one, else see whether the one under way is complete.

    A group that was empty waits ``group.initial.rebalance.delay.ms`` for more members; any other waits until all known
    members have joined again, for the longest of their rebalance timeouts.
    """
    if group.state is GroupState.PREPARING:
        complete_if_all_joined(group, now_ms)
        return
    if group.state is GroupState.DEAD:
        return
    if group.state is GroupState.COMPLETING:
        fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    timeout = group.rebalance_timeout_ms()
    if group.state is GroupState.EMPTY:
        delay = min(group.settings.initial_delay_ms, timeout)
        group.initial_remaining_ms = timeout - delay
        group.newcomer = False
        group.join_deadline_ms = now_ms + delay
    else:
        group.initial_remaining_ms = None
        group.join_deadline_ms = now_ms + timeout
    group.sync_deadline_ms = None
    group.move_to(GroupState.PREPARING, now_ms)
    if group.initial_remaining_ms is None or group.settings.initial_delay_ms == 0:
        complete_if_all_joined(group, now_ms)


def fail_syncs(group: Group, error: ErrorCode, now_ms: int) -> None:
    """Forget the assignments and answer all who wait for one. Their sessions begin anew: they could not heartbeat."""
    for member in list(group.members.values()):
        member.assignment = b""
        if member.sync_reply is not None:
            group.touch(member, now_ms)
        member.answer_sync(SyncAnswer(error))


def complete_if_all_joined(group: Group, now_ms: int) -> None:
    gathering = group.initial_remaining_ms is not None and group.settings.initial_delay_ms > 0
    if group.state is GroupState.PREPARING and group.all_joined() and (not gathering or not group.members):
        complete_join(group, now_ms)


def complete_join(group: Group, now_ms: int) -> None:
    """End the join phase: who has not come again is dropped (static members stay), a generation begins."""
    for member in [m for m in group.members.values() if m.join_reply is None and m.instance_id is None]:
        group.remove(member)
    if group.members and not _elect_joined_leader(group):
        group.join_deadline_ms = now_ms + group.rebalance_timeout_ms()
        return
    group.join_deadline_ms = None
    group.initial_remaining_ms = None
    group.generation += 1
    if not group.members:
        group.protocol_name = None
        group.leader_id = None
        group.move_to(GroupState.EMPTY, now_ms)
        group.note_subscriptions()
        _write_empty(group, now_ms)
        return
    group.protocol_name = group.vote()
    group.move_to(GroupState.COMPLETING, now_ms)
    group.note_subscriptions()
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
    group.unsynced = dict.fromkeys(group.members)
    for member in list(group.members.values()):
        member.is_new = False
        group.touch(member, now_ms)
        member.answer_join(group.join_answer(member))


def _write_empty(group: Group, now_ms: int) -> None:
    """A log that still has the last generation gives its members a new session wherever it is read again: what was
    refused is written again after a while."""
    refused = group.effects.persist(group, {}, lambda error: None) is not ErrorCode.NONE
    group.empty_unwritten_ms = now_ms + EMPTY_AGAIN_MS if refused else None


def end(group: Group, error: ErrorCode, now_ms: int) -> None:
    """Something that must not happen has: end the generation and tell all who wait. The group is empty then, with its
    offsets; its members join anew when they hear that they are unknown."""
    waiting = list(group.members.values())
    group.clear(now_ms)
    group.note_subscriptions()
    for member in waiting:
        # One that cannot be told, which may be what has happened, does not keep the others from hearing.
        with suppress(Exception):
            member.answer_join(JoinAnswer(error, member.member_id))
            member.answer_sync(SyncAnswer(error))
    _write_empty(group, now_ms)


def _elect_joined_leader(group: Group) -> bool:
    if group.leader_id is not None and group.members[group.leader_id].join_reply is not None:
        return True
    joined = next((m.member_id for m in group.members.values() if m.join_reply is not None), None)
    if joined is None:
        return False
    group.leader_id = joined
    return True


def drop(group: Group, member: Member, now_ms: int) -> None:
    """Take a member out (left, or its session ended) and rebalance the others."""
    member.answer_join(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    member.answer_sync(SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING):
        prepare(group, now_ms)
    elif group.state is GroupState.PREPARING:
        complete_if_all_joined(group, now_ms)


def forget_pending(group: Group, member_id: str, now_ms: int) -> bool:
    """Nobody waits any longer for the member that was given this id; whether it was one."""
    found = group.pending_members.discard(member_id)
    if found:
        complete_if_all_joined(group, now_ms)
    return found


def expire(group: Group, now_ms: int) -> None:
    """Carry out all that is due: pending ids, sessions, the join phase, members that never synced."""
    if group.pending_members.lapse(now_ms):
        complete_if_all_joined(group, now_ms)
    for member in list(group.members.values()):
        # Dropping one may have completed a rebalance and so renewed or removed others.
        still_in = group.members.get(member.member_id) is member
        if still_in and member.deadline_ms <= now_ms and not member.waits:
            drop(group, member, now_ms)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
        _end_join_wait(group, now_ms)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        _drop_unsynced(group, now_ms)
    if group.empty_unwritten_ms is not None and group.empty_unwritten_ms <= now_ms:
        group.empty_unwritten_ms = None
        if group.state is GroupState.EMPTY:
            _write_empty(group, now_ms)
    group.session_bound_ms = _sessions_bound_ms(group, now_ms)


def _sessions_bound_ms(group: Group, now_ms: int) -> int | None:
    """The session of one that is owed an answer begins anew with that answer. Should it not, it is seen soon."""
    later = now_ms + LOOK_AGAIN_MS
    return min(
        (max(member.deadline_ms, later) if member.waits else member.deadline_ms for member in group.members.values()),
        default=None,
    )


def _end_join_wait(group: Group, now_ms: int) -> None:
    remaining = group.initial_remaining_ms
    if remaining and group.newcomer:
        delay = min(group.settings.initial_delay_ms, remaining)
        group.newcomer = False
        group.initial_remaining_ms = remaining - delay
        group.join_deadline_ms = now_ms + delay
    else:
        complete_join(group, now_ms)


def _drop_unsynced(group: Group, now_ms: int) -> None:
    group.sync_deadline_ms = None
    late = [group.members[member_id] for member_id in group.unsynced if member_id in group.members]
    if late:
        for member in late:
            group.remove(member)
        prepare(group, now_ms)


def next_deadline_ms(group: Group) -> int | None:
    """When ``expire`` may have something to do next. It may come too early, as members prolong their sessions: what it
    costs to ask does not grow with their number."""
    single = (
        group.join_deadline_ms,
        group.sync_deadline_ms,
        group.empty_unwritten_ms,
        group.pending_members.next_ms(),
        group.session_bound_ms,
    )
    return min((deadline for deadline in single if deadline is not None), default=None)
