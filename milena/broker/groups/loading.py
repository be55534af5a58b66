"""Builds the groups of a partition of ``__consumer_offsets`` from its log, as cooperative work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from milena.broker.coordinators import loading as coordinators
from milena.broker.coordinators.loading import ReadableLog
from milena.broker.groups.ended_transactions import EndedTransaction
from milena.broker.groups.group import Group
from milena.broker.groups.model import SESSION_NOT_BEGUN, CommittedOffset, GroupState, Member
from milena.broker.groups.shard import Shard
from milena.broker.groups.transactional_offsets import TransactionalOffsets
from milena.protocol.cooperative import Cooperative
from milena.protocol.records import coordinator_records as records
from milena.protocol.records.batch import BatchView
from milena.protocol.records.control_records import AbortMarker, CommitMarker, control_of
from milena.protocol.records.records import iter_records
from milena.protocol.types import NO_PRODUCER_ID, ProducerId, TopicPartition


def load(log: ReadableLog, shard: Shard) -> Cooperative[None]:
    """Load all groups of ``log`` and add them to the shard, all in the last step. Their members' sessions have not
    begun. Raises KafkaError, CorruptBatch, DecodeError."""
    loader = Loader(shard.loading_group)
    yield from loader.read(log)
    shard.add_loaded((yield from loader.finish(shard.time_ms())), loader.transactional)


class Loader(coordinators.Loader):
    """Builds groups. Records of other group types, and control records that are not markers, are skipped."""

    def __init__(self, new_group: Callable[[str], Group]) -> None:
        super().__init__()
        self._new_group = new_group
        self._metadata: dict[str, records.GroupMetadataValue] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.transactional = TransactionalOffsets()
        """The offsets of transactions without a marker so far."""

    def _apply_control(self, batch: BatchView) -> Cooperative[None]:
        for record in iter_records(batch):
            marker = control_of(record)
            if not isinstance(marker, AbortMarker | CommitMarker):
                continue
            commit = isinstance(marker, CommitMarker)
            ended = EndedTransaction(batch.producer_id, commit=commit, transactional=self.transactional)
            while not ended.is_applied:
                if self._budget.spend(ended.step(self.transactional, self._apply_ended)):
                    yield

    def _apply_ended(self, group_id: str, changes: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._offsets.setdefault(group_id, {}).update(changes)

    def _apply_record(self, raw_key: bytes | None, raw_value: bytes | None, batch: BatchView) -> None:
        if raw_key is None:
            return
        key = records.decode_key(raw_key)
        value = records.decode_value(key, raw_value)
        match key, value:
            case records.OffsetCommitKey(), records.OffsetCommitValue():
                self._apply_offset(key, _committed(value), batch.producer_id)
            case records.OffsetCommitKey(), None:
                self._apply_offset(key, None, NO_PRODUCER_ID)  # a tombstone counts at once, as in Kafka
            case records.GroupMetadataKey(), records.GroupMetadataValue():
                self._metadata[key.group] = value
            case records.GroupMetadataKey(), None:
                self._metadata.pop(key.group, None)

    def _apply_offset(
        self, key: records.OffsetCommitKey, committed: CommittedOffset | None, producer_id: ProducerId
    ) -> None:
        partition = key.topic, key.partition
        if producer_id != NO_PRODUCER_ID and committed is not None:
            self.transactional.add(producer_id, key.group, {partition: committed})
            return
        if committed is None:
            self._offsets.get(key.group, {}).pop(partition, None)
        else:
            self._offsets.setdefault(key.group, {})[partition] = committed
        if self.transactional:
            self.transactional.wrote(key.group, {partition: committed})

    def finish(self, now_ms: int) -> Cooperative[dict[str, Group]]:
        """Return the groups by name. Call it once, after the last ``apply``: the groups share the loader's state."""
        groups: dict[str, Group] = {}
        pending = self.transactional.groups()
        for name in chain(self._metadata, self._offsets, pending):
            members = 0
            if name not in groups and (name in self._metadata or self._offsets.get(name) or name in pending):
                group = groups[name] = self._group(name, now_ms)
                members = len(group.members)
            if self._budget.spend(1 + members):
                yield
        return groups

    def _group(self, name: str, now_ms: int) -> Group:
        group = self._new_group(name)
        group.offsets = self._offsets.get(name, {})
        value = self._metadata.get(name)
        if value is None:
            return group
        group.logged = value
        for member in value.members:
            group.add(_restored(member, value))
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.generation = value.generation
        if value.leader in group.members:
            group.leader_id = value.leader
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.begin_subscriptions()
        # Records below value version 2 have no timestamp: the state counts from the time of loading.
        group.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else now_ms
        return group


def _committed(value: records.OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _restored(member: records.MemberMetadata, value: records.GroupMetadataValue) -> Member:
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout,
        member.session_timeout,
        value.protocol_type,
        ((value.protocol or "", member.subscription),),
        assignment=member.assignment,
        deadline_ms=SESSION_NOT_BEGUN,
    )
