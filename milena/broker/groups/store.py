"""Builds the records that the coordinator writes to ``__consumer_offsets``, in Kafka's format
(GroupCoordinatorRecordHelpers). ``loading`` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, Unpack

from milena.broker.groups.group import Group
from milena.broker.groups.model import CommittedOffset, Member
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.records import coordinator_records as records
from milena.protocol.records.batch import BatchHeader
from milena.protocol.records.records import BatchBuilder, Record, build_batch
from milena.protocol.types import TopicPartition

KeyValue: TypeAlias = tuple[bytes, bytes | None]


def batch(pairs: Iterable[KeyValue], now_ms: int) -> bytes:
    """One uncompressed batch of these records."""
    return build_batch(
        [Record(index, 0, key, value) for index, (key, value) in enumerate(pairs)],
        base_timestamp=now_ms,
    )


def offset_records(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> list[KeyValue]:
    """Offset records; None is a tombstone."""
    return [
        (
            records.encode_key(records.OffsetCommitKey(group=group_id, topic=topic, partition=partition)),
            None if committed is None else records.encode_value(_offset_value(committed)),
        )
        for (topic, partition), committed in offsets.items()
    ]


def offset_batch(
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset | None],
    now_ms: int,
    **header: Unpack[BatchHeader],
) -> Cooperative[bytes]:
    """One uncompressed batch of offset records; empty if there are none. ``header``: the producer of a transaction's
    offsets. Yields between records."""
    builder, budget = BatchBuilder(), YieldBudget()
    for partition, committed in offsets.items():
        ((key, value),) = offset_records(group_id, {partition: committed})
        builder.append(timestamp=now_ms, key=key, value=value)
        if budget.spend(1):
            yield
    return builder.build(**header) if builder.count else b""


def group_value(group: Group, assignments: Mapping[str, bytes] | None) -> records.GroupMetadataValue:
    """The metadata value of a group's generation, with new assignments if given, else with the members' current
    ones."""
    members = tuple(
        _member(group, member, member.assignment if assignments is None else assignments.get(member.member_id, b""))
        for member in group.members.values()
    )
    return records.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=members,
    )


def with_static_member(
    value: records.GroupMetadataValue | None, instance_id: str, member_id: str
) -> records.GroupMetadataValue | None:
    """Return ``value`` with a new member id for a static member; None if ``value`` lacks the member or already has that
    id."""
    old_ids = [member.member_id for member in value.members if member.group_instance_id == instance_id] if value else []
    if value is None or not old_ids or old_ids == [member_id]:
        return None
    members = tuple(
        replace(member, member_id=member_id) if member.group_instance_id == instance_id else member
        for member in value.members
    )
    return replace(value, members=members, leader=member_id if value.leader in old_ids else value.leader)


def group_record(group_id: str, value: records.GroupMetadataValue) -> KeyValue:
    return records.encode_key(records.GroupMetadataKey(group=group_id)), records.encode_value(value)


def group_tombstone(group_id: str) -> KeyValue:
    return records.encode_key(records.GroupMetadataKey(group=group_id)), None


def _member(group: Group, member: Member, assignment: bytes) -> records.MemberMetadata:
    return records.MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=assignment,
    )


def _offset_value(committed: CommittedOffset) -> records.OffsetCommitValue:
    return records.OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
