"""Replays metadata records into the image.

``apply`` applies one record. ``Replayer`` also handles offsets, epochs, and metadata transactions, whose records are
applied together at EndTransaction, or dropped at AbortTransaction (KIP-868).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from milena.node.metadata.image import (
    TOPIC_RESOURCE,
    BrokerImage,
    ControllerImage,
    Delta,
    ListenerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from milena.protocol import metadata_records as records
from milena.protocol.types import MIGRATING_DIR, BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch


class ReplayError(ValueError):
    """A record contradicts the image: the log is damaged, or this code has a bug."""


def apply(image: MetadataImage, delta: Delta, record: records.MetadataRecord) -> None:
    """Apply one record to ``image`` and add its changes to ``delta``. Raises ReplayError, and TypeError for a record
    that does not change an image (transaction markers)."""
    function = _APPLY.get(type(record))
    if function is not None:
        function(image, delta, record)
        return
    from milena.node.metadata.opaque_records import apply_access_record

    apply_access_record(image, delta, record)


class Replayer:
    """Replays records into one image, in the order of the log."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._delta = Delta()
        self._transaction: list[records.MetadataRecord] | None = None

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def replay(self, record: records.MetadataRecord, *, offset: Offset, epoch: LeaderEpoch, timestamp_ms: int) -> None:
        """Replay the record at ``offset``. Raises ReplayError."""
        match record:
            case records.BeginTransactionRecord():
                if self._transaction is not None:
                    raise ReplayError(f"a transaction begins inside of another at offset {offset}")
                self._transaction = []
            case records.EndTransactionRecord():
                for pending in self._end(offset):
                    apply(self.image, self._delta, pending)
            case records.AbortTransactionRecord():
                self._end(offset)
            case _:
                if self._transaction is None:
                    apply(self.image, self._delta, record)
                else:
                    self._transaction.append(record)
        self.advance(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def advance(self, *, offset: Offset, epoch: LeaderEpoch, timestamp_ms: int) -> None:
        """Set the image's offset, epoch and timestamp: of the last replayed record, or of records that do not change an
        image (control records)."""
        image = self.image
        image.offset = offset
        image.epoch = epoch
        image.timestamp_ms = timestamp_ms

    def take_delta(self) -> Delta:
        """Return the changes since the last call."""
        delta, self._delta = self._delta, Delta()
        return delta

    def _end(self, offset: Offset) -> list[records.MetadataRecord]:
        """End the metadata transaction. Returns its records. Raises ReplayError if there is none."""
        pending, self._transaction = self._transaction, None
        if pending is None:
            raise ReplayError(f"a transaction ends at offset {offset} that never began")
        return pending


def _register_broker(image: MetadataImage, delta: Delta, record: records.RegisterBrokerRecord) -> None:
    broker = NodeId(record.broker_id)
    image.brokers[broker] = BrokerImage(
        broker,
        BrokerEpoch(record.broker_epoch),
        record.incarnation_id,
        _endpoints(record.end_points),
        {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features},
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(record.log_dirs),
        None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        record.is_migrating_zk_broker,
    )
    delta.brokers.add(broker)


def _unregister_broker(image: MetadataImage, delta: Delta, record: records.UnregisterBrokerRecord) -> None:
    _broker(image, record.broker_id, record.broker_epoch)
    del image.brokers[record.broker_id]
    delta.brokers.add(record.broker_id)


def _change_broker(image: MetadataImage, delta: Delta, record: records.BrokerRegistrationChangeRecord) -> None:
    old = _broker(image, record.broker_id, record.broker_epoch)
    cordoned = record.cordoned_log_dirs
    image.brokers[old.id] = BrokerImage(
        old.id,
        old.epoch,
        old.incarnation,
        old.endpoints,
        old.features,
        old.rack,
        old.fenced if record.fenced == 0 else record.fenced > 0,
        old.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        tuple(record.log_dirs) or old.log_dirs,
        old.cordoned if cordoned is None else tuple(cordoned),
        old.migrating,
    )
    delta.brokers.add(old.id)


def _set_fenced(image: MetadataImage, delta: Delta, broker_id: int, epoch: int, fenced: bool) -> None:
    change = records.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1 if fenced else -1)
    _change_broker(image, delta, change)


def _unregister_controller(image: MetadataImage, delta: Delta, record: records.UnregisterControllerRecord) -> None:
    node = NodeId(record.controller_id)
    if node not in image.controllers:
        raise ReplayError(f"controller {node} is unregistered but unknown")
    del image.controllers[node]
    delta.controllers.add(node)


def _register_controller(image: MetadataImage, delta: Delta, record: records.RegisterControllerRecord) -> None:
    node = NodeId(record.controller_id)
    features = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features
    }
    image.controllers[node] = ControllerImage(node, record.incarnation_id, _endpoints(record.end_points), features)
    delta.controllers.add(node)


def _create_topic(image: MetadataImage, delta: Delta, record: records.TopicRecord) -> None:
    if record.name in image.topics:
        raise ReplayError(f"topic {record.name!r} exists already")
    topic = TopicImage(record.name, record.topic_id)
    image.topics[topic.name] = topic
    image.topics_by_id[topic.id] = topic
    delta.topics[topic.name] = set()


def _remove_topic(image: MetadataImage, delta: Delta, record: records.RemoveTopicRecord) -> None:
    topic = _topic(image, record.topic_id)
    del image.topics[topic.name]
    del image.topics_by_id[topic.id]
    if image.configs.pop((TOPIC_RESOURCE, topic.name), None) is not None:
        delta.configs.add((TOPIC_RESOURCE, topic.name))
    delta.topics.pop(topic.name, None)
    delta.deleted_topics.append(topic)


def _create_partition(image: MetadataImage, delta: Delta, record: records.PartitionRecord) -> None:
    topic = _topic(image, record.topic_id)
    directories = tuple(record.directories) or (MIGRATING_DIR,) * len(record.replicas)
    topic.partitions[record.partition_id] = PartitionImage(
        _nodes(image, record.replicas),
        _nodes(image, record.isr),
        NodeId(record.leader),
        LeaderEpoch(record.leader_epoch),
        PartitionEpoch(record.partition_epoch),
        image.share(directories),
        _nodes(image, record.removing_replicas),
        _nodes(image, record.adding_replicas),
        record.leader_recovery_state,
        _nodes(image, record.eligible_leader_replicas or ()),
        _nodes(image, record.last_known_elr or ()),
    )
    delta.topics.setdefault(topic.name, set()).add(record.partition_id)


def _change_partition(image: MetadataImage, delta: Delta, record: records.PartitionChangeRecord) -> None:
    topic = _topic(image, record.topic_id)
    old = topic.partitions.get(record.partition_id)
    if old is None:
        raise ReplayError(f"partition {topic.name}-{record.partition_id} is unknown")
    elected = record.leader != records.NO_LEADER_CHANGE
    replicas = _changed(image, record.replicas, old.replicas)
    directories = old.directories if record.directories is None else image.share(tuple(record.directories))
    if len(directories) != len(replicas):
        directories = image.share((MIGRATING_DIR,) * len(replicas))
    topic.partitions[record.partition_id] = PartitionImage(
        replicas,
        _changed(image, record.isr, old.isr),
        NodeId(record.leader) if elected else old.leader,
        LeaderEpoch(old.leader_epoch + 1) if elected else old.leader_epoch,
        PartitionEpoch(old.partition_epoch + 1),
        directories,
        _changed(image, record.removing_replicas, old.removing),
        _changed(image, record.adding_replicas, old.adding),
        old.recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state,
        _changed(image, record.eligible_leader_replicas, old.elr),
        _changed(image, record.last_known_elr, old.last_known_elr),
    )
    delta.topics.setdefault(topic.name, set()).add(record.partition_id)


def _clear_elr(image: MetadataImage, delta: Delta, record: records.ClearElrRecord) -> None:
    if record.topic_name and record.topic_name not in image.topics:
        raise ReplayError(f"topic {record.topic_name!r} is unknown")
    topics = [image.topics[record.topic_name]] if record.topic_name else list(image.topics.values())
    for topic in topics:
        for number, old in topic.partitions.items():
            if old.elr or old.last_known_elr:
                topic.partitions[number] = PartitionImage(
                    old.replicas,
                    old.isr,
                    old.leader,
                    old.leader_epoch,
                    old.partition_epoch,
                    old.directories,
                    old.removing,
                    old.adding,
                    old.recovery_state,
                )
                delta.topics.setdefault(topic.name, set()).add(number)


def _set_config(image: MetadataImage, delta: Delta, record: records.ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    if record.value is None:
        values = image.configs.get(resource)
        if values is not None:
            values.pop(record.name, None)
            if not values:
                del image.configs[resource]
    else:
        image.configs.setdefault(resource, {})[record.name] = record.value
    delta.configs.add(resource)


def _set_feature(image: MetadataImage, delta: Delta, record: records.FeatureLevelRecord) -> None:
    if record.feature_level:
        image.features[record.name] = record.feature_level
    else:
        image.features.pop(record.name, None)
    delta.features.add(record.name)


def _set_producer_ids(image: MetadataImage, delta: Delta, record: records.ProducerIdsRecord) -> None:
    image.next_producer_id = record.next_producer_id
    image.producer_id_broker = (record.broker_id, record.broker_epoch)
    delta.producer_ids = True


def _no_change(image: MetadataImage, delta: Delta, record: object) -> None:
    """Do nothing for NoOp, and for records of the migration from ZooKeeper."""


# The functions take records of the class that is their key.
_APPLY: Final[dict[type[records.MetadataRecord], Callable[[MetadataImage, Delta, Any], None]]] = {
    records.RegisterBrokerRecord: _register_broker,
    records.UnregisterBrokerRecord: _unregister_broker,
    records.BrokerRegistrationChangeRecord: _change_broker,
    records.FenceBrokerRecord: lambda image, delta, r: _set_fenced(image, delta, r.id, r.epoch, True),
    records.UnfenceBrokerRecord: lambda image, delta, r: _set_fenced(image, delta, r.id, r.epoch, False),
    records.RegisterControllerRecord: _register_controller,
    records.UnregisterControllerRecord: _unregister_controller,
    records.TopicRecord: _create_topic,
    records.RemoveTopicRecord: _remove_topic,
    records.PartitionRecord: _create_partition,
    records.PartitionChangeRecord: _change_partition,
    records.ClearElrRecord: _clear_elr,
    records.ConfigRecord: _set_config,
    records.FeatureLevelRecord: _set_feature,
    records.ProducerIdsRecord: _set_producer_ids,
    records.ZkMigrationStateRecord: _no_change,
    records.NoOpRecord: _no_change,
}


def _broker(image: MetadataImage, broker: int, epoch: int) -> BrokerImage:
    registered = image.brokers.get(broker)
    if registered is None or registered.epoch != epoch:
        raise ReplayError(f"broker {broker} is not registered with epoch {epoch}")
    return registered


def _topic(image: MetadataImage, topic_id: UUID) -> TopicImage:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise ReplayError(f"topic id {topic_id} is unknown")
    return topic


def _endpoints(endpoints: Iterable[records.Endpoint]) -> tuple[ListenerImage, ...]:
    return tuple(ListenerImage(e.name, e.host, e.port, e.security_protocol) for e in endpoints)


def _nodes(image: MetadataImage, nodes: Iterable[int]) -> tuple[NodeId, ...]:
    return image.share(tuple(map(NodeId, nodes)))


def _changed(image: MetadataImage, new: Iterable[int] | None, old: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return old if new is None else image.share(tuple(map(NodeId, new)))
