"""Rebalances: when a group begins one, when it completes, and what happens when time runs out."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, JoinAnswer, Member, SyncAnswer
from milena.protocol.errors import ErrorCode

LOOK_AGAIN_MS: Final = 5_000
"""When the sessions of waiting members are checked next."""
EMPTY_AGAIN_MS: Final = 5_000
"""The pause before a refused write of an empty generation is tried again."""


def prepare(group: Group, now_ms: int) -> None:
    """Start a rebalance if the state allows one; otherwise check whether the current one is complete.

    A group that was empty waits ``group.initial.rebalance.delay.ms`` for more members. Any other group waits until all
    known members have rejoined, for at most the longest of their rebalance timeouts.
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
    """Drop the assignments and answer all waiting SyncGroup requests. The sessions begin anew, as members that wait
    cannot send heartbeats."""
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
    """Complete the join phase: members that have not rejoined are removed (static members stay), and a generation
    begins."""
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
    """As long as the log has the previous generation, every coordinator that loads it gives its members a new session.
    So a refused write is tried again after a pause."""
    refused = group.effects.persist(group, {}, lambda error: None) is not ErrorCode.NONE
    group.empty_unwritten_ms = now_ms + EMPTY_AGAIN_MS if refused else None


def end(group: Group, error: ErrorCode, now_ms: int) -> None:
    """An unexpected error: end the generation and answer all waiting requests. The group is then empty and keeps its
    offsets; its members rejoin when they learn that they are unknown."""
    waiting = list(group.members.values())
    group.clear(now_ms)
    group.note_subscriptions()
    for member in waiting:
        # A member that cannot be answered, perhaps the cause of the error, does not keep the others from being
        # answered.
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
    """Remove a member (it left, or its session expired) and rebalance the others."""
    member.answer_join(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    member.answer_sync(SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING):
        prepare(group, now_ms)
    elif group.state is GroupState.PREPARING:
        complete_if_all_joined(group, now_ms)


def forget_pending(group: Group, member_id: str, now_ms: int) -> bool:
    """Stop waiting for the member that was given this id. Returns whether there was one."""
    found = group.pending_members.discard(member_id)
    if found:
        complete_if_all_joined(group, now_ms)
    return found


def expire(group: Group, now_ms: int) -> None:
    """Handle everything that is due: pending ids, sessions, the join phase, members that never sent SyncGroup."""
    if group.pending_members.lapse(now_ms):
        complete_if_all_joined(group, now_ms)
    for member in list(group.members.values()):
        # Removing one may have completed a rebalance, and so extended or removed others.
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
    """The session of a member that waits for a response begins anew with that response; check again soon in case it
    does not."""
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
    """When ``expire`` may have something to do next. The time may be early, as members extend their sessions; the cost
    of asking does not grow with the number of members."""
    single = (
        group.join_deadline_ms,
        group.sync_deadline_ms,
        group.empty_unwritten_ms,
        group.pending_members.next_ms(),
        group.session_bound_ms,
    )
    return min((deadline for deadline in single if deadline is not None), default=None)
