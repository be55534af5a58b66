"""Serialization of metadata to and from record values (docs/kafka-semantics.md: Remote segment records)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from milena.protocol.records.remote_log_records import (
    CleanerOffsetEntry,
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    UnreadableRemoteLogRecord,
    decode_remote_log_record,
    encode_remote_log_record,
)
from milena.protocol.schemas.primitives import Data
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.cleaner_offsets import CleanerOffset
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)

NOTHING_SHARED: Final[Mapping[TopicIdPartition, TopicIdPartition]] = MappingProxyType({})
MetadataEvent = RemoteLogSegmentMetadata | RemoteLogSegmentUpdate


def serialize(event: MetadataEvent) -> bytes:
    if isinstance(event, RemoteLogSegmentUpdate):
        return encode_remote_log_record(
            RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=_entry(event.segment_id),
                broker_id=event.broker_id,
                event_timestamp_ms=event.event_timestamp_ms,
                custom_metadata=event.custom_metadata,
                remote_log_segment_state=event.state,
                leader_epoch=event.leader_epoch,
                republishes=event.republishes,
                first_dirty_offset=-1 if event.first_dirty is None else event.first_dirty,
            )
        )
    return encode_remote_log_record(
        RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=_entry(event.segment_id),
            start_offset=event.start_offset,
            end_offset=event.end_offset,
            broker_id=event.broker_id,
            max_timestamp_ms=event.max_timestamp_ms,
            event_timestamp_ms=event.event_timestamp_ms,
            segment_leader_epochs=tuple(
                SegmentLeaderEpochEntry(leader_epoch=epoch, offset=start) for epoch, start in event.epochs
            ),
            segment_size_in_bytes=event.size,
            custom_metadata=event.custom_metadata,
            remote_log_segment_state=event.state,
            txn_index_empty=event.txn_index_empty,
            leader_epoch=event.leader_epoch,
            cleaner_offsets=tuple(
                CleanerOffsetEntry(leader_epoch=epoch, offset=-1 if offset is None else offset)
                for epoch, offset in event.cleaned
            ),
            replaces=event.replaces,
        )
    )


def deserialize(
    value: Data | None, offset: Offset, shared: Mapping[TopicIdPartition, TopicIdPartition] = NOTHING_SHARED
) -> MetadataEvent | None:
    """Return the event in a record; None if it is not about a segment (Kafka defines a record for the deletion of a
    whole partition, which no broker writes).

    Equal partitions are replaced by the object in ``shared``: one object for all segments saves a quarter of their
    memory. Raises UnreadableRemoteLogRecord, for example UnknownRemoteLogRecord.
    """
    record = decode_remote_log_record(value, offset)
    try:
        match record:
            case RemoteLogSegmentMetadataRecord():
                return _segment(record, shared)
            case RemoteLogSegmentMetadataUpdateRecord():
                return RemoteLogSegmentUpdate(
                    _segment_id(record.remote_log_segment_id, shared),
                    NodeId(record.broker_id),
                    record.event_timestamp_ms,
                    record.custom_metadata,
                    RemoteLogSegmentState(record.remote_log_segment_state),
                    LeaderEpoch(record.leader_epoch),
                    record.republishes,
                    None if record.first_dirty_offset < 0 else Offset(record.first_dirty_offset),
                )
            case _:
                return None
    except ValueError as error:
        raise UnreadableRemoteLogRecord(offset, str(error)) from None


def _segment(
    record: RemoteLogSegmentMetadataRecord, shared: Mapping[TopicIdPartition, TopicIdPartition]
) -> RemoteLogSegmentMetadata:
    epochs = sorted((entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs)
    return RemoteLogSegmentMetadata(
        _segment_id(record.remote_log_segment_id, shared),
        Offset(record.start_offset),
        Offset(record.end_offset),
        NodeId(record.broker_id),
        record.max_timestamp_ms,
        record.event_timestamp_ms,
        tuple([EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in epochs]),
        record.segment_size_in_bytes,
        record.custom_metadata,
        RemoteLogSegmentState(record.remote_log_segment_state),
        record.txn_index_empty,
        LeaderEpoch(record.leader_epoch),
        tuple([_cleaner_offset(entry) for entry in record.cleaner_offsets]),
        record.replaces,
    )


def _cleaner_offset(entry: CleanerOffsetEntry) -> CleanerOffset:
    return CleanerOffset(LeaderEpoch(entry.leader_epoch), None if entry.offset < 0 else Offset(entry.offset))


def _segment_id(
    entry: RemoteLogSegmentIdEntry, shared: Mapping[TopicIdPartition, TopicIdPartition]
) -> RemoteLogSegmentId:
    named = entry.topic_id_partition
    partition = TopicIdPartition(named.id, named.name, named.partition)
    return RemoteLogSegmentId(shared.get(partition, partition), entry.id)


def _entry(segment_id: RemoteLogSegmentId) -> RemoteLogSegmentIdEntry:
    partition = segment_id.partition
    return RemoteLogSegmentIdEntry(
        topic_id_partition=TopicIdPartitionEntry(
            name=partition.topic, id=partition.topic_id, partition=partition.partition
        ),
        id=segment_id.id,
    )
