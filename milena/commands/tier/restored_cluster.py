"""Writes the directory of a restored cluster, with all files that its nodes read at their first start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.sources import from_properties
from milena.controller.log.formatting import Formatting
from milena.node.metadata.image import NO_LEADER, TOPIC_RESOURCE
from milena.node.metadata.metadata_folder import metadata_folder
from milena.node.metadata.snapshots import MetadataSnapshotId, SnapshotStore, snapshot_batches
from milena.protocol.metadata_records import (
    LATEST_METADATA_VERSION,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset
from milena.runtime.context import Runtime
from milena.storage.files.producer_snapshot import decode_snapshot
from milena.storage.log.context import LogContext
from milena.storage.manager.log_dir import LogDir
from milena.tiered.metadata.settings import MetadataTopicSettings
from milena.tiered.offline.broker_logs import Placed, metadata_batches, metadata_topic, write_broker
from milena.tiered.offline.cluster_restore import Restoration
from milena.up.layout import ClusterDir
from milena.up.plan import NodePlan
from milena.up.settings import Settings

EPOCH = LeaderEpoch(1)
"""The epoch of the controller in the snapshot."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster to create."""

    cluster: ClusterDir
    settings: Settings
    nodes: Sequence[NodePlan]
    replicas: int
    topic_config: dict[str, str]

    def config(self, node: NodePlan) -> NodeConfig:
        with open(node.properties, "rb") as file:
            return NodeConfig(from_properties(file.read(), node.properties))

    @property
    def brokers(self) -> Sequence[NodePlan]:
        return self.nodes[1:]


async def write_cluster(
    runtime: Runtime, target: Target, restoration: Restoration, settings: MetadataTopicSettings
) -> None:
    def placed(partitions: int, replicas: int) -> list[tuple[int, ...]]:
        count = len(target.brokers)
        return [tuple((number + one) % count + 1 for one in range(replicas)) for number in range(partitions)]

    topics = [Placed(one, placed(one.partitions, target.replicas), target.topic_config) for one in restoration.topics]
    own = metadata_topic(runtime.random.uuid(), settings.partitions)
    metadata = Placed(own, placed(settings.partitions, settings.replication_factor), settings.topic_configs())
    now = runtime.clock.time_ms()
    batches = metadata_batches(restoration.topics, settings.partitions, now)
    directories: dict[int, list[UUID]] = {}
    for node in target.brokers:
        directories[node.id] = await write_broker(
            runtime,
            target.config(node),
            cluster_id=target.settings.cluster_id,
            broker_epoch=broker_epoch(node.id),
            topics=topics,
            metadata=metadata,
            batches=batches,
            now=now,
        )
    records = list(image_records(runtime, directories, [*topics, metadata]))
    await runtime.disk.offload(_write_controller, runtime, target, records)


def broker_epoch(broker: int) -> BrokerEpoch:
    """Return the broker epoch of a broker: the offset that its RegisterBrokerRecord would have."""
    return BrokerEpoch(broker)


def image_records(
    runtime: Runtime, directories: dict[int, list[UUID]], topics: Sequence[Placed]
) -> list[MetadataRecord]:
    """Return the cluster's metadata as it would be after a clean shutdown of all brokers. No partition has a leader:
    the first active broker of its ISR is elected."""
    records: list[MetadataRecord] = list(Formatting.parse().records())
    for broker, ids in directories.items():
        records.append(
            RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=runtime.random.uuid(),
                broker_epoch=broker_epoch(broker),
                fenced=True,
                log_dirs=tuple(ids),
            )
        )
    for placed in topics:
        topic = placed.topic
        records.append(TopicRecord(name=topic.name, topic_id=topic.id))
        for number, replicas in enumerate(placed.replicas):
            log = topic.logs.get(number)
            records.append(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic.id,
                    replicas=replicas,
                    isr=replicas,
                    leader=NO_LEADER,
                    leader_epoch=0 if log is None else log.leader_epoch,
                    partition_epoch=0,
                    directories=tuple(directories[broker][0] for broker in replicas),
                )
            )
    taken = [
        producer for one in topics for log in one.topic.logs.values() for producer, _ in decode_snapshot(log.producers)
    ]
    if taken:
        # Producers continue their sequences; a new one with an id in use would be rejected or confused with it.
        records.append(ProducerIdsRecord(broker_id=min(directories), next_producer_id=max(taken) + 1))
    for placed in topics:
        for name, value in placed.config.items():
            records.append(
                ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=placed.topic.name, name=name, value=value)
            )
    return records


def _write_controller(runtime: Runtime, target: Target, records: Sequence[MetadataRecord]) -> None:
    """Write a formatted directory whose metadata log starts with a snapshot."""
    node = target.nodes[0]
    config = target.config(node)
    disk, now = runtime.disk, runtime.clock.time_ms()
    directory = LogDir(config.metadata_log_dir, LogContext(disk, runtime.clock))
    directory.open()
    try:
        directory.format(target.settings.cluster_id, NodeId(node.id), runtime.random.uuid)
        store = SnapshotStore(disk, metadata_folder(config))
        store.open()
        end = Offset(max(len(records), target.settings.brokers + 1))
        batches = snapshot_batches(
            records, EPOCH, metadata_version=LATEST_METADATA_VERSION, last_timestamp=now, now_ms=now
        )
        store.write(MetadataSnapshotId(end, EPOCH), batches)
    finally:
        directory.unlock()
