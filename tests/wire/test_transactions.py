"""Transactional producers of each client: commits, aborts and committed offsets, read with both isolation levels."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from milena.testing.local_cluster import LocalCluster

LIMIT = 60.0
"""Seconds after which a client gives up."""


def create(cluster: LocalCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 3)])[topic].result(LIMIT)


def read(cluster: LocalCluster, topic: str, *, committed: bool) -> list[str]:
    """All records that a consumer of this isolation level reads, sorted."""
    level = "read_committed" if committed else "read_uncommitted"
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": level}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found: list[str] = []
    ends = 0
    while ends < 3:
        message = consumer.poll(LIMIT)
        assert message is not None
        if message.error():
            ends += 1
        else:
            value = message.value()
            assert value is not None
            found.append(value.decode())
    consumer.close()
    return sorted(found)


def offset_of(cluster: LocalCluster, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=LIMIT)
    consumer.close()
    return found.offset


def check(cluster: LocalCluster, topic: str, group: str) -> None:
    """The first transaction is visible with its offset, the second was aborted."""
    kept = [f"kept {number}" for number in range(6)]
    assert read(cluster, topic, committed=True) == kept
    assert read(cluster, topic, committed=False) == sorted(["lost 0", "lost 1", *kept])
    assert offset_of(cluster, group, topic) == 1


def test_confluent(cluster: LocalCluster, topic: str) -> None:
    create(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(LIMIT)
    producer.begin_transaction()
    for number in range(6):
        producer.produce(topic, f"kept {number}", partition=number % 3)
    members = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], members.consumer_group_metadata(), LIMIT)
    producer.commit_transaction(LIMIT)
    producer.begin_transaction()
    for number in range(2):
        producer.produce(topic, f"lost {number}", partition=number)
    assert producer.flush(LIMIT) == 0
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], members.consumer_group_metadata(), LIMIT)
    producer.abort_transaction(LIMIT)
    members.close()
    check(cluster, topic, topic)


def test_kafka_python(cluster: LocalCluster, topic: str) -> None:
    create(cluster, topic)
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","), transactional_id=topic, max_block_ms=LIMIT * 1000
    )
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(6):
        producer.send(topic, f"kept {number}".encode(), partition=number % 3)
    producer.send_offsets_to_transaction({KafkaPartition(topic, 0): OffsetAndMetadata(1, "", -1)}, topic)
    producer.commit_transaction()
    producer.begin_transaction()
    for number in range(2):
        producer.send(topic, f"lost {number}".encode(), partition=number).get(LIMIT)
    producer.send_offsets_to_transaction({KafkaPartition(topic, 0): OffsetAndMetadata(2, "", -1)}, topic)
    producer.abort_transaction()
    producer.close(timeout=LIMIT)
    check(cluster, topic, topic)


def test_aiokafka(cluster: LocalCluster, topic: str) -> None:
    create(cluster, topic)

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic)
        await producer.start()
        try:
            async with producer.transaction():
                for number in range(6):
                    await producer.send_and_wait(topic, f"kept {number}".encode(), partition=number % 3)
                await producer.send_offsets_to_transaction({AioPartition(topic, 0): 1}, topic)
            await producer.begin_transaction()
            for number in range(2):
                await producer.send_and_wait(topic, f"lost {number}".encode(), partition=number)
            await producer.send_offsets_to_transaction({AioPartition(topic, 0): 2}, topic)
            await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(write(), LIMIT))
    check(cluster, topic, topic)
