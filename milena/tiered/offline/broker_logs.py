"""Creates the logs of the brokers of a restored cluster: they begin in the tier, and have no local records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.protocol.records.control_records import AbortMarker, control_batch
from milena.protocol.records.records import BatchBuilder
from milena.protocol.records.validation import Origin
from milena.protocol.types import BrokerEpoch, LeaderEpoch
from milena.runtime.context import Runtime
from milena.storage.log import tiering
from milena.storage.log.context import Silence
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_dir import LogDir
from milena.storage.manager.log_manager import LogManager
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.metadata.serialization import MetadataEvent, serialize
from milena.tiered.offline.cluster_restore import RestoredLog, RestoredTopic, open_transactions
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)

FIRST_EPOCH: Final = LeaderEpoch(0)
"""The leader epoch of the metadata topic's records."""
BATCH_BYTES: Final = 512 << 10


@dataclass(frozen=True, slots=True)
class Placed:
    """A topic that is assigned to brokers: the replicas of each partition, and the topic's own configuration."""

    topic: RestoredTopic
    replicas: Sequence[tuple[int, ...]]
    config: Mapping[str, str]


def events_of(segment: RemoteLogSegmentMetadata) -> Iterator[MetadataEvent]:
    """Yield the events after which a reader of the metadata has the segment in its state. They have no leader epochs:
    those of the new cluster may be lower than the fences of the old one."""
    states = RemoteLogSegmentState
    yield RemoteLogSegmentMetadata(
        segment.segment_id,
        segment.start_offset,
        segment.end_offset,
        segment.broker_id,
        segment.max_timestamp_ms,
        segment.event_timestamp_ms,
        segment.epochs,
        segment.size,
        None,
        states.COPY_SEGMENT_STARTED,
        segment.txn_index_empty,
        cleaned=segment.cleaned,
        replaces=segment.replaces,
    )
    later = [states.COPY_SEGMENT_FINISHED] if segment.copied else []
    if segment.state is states.DELETE_SEGMENT_FINISHED:
        later.append(states.DELETE_SEGMENT_STARTED)
    for state in (*later, segment.state):
        if state is not states.COPY_SEGMENT_STARTED:
            yield RemoteLogSegmentUpdate(
                segment.segment_id, segment.broker_id, segment.event_timestamp_ms, segment.custom_metadata, state
            )


def metadata_batches(topics: Iterable[RestoredTopic], partitions: int, now_ms: int) -> dict[int, list[bytes]]:
    """Return, for each partition of the metadata topic, the batches that describe all segments of ``topics``."""
    values: dict[int, list[bytes]] = {}
    for topic in topics:
        for log in topic.logs.values():
            batch_values = values.setdefault(metadata_partition(log.partition, partitions), [])
            batch_values += [
                serialize(event) for segment in (*log.segments, *log.bounds) for event in events_of(segment)
            ]
    return {number: list(_batches(batch_values, now_ms)) for number, batch_values in values.items()}


def _batches(values: Iterable[bytes], now_ms: int) -> Iterator[bytes]:
    builder = BatchBuilder()
    for value in values:
        if builder.count and not builder.has_room_for(None, value, BATCH_BYTES):
            yield builder.build()
            builder = BatchBuilder()
        builder.append(timestamp=now_ms, value=value)
    if builder.count:
        yield builder.build()


async def write_broker(
    runtime: Runtime,
    config: NodeConfig,
    *,
    cluster_id: str,
    broker_epoch: BrokerEpoch,
    topics: Sequence[Placed],
    metadata: Placed,
    batches: Mapping[int, Sequence[bytes]],
    now: int,
) -> list[UUID]:
    """Create a broker's log directories, as after a clean shutdown at ``now`` (ms); returns their ids.

    Raises OSError, DirectoryError, KafkaError.
    """
    manager = LogManager(runtime, config, _failed, events=Silence())
    manager.open()
    try:
        manager.format(cluster_id)
        await manager.load(lambda _: TopicConfig.effective(config, {}))
        for placed in topics:
            for number, log in _hosted(manager, config, placed):
                restored = placed.topic.logs.get(number)
                if restored is not None:
                    begin_in_tier(log, restored, now)
        for number, log in _hosted(manager, config, metadata):
            for batch in batches.get(number, ()):
                log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=FIRST_EPOCH)
            log.set_high_watermark(log.log_end_offset)
        ids = [directory.directory_id for directory in manager.online_dirs]
        await manager.stop(broker_epoch)
    finally:
        manager.unlock()
    return [directory_id for directory_id in ids if directory_id is not None]


def _hosted(manager: LogManager, config: NodeConfig, placed: Placed) -> Iterator[tuple[int, UnifiedLog]]:
    """Create the logs of the replicas on this broker, which are empty, and yield them."""
    topic = placed.topic
    effective = TopicConfig.effective(config, placed.config)
    for number, replicas in enumerate(placed.replicas):
        if manager.node_id in replicas:
            yield number, manager.get_or_create(topic.name, number, topic.id, effective, is_new=True)


def begin_in_tier(log: UnifiedLog, restored: RestoredLog, now_ms: int) -> None:
    """Initialize a log without local records, like a follower that has just built its auxiliary state from the tier.
    Transactions whose ends were not copied are aborted: otherwise the last stable offset would never pass them. Raises
    KafkaError."""
    lineage = restored.lineage
    tiering.start_in_tier(
        log,
        lineage.log_end,
        log_start=restored.log_start,
        epochs=lineage.epochs,
        snapshot=restored.producers,
    )
    for producer_id, producer in open_transactions(restored.producers):
        marker = control_batch(
            [AbortMarker(coordinator_epoch=max(producer.coordinator_epoch, 0))],
            timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
        )
        log.append_as_leader(
            memoryview(bytearray(marker)), leader_epoch=restored.leader_epoch, origin=Origin.COORDINATOR
        )
    log.set_high_watermark(log.log_end_offset)


def _failed(directory: LogDir, _: list[UnifiedLog]) -> None:
    raise OSError(f"{directory.path} has failed")


def metadata_topic(topic_id: UUID, partitions: int) -> RestoredTopic:
    """Return the metadata topic as a restored topic with empty logs."""
    return RestoredTopic(REMOTE_LOG_METADATA_TOPIC, topic_id, partitions)
