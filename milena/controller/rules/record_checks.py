"""Invariants of the metadata, checked on the records of a command before they are appended. If a record contradicts the
image or another record of the batch, the command fails and none of its records is written.

Kafka relies on its managers for these invariants; how brokers behave after a record that breaks one (a leader outside
of the ISR, a missing directory) is undefined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from milena.node.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from milena.protocol import metadata_records as records
from milena.protocol.features import METADATA_VERSION
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import LeaderEpoch, NodeId, Offset, PartitionEpoch


@dataclass(slots=True)
class _Batch:
    """The image together with the records of the batch that were checked so far."""

    image: MetadataImage
    offset: Offset
    topics: dict[UUID, str] = field(default_factory=dict)
    """Topics created in this batch."""
    partitions: dict[tuple[UUID, int], PartitionImage] = field(default_factory=dict)
    """Partitions created or changed in this batch."""
    brokers: dict[int, int | None] = field(default_factory=dict)
    """Epochs of the brokers that this batch registers; None: unregistered."""

    def knows_topic(self, topic: UUID) -> bool:
        return topic in self.topics or topic in self.image.topics_by_id

    def partition(self, topic: UUID, number: int) -> PartitionImage | None:
        return self.partitions.get((topic, number)) or self.image.partition_by_id(topic, number)

    def broker_epoch(self, broker: int) -> int | None:
        if broker in self.brokers:
            return self.brokers[broker]
        known = self.image.brokers.get(broker)
        return None if known is None else known.epoch


def check_records(image: MetadataImage, batch: Sequence[object], base_offset: Offset) -> None:
    """Raise BrokenInvariant if ``batch``, whose first record gets ``base_offset``, contradicts ``image``."""
    checked = _Batch(image, base_offset)
    for position, record in enumerate(batch):
        checked.offset = Offset(base_offset + position)
        _check(checked, record)


def _check(batch: _Batch, record: object) -> None:
    match record:
        case records.PartitionChangeRecord():
            _partition_change(batch, record)
        case records.PartitionRecord():
            _partition(batch, record)
        case records.TopicRecord():
            _topic(batch, record)
        case records.RemoveTopicRecord():
            _removed_topic(batch, record)
        case records.RegisterBrokerRecord():
            _registration(batch, record)
        case records.UnregisterBrokerRecord():
            _check_epoch(batch, record.broker_id, record.broker_epoch)
            batch.brokers[record.broker_id] = None
        case records.BrokerRegistrationChangeRecord():
            _check_epoch(batch, record.broker_id, record.broker_epoch)
        case records.UnregisterControllerRecord():
            if record.controller_id not in batch.image.controllers:
                raise BrokenInvariant(f"controller {record.controller_id} is unregistered but unknown")
        case records.ProducerIdsRecord():
            _producer_ids(batch, record)
        case records.FeatureLevelRecord():
            _feature(batch, record)


def _topic(batch: _Batch, record: records.TopicRecord) -> None:
    if batch.knows_topic(record.topic_id) or record.name in batch.image.topics:
        raise BrokenInvariant(f"topic {record.name} ({record.topic_id}) is created twice")
    batch.topics[record.topic_id] = record.name


def _removed_topic(batch: _Batch, record: records.RemoveTopicRecord) -> None:
    if not batch.knows_topic(record.topic_id):
        raise BrokenInvariant(f"topic id {record.topic_id} is removed but unknown")


def _partition(batch: _Batch, record: records.PartitionRecord) -> None:
    name = f"partition {record.topic_id}-{record.partition_id}"
    if not batch.knows_topic(record.topic_id):
        raise BrokenInvariant(f"{name} is of an unknown topic")
    if batch.partition(record.topic_id, record.partition_id) is not None:
        raise BrokenInvariant(f"{name} is created twice")
    if record.leader_epoch != 0 or record.partition_epoch != 0:
        raise BrokenInvariant(
            f"{name} starts in leader epoch {record.leader_epoch}, partition epoch {record.partition_epoch}"
        )
    created = PartitionImage(
        tuple(map(NodeId, record.replicas)),
        tuple(map(NodeId, record.isr)),
        NodeId(record.leader),
        LeaderEpoch(record.leader_epoch),
        PartitionEpoch(record.partition_epoch),
        tuple(record.directories),
        tuple(map(NodeId, record.removing_replicas)),
        tuple(map(NodeId, record.adding_replicas)),
        record.leader_recovery_state,
        tuple(map(NodeId, record.eligible_leader_replicas or ())),
    )
    _check_partition(name, created, record)
    batch.partitions[record.topic_id, record.partition_id] = created


def _partition_change(batch: _Batch, record: records.PartitionChangeRecord) -> None:
    name = f"partition {record.topic_id}-{record.partition_id}"
    old = batch.partition(record.topic_id, record.partition_id)
    if old is None:
        raise BrokenInvariant(f"{name} is changed but unknown")
    replicas = _changed(record.replicas, old.replicas)
    directories = old.directories if record.directories is None else tuple(record.directories)
    if record.directories is None and len(replicas) != len(old.replicas):
        directories = ()  # no directories means that all are MIGRATING, as in Kafka's PartitionRegistration
    changed = PartitionImage(
        replicas,
        _changed(record.isr, old.isr),
        old.leader if record.leader == records.NO_LEADER_CHANGE else NodeId(record.leader),
        old.leader_epoch,
        old.partition_epoch,
        directories,
        _changed(record.removing_replicas, old.removing),
        _changed(record.adding_replicas, old.adding),
        old.recovery_state,
        _changed(record.eligible_leader_replicas, old.elr),
    )
    try:
        _check_partition(name, changed, record)
    except BrokenInvariant:
        if _is_sound(name, old, record):
            raise
    batch.partitions[record.topic_id, record.partition_id] = changed


def _is_sound(name: str, partition: PartitionImage, record: object) -> bool:
    """Return whether the partition satisfies the invariants. Another version may have written one that does not. To
    reject its changes would repair nothing, and would fail the rest of the batch, such as the fencing of a broker."""
    try:
        _check_partition(name, partition, record)
    except BrokenInvariant:
        return False
    return True


def _check_partition(name: str, now: PartitionImage, record: object) -> None:
    replicas = set(now.replicas)
    if not replicas or len(replicas) != len(now.replicas):
        raise BrokenInvariant(f"{name} has replicas {now.replicas}: {record}")
    if not replicas.issuperset(now.isr) or len(set(now.isr)) != len(now.isr):
        raise BrokenInvariant(f"{name} has ISR {now.isr} of replicas {now.replicas}: {record}")
    if now.leader != NO_LEADER and now.leader not in now.isr:
        raise BrokenInvariant(f"{name} has leader {now.leader} outside of its ISR {now.isr}: {record}")
    # a replica removed by a reassignment may stay in it, as in Kafka
    if now.elr and not set(now.isr).isdisjoint(now.elr):
        raise BrokenInvariant(f"{name} has ELR {now.elr} and ISR {now.isr} in common: {record}")
    if not replicas.issuperset(now.adding) or not replicas.issuperset(now.removing):
        raise BrokenInvariant(f"{name} adds {now.adding}, removes {now.removing} of {now.replicas}: {record}")
    if now.directories and len(now.directories) != len(now.replicas):
        raise BrokenInvariant(f"{name} has {len(now.directories)} directories for {now.replicas}: {record}")


def _registration(batch: _Batch, record: records.RegisterBrokerRecord) -> None:
    known = batch.broker_epoch(record.broker_id)
    if record.broker_epoch not in (batch.offset, known):
        raise BrokenInvariant(
            f"broker {record.broker_id} gets epoch {record.broker_epoch} at offset {batch.offset}, its "
            f"last epoch is {known}"
        )
    batch.brokers[record.broker_id] = record.broker_epoch


def _check_epoch(batch: _Batch, broker: int, epoch: int) -> None:
    if (known := batch.broker_epoch(broker)) != epoch:
        raise BrokenInvariant(f"broker {broker} is changed in epoch {epoch}, but registered with {known}")


def _producer_ids(batch: _Batch, record: records.ProducerIdsRecord) -> None:
    if record.next_producer_id <= batch.image.next_producer_id:
        raise BrokenInvariant(
            f"producer ids up to {batch.image.next_producer_id} are allocated, the next is {record.next_producer_id}"
        )
    _check_epoch(batch, record.broker_id, record.broker_epoch)


def _feature(batch: _Batch, record: records.FeatureLevelRecord) -> None:
    known = batch.image.features.get(record.name, 0)
    if record.feature_level < 0 or (record.name == METADATA_VERSION and not record.feature_level):
        raise BrokenInvariant(f"feature {record.name} goes from level {known} to {record.feature_level}")


def _changed(new: tuple[int, ...] | None, old: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return old if new is None else tuple(map(NodeId, new))
