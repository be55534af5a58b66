"""Rebalances of a classic group: how one starts and completes, and what its timeouts do (GroupMetadataManager)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, JoinAnswer, Member, SyncAnswer
from milena.protocol.errors import ErrorCode

SESSION_CHECK_MS: Final = 5_000
"""Milliseconds until the sessions of waiting members are checked again."""
EMPTY_RETRY_MS: Final = 5_000
"""Milliseconds until a refused write of an empty generation is tried again."""


def prepare_rebalance(group: Group, now_ms: int) -> None:
    """Start a rebalance if the state allows one; otherwise check whether the current one is complete.

    A group that was empty waits ``group.initial.rebalance.delay.ms`` for more members. Any other group waits until all
    known members have rejoined, for at most the longest of their rebalance timeouts.
    """
    if group.state is GroupState.PREPARING:
        complete_if_all_joined(group, now_ms)
        return
    if group.state is GroupState.DEAD:
        return
    # Members that wait for their assignments have to rejoin.
    if group.state is GroupState.COMPLETING:
        fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    timeout = group.rebalance_timeout_ms()
    if group.state is GroupState.EMPTY:
        delay = min(group.settings.initial_delay_ms, timeout)
        group.initial_remaining_ms = timeout - delay
        group.new_member_added = False
        group.join_deadline_ms = now_ms + delay
    else:
        group.initial_remaining_ms = None
        group.join_deadline_ms = now_ms + timeout
    group.sync_deadline_ms = None
    group.move_to(GroupState.PREPARING, now_ms)
    if group.initial_remaining_ms is None or group.settings.initial_delay_ms == 0:
        complete_if_all_joined(group, now_ms)


def fail_syncs(group: Group, error: ErrorCode, now_ms: int) -> None:
    """Clear the assignments and answer all waiting SyncGroup requests with ``error``. The sessions of these members are
    extended, because a waiting member sends no heartbeats."""
    for member in list(group.members.values()):
        member.assignment = b""
        if member.sync_reply is not None:
            group.touch(member, now_ms)
        member.answer_sync(SyncAnswer(error))


def complete_if_all_joined(group: Group, now_ms: int) -> None:
    """Complete the join phase if all members have rejoined. An initial rebalance first waits for its delay."""
    initial_delay = group.initial_remaining_ms is not None and group.settings.initial_delay_ms > 0
    if group.state is GroupState.PREPARING and group.all_joined() and (not initial_delay or not group.members):
        complete_join(group, now_ms)


def complete_join(group: Group, now_ms: int) -> None:
    """Complete the join phase: remove dynamic members that have not rejoined, and begin a generation. If only static
    members that have not rejoined remain, the join phase is prolonged."""
    for member in [m for m in group.members.values() if m.join_reply is None and m.instance_id is None]:
        group.remove(member)
    # Only static members remain, and none has rejoined: no member could compute the assignment.
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
        group.begin_subscriptions()
        _write_empty(group, now_ms)
        return
    group.protocol_name = group.select_protocol()
    group.move_to(GroupState.COMPLETING, now_ms)
    group.begin_subscriptions()
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
    group.pending_sync_members = dict.fromkeys(group.members)
    for member in list(group.members.values()):
        member.is_new = False
        group.touch(member, now_ms)
        member.answer_join(group.join_answer(member))


def _write_empty(group: Group, now_ms: int) -> None:
    """Write the group's empty generation. A refused write is retried: a coordinator that loads the previous generation
    would begin new sessions for its members."""
    refused = group.shard.persist(group, {}, lambda error: None) is not ErrorCode.NONE
    group.empty_write_retry_ms = now_ms + EMPTY_RETRY_MS if refused else None


def end_generation(group: Group, error: ErrorCode, now_ms: int) -> None:
    """End the generation after an unexpected error, and answer all waiting requests with ``error``. The group is then
    empty and keeps its offsets; its members get UNKNOWN_MEMBER_ID and rejoin."""
    waiting = list(group.members.values())
    group.clear(now_ms)
    group.begin_subscriptions()
    for member in waiting:
        # A reply that raises, perhaps the cause of ``error``, must not keep the other members from being answered.
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
    """Remove a member (it left, or its session expired) and start or complete a rebalance."""
    member.answer_join(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    member.answer_sync(SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING):
        prepare_rebalance(group, now_ms)
    elif group.state is GroupState.PREPARING:
        complete_if_all_joined(group, now_ms)


def remove_pending(group: Group, member_id: str, now_ms: int) -> bool:
    """Remove a pending member id. Returns whether it was pending."""
    removed = group.pending_members.discard(member_id)
    if removed:
        complete_if_all_joined(group, now_ms)
    return removed


def expire(group: Group, now_ms: int) -> None:
    """Handle everything that is due: pending ids, sessions, the join phase, missing SyncGroup requests, the retry of a
    write."""
    if group.pending_members.expire(now_ms):
        complete_if_all_joined(group, now_ms)
    for member in list(group.members.values()):
        # Removing the previous member may have completed a rebalance, which extends sessions and removes members.
        is_member = group.members.get(member.member_id) is member
        if is_member and member.deadline_ms <= now_ms and not member.waits:
            drop(group, member, now_ms)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
        _end_join_wait(group, now_ms)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        _drop_unsynced(group, now_ms)
    if group.empty_write_retry_ms is not None and group.empty_write_retry_ms <= now_ms:
        group.empty_write_retry_ms = None
        if group.state is GroupState.EMPTY:
            _write_empty(group, now_ms)
    group.session_bound_ms = _sessions_bound_ms(group, now_ms)


def _sessions_bound_ms(group: Group, now_ms: int) -> int | None:
    """No session expires before this time. The response extends the session of a waiting member, so its expired
    deadline counts as one ``SESSION_CHECK_MS`` from now."""
    later = now_ms + SESSION_CHECK_MS
    return min(
        (max(member.deadline_ms, later) if member.waits else member.deadline_ms for member in group.members.values()),
        default=None,
    )


def _end_join_wait(group: Group, now_ms: int) -> None:
    remaining = group.initial_remaining_ms
    # Members joined during the initial delay: wait for more, up to the rebalance timeout in total (KIP-134).
    if remaining and group.new_member_added:
        delay = min(group.settings.initial_delay_ms, remaining)
        group.new_member_added = False
        group.initial_remaining_ms = remaining - delay
        group.join_deadline_ms = now_ms + delay
    else:
        complete_join(group, now_ms)


def _drop_unsynced(group: Group, now_ms: int) -> None:
    """Remove members that have not sent SyncGroup in time, and rebalance the others."""
    group.sync_deadline_ms = None
    late = [group.members[member_id] for member_id in group.pending_sync_members if member_id in group.members]
    if late:
        for member in late:
            group.remove(member)
        prepare_rebalance(group, now_ms)


def next_deadline_ms(group: Group) -> int | None:
    """When to call ``expire`` next. Nothing is due before that time, and perhaps nothing at it, because members extend
    their sessions. The cost does not grow with the number of members."""
    deadlines = (
        group.join_deadline_ms,
        group.sync_deadline_ms,
        group.empty_write_retry_ms,
        group.pending_members.next_expiration_ms(),
        group.session_bound_ms,
    )
    return min((deadline for deadline in deadlines if deadline is not None), default=None)
