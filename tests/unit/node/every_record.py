"""A record of each kind, and the offsets that they get in a log."""

from __future__ import annotations

from uuid import UUID

from milena.node.metadata.image import MetadataImage
from milena.protocol import metadata_records as r
from milena.protocol.metadata_records import access

TOPIC = UUID(int=7 << 64)
DIR_1, DIR_2 = UUID(int=1 << 70), UUID(int=1 << 71)


def topic_records(partitions: int = 1) -> list[r.MetadataRecord]:
    records: list[r.MetadataRecord] = [r.TopicRecord(name="t", topic_id=TOPIC)]
    for number in range(partitions):
        records.append(
            r.PartitionRecord(
                partition_id=number,
                topic_id=TOPIC,
                replicas=(1, 2),
                isr=(1, 2),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=(DIR_1, DIR_2),
            )
        )
    return records


def broker_record(broker: int = 1, epoch: int = 8) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=broker,
        incarnation_id=UUID(int=99),
        broker_epoch=epoch,
        end_points=(r.Endpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0),),
        features=(r.FeatureRange(name="metadata.version", min_supported_version=7, max_supported_version=30),),
        rack="a",
        log_dirs=(DIR_1,),
    )


def entries(image: MetadataImage) -> tuple[object, ...]:
    return (
        {topic.name: (topic.id, topic.partitions) for topic in image.topics.values()},
        image.brokers,
        image.controllers,
        image.configs,
        image.features,
        (image.next_producer_id, image.producer_id_broker),
        image.opaque,
    )


EVERYTHING: list[r.MetadataRecord] = [
    r.FeatureLevelRecord(name="metadata.version", feature_level=30),
    r.FeatureLevelRecord(name="group.version", feature_level=1),
    broker_record(),
    broker_record(2, 9),
    r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=8, fenced=-1),
    r.RegisterControllerRecord(controller_id=3, incarnation_id=UUID(int=5)),
    *topic_records(3),
    r.PartitionChangeRecord(partition_id=1, topic_id=TOPIC, leader=2, eligible_leader_replicas=(1,), isr=(2,)),
    r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
    r.ProducerIdsRecord(broker_id=1, broker_epoch=8, next_producer_id=1000),
    access.AccessControlEntryRecord(
        id=UUID(int=3),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    ),
]
