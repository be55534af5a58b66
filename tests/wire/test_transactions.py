"""A transactional producer of each client fails at once with a clear error, because transactions are not served."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

from milena.testing.local_cluster import LocalCluster

LIMIT = 60.0
"""Seconds for which a client may retry. If the error is not fatal, it retries and ends with another error."""


def test_confluent(cluster: LocalCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "tx", "log_level": 0}
    with pytest.raises(KafkaException) as refused:
        Producer(settings).init_transactions(LIMIT)
    assert refused.value.args[0].fatal()
    assert "Milena has no transactions yet." in refused.value.args[0].str()


def test_kafka_python(cluster: LocalCluster) -> None:
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","), transactional_id="tx", max_block_ms=LIMIT * 1000
    )
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(timeout=1)


def test_aiokafka(cluster: LocalCluster) -> None:
    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="tx")
        try:
            async with asyncio.timeout(LIMIT):
                await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(begin())
