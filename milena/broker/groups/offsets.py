"""The committed offsets of a group: who may commit, what may be deleted, and which ones have expired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from milena.broker.groups.group import Group
from milena.broker.groups.model import CommittedOffset, GroupState
from milena.protocol.errors import ErrorCode
from milena.protocol.records.consumer_protocol import PROTOCOL_TYPE
from milena.protocol.types import ZERO_UUID, TopicPartition

Chosen: TypeAlias = Callable[[TopicPartition, CommittedOffset], bool]
"""Selects offsets."""


def commit_refusal(
    group: Group, *, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> ErrorCode | None:
    """Why a commit is refused. A negative generation is a consumer without group membership, which may commit only
    while the group is empty. A member's commit extends its session."""
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
    """Why a group may not be deleted."""
    match group.state:
        case GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        case GroupState.EMPTY:
            return None
        case _:
            return ErrorCode.NON_EMPTY_GROUP


def offset_delete_refusal(group: Group) -> ErrorCode | None:
    """Why none of a group's offsets may be deleted. In a group with members this needs consumers, whose subscriptions
    are known."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != PROTOCOL_TYPE:
        return ErrorCode.NON_EMPTY_GROUP
    return None


def expired_offsets(group: Group, *, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Offsets older than ``offsets.retention.minutes`` (KIP-211). The time runs from when the group became empty; in a
    group that never had members, from the commit; in a group with members it concerns topics that no member subscribes
    to."""
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
    if committed.expire_timestamp_ms >= 0:
        return now_ms >= committed.expire_timestamp_ms
    live = group.state is GroupState.STABLE
    if live and (group.protocol_type != PROTOCOL_TYPE or group.subscribes_to(partition[0])):
        return False
    emptied_ms = group.state_since_ms if group.protocol_type is not None and not live else 0
    return now_ms - max(committed.commit_timestamp_ms, emptied_ms) >= retention_ms


def is_vacant(group: Group) -> bool:
    """Whether a group has no members and none are joining: without offsets it can be removed."""
    return group.state is GroupState.EMPTY and not group.pending_members


def of_topics(topics: Mapping[UUID, str]) -> Chosen:
    """Selects the offsets of deleted topics (names by id). Offsets of later topics with the same names stay."""
    names = frozenset(topics.values())

    def chosen(partition: TopicPartition, committed: CommittedOffset) -> bool:
        return committed.topic_id in topics or (committed.topic_id == ZERO_UUID and partition[0] in names)

    return chosen


def of_unknown(exists: Callable[[UUID], bool]) -> Chosen:
    """Selects the offsets of unknown topic ids. Offsets without an id (from brokers before 4.1) only have a name, which
    proves nothing."""

    def chosen(_: TopicPartition, committed: CommittedOffset) -> bool:
        return committed.topic_id != ZERO_UUID and not exists(committed.topic_id)

    return chosen
