"""Rules for the offsets of a group: whether a request may commit or delete them, and which ones have expired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from milena.broker.groups.group import Group
from milena.broker.groups.model import CommittedOffset, GroupState
from milena.protocol.errors import ErrorCode
from milena.protocol.records.consumer_protocol import PROTOCOL_TYPE
from milena.protocol.types import ZERO_UUID, TopicPartition

OffsetPredicate: TypeAlias = Callable[[TopicPartition, CommittedOffset], bool]
"""Whether the offset of a partition is to be removed."""


def transactional_commit_refusal(
    group: Group, *, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode | None:
    """Return the error of a TxnOffsetCommit, or None if it is allowed (ClassicGroup.validateOffsetCommit).

    Unlike OffsetCommit it is allowed during a rebalance, and extends no session. Producers that do not send their
    consumer's generation (before KIP-447) may always commit: the transactional id alone fences them.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and (group.state is GroupState.EMPTY or (not member_id and instance_id is None)):
        return None
    member = group.identify(member_id, instance_id)
    if isinstance(member, ErrorCode):
        return member
    return ErrorCode.ILLEGAL_GENERATION if generation != group.generation else None


def commit_refusal(
    group: Group, *, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> ErrorCode | None:
    """Return the error of an OffsetCommit, or None if it is allowed; a member's session is then extended.

    A consumer without group membership (negative generation) may commit only while the group is empty.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return None
    member = group.identify(member_id, instance_id)
    if isinstance(member, ErrorCode):
        return member
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    group.touch(member, now_ms)
    return None


def delete_refusal(group: Group) -> ErrorCode | None:
    """Return the error of DeleteGroups for this group, or None if the group may be deleted."""
    match group.state:
        case GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        case GroupState.EMPTY:
            return None
        case _:
            return ErrorCode.NON_EMPTY_GROUP


def offset_delete_refusal(group: Group) -> ErrorCode | None:
    """Return the error of OffsetDelete for the whole group, or None. A group with members must be one of consumers,
    because only their subscriptions can be decoded."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != PROTOCOL_TYPE:
        return ErrorCode.NON_EMPTY_GROUP
    return None


def expired_offsets(group: Group, *, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose offsets are older than the retention time ``offsets.retention.minutes`` (KIP-211).

    The age is counted from the commit, or from when the group became empty if that was later. In a group with members
    only offsets of topics without subscription expire.
    """
    if group.state not in (GroupState.EMPTY, GroupState.STABLE):
        return []
    return [
        partition
        for partition, committed in group.offsets.items()
        if _is_old(group, partition, committed, now_ms, retention_ms)
    ]


def _is_old(
    group: Group, partition: TopicPartition, committed: CommittedOffset, now_ms: int, retention_ms: int
) -> bool:
    if committed.expire_timestamp_ms >= 0:  # set by the client: OffsetCommit up to version 4
        return now_ms >= committed.expire_timestamp_ms
    live = group.state is GroupState.STABLE
    if live and (group.protocol_type != PROTOCOL_TYPE or group.subscribes_to(partition[0])):
        return False
    emptied_ms = group.state_since_ms if group.protocol_type is not None and not live else 0
    return now_ms - max(committed.commit_timestamp_ms, emptied_ms) >= retention_ms


def is_vacant(group: Group) -> bool:
    """Whether a group has no members and no pending member ids. Such a group is removed with its last offset."""
    return group.state is GroupState.EMPTY and not group.pending_members


def has_deleted_topic(topics: Mapping[UUID, str]) -> OffsetPredicate:
    """Return a predicate for the offsets of deleted topics (names by id). It does not match offsets of later topics
    with the same names. Offsets without a topic id are compared by name."""
    names = frozenset(topics.values())

    def matches(partition: TopicPartition, committed: CommittedOffset) -> bool:
        return committed.topic_id in topics or (committed.topic_id == ZERO_UUID and partition[0] in names)

    return matches


def has_unknown_topic(exists: Callable[[UUID], bool]) -> OffsetPredicate:
    """Return a predicate for offsets whose topic id does not exist. It does not match offsets without a topic id (from
    brokers before 4.1): a topic of that name may be a later one."""

    def matches(_: TopicPartition, committed: CommittedOffset) -> bool:
        return committed.topic_id != ZERO_UUID and not exists(committed.topic_id)

    return matches
