"""Converts an image to records, in the order of Kafka's ``MetadataImage.write``: the content of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milena.node.metadata.image import BrokerImage, ListenerImage, MetadataImage, TopicImage
from milena.protocol.features import METADATA_VERSION
from milena.protocol.metadata_records import (
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)


def to_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield records from which replay builds an equal image: metadata.version first, since it determines the versions
    of the other records; then the other features by name, nodes, topics with their partitions, configurations, access
    records, producer ids."""
    if METADATA_VERSION in image.features:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.features[METADATA_VERSION])
    for name, level in sorted(image.features.items()):
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for controller in image.controllers.values():
        yield RegisterControllerRecord(
            controller_id=controller.id,
            incarnation_id=controller.incarnation,
            end_points=_endpoints(controller.endpoints),
            features=_features(controller.features),
        )
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        yield from _partition_records(topic)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    for record in image.opaque.values():
        assert isinstance(record, MetadataRecord)
        yield record
    if image.next_producer_id:
        broker_id, broker_epoch = image.producer_id_broker
        yield ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=image.next_producer_id)


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """Return the record from which a broker's registration follows."""
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.migrating,
        incarnation_id=broker.incarnation,
        broker_epoch=broker.epoch,
        end_points=_endpoints(broker.endpoints),
        features=_features(broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned,
    )


def _partition_records(topic: TopicImage) -> Iterator[PartitionRecord]:
    for number, partition in topic.partitions.items():
        yield PartitionRecord(
            partition_id=number,
            topic_id=topic.id,
            replicas=partition.replicas,
            isr=partition.isr,
            removing_replicas=partition.removing,
            adding_replicas=partition.adding,
            leader=partition.leader,
            leader_recovery_state=partition.recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=partition.directories,
            eligible_leader_replicas=partition.elr or None,
            last_known_elr=partition.last_known_elr or None,
        )


def _endpoints(endpoints: tuple[ListenerImage, ...]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in endpoints
    )


def _features(features: Mapping[str, tuple[int, int]]) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in features.items()
    )
