"""Common steps of the scenarios: create topics, write and read records, look up the state of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, host_of
from milena.lab.world.disk import Storage
from milena.node.links.outgoing import Channel
from milena.node.metadata.image import BrokerImage, PartitionImage
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.produce import (
    ProducedPartition,
    ProduceRequest,
    decode_produce_response,
    encode_produce_request,
)
from milena.protocol.types import NodeId

DIRS = ("/data-1", "/data-2")
METADATA_DIR = "/metadata"
OF_BROKERS: dict[str, object] = {"log_dirs": ",".join(DIRS), "metadata_log_dir": METADATA_DIR}
"""Broker options: two log directories, and the metadata log in a third."""
QUICK: dict[str, object] = {"broker_session_timeout_ms": 3000, "broker_heartbeat_interval_ms": 500}
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


def seeds(count: int) -> list[Any]:
    """The seeds from 0 on with which a test runs: `make test` has the first one, the suite `slow` the others."""
    return [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, count))]


async def create(
    client: Cluster,
    name: str = "t",
    partitions: int = 1,
    replicas: int = 1,
    configs: Mapping[str, str] = NO_CONFIGS,
) -> None:
    """Create a topic, and wait until the brokers know it."""
    results = await admin.create_topics(client, [admin.NewTopic(name, partitions, replicas, configs=configs)])
    assert results == {name: None}
    attempt = 0
    while (await client.metadata([name])).topics[name].error:
        await client.pause(attempt)
        attempt += 1


async def write(client: Cluster, count: int, topic: str = "t", partition: int = 0, *, first: int = 0) -> None:
    """Write ``count`` records of 100 bytes that begin with their numbers, each in a batch of its own."""
    producer = Producer(client, request_timeout=2.0, delivery_timeout=60.0)
    for number in range(first, first + count):
        await producer.send(topic, b"%-100d" % number, partition=partition)
    await producer.close()


async def values(client: Cluster, count: int, topic: str = "t", partition: int = 0) -> list[int]:
    """Read the first ``count`` records; return their numbers."""
    consumer = Consumer(client)
    consumer.assign({(topic, partition): 0})
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [int(record.value or b"-1") for record in await consumer.poll(1)]
    await consumer.close()
    return found


async def produce_once(client: Cluster, broker: int, topic: str = "t", partition: int = 0) -> ErrorCode:
    """Send one record of the value -1 to this broker, without retries."""
    data = build_batch([Record(0, 0, None, b"-1")], base_timestamp=client.runtime.clock.time_ms())
    return ErrorCode((await send_batch(client.to(host_of(broker), 9092), data, topic, partition)).error_code)


async def send_batch(channel: Channel, data: bytes, topic: str = "t", partition: int = 0) -> ProducedPartition:
    """Send one batch unchanged, without retries; return the response, which may have an error."""
    request = ProduceRequest(None, -1, 5000, [(topic, None, [(partition, memoryview(data))])])
    response = await channel.request_raw(
        ApiKey.PRODUCE, 12, [encode_produce_request(12, request)], lambda body: decode_produce_response(12, body)
    )
    return response.topics[0][2][0]


def partition_image(cluster: SimulatedCluster, topic: str = "t", partition: int = 0) -> PartitionImage:
    """The partition in the image of the controller."""
    assert cluster.controller is not None
    return cluster.controller.state.image.topics[topic].partitions[partition]


def broker_image(cluster: SimulatedCluster, broker: int) -> BrokerImage:
    assert cluster.controller is not None
    return cluster.controller.state.image.brokers[NodeId(broker)]


def directory_of(cluster: SimulatedCluster, broker: int, topic: str = "t", partition: int = 0) -> str:
    """The log directory of a partition."""
    log = cluster.brokers[broker].logs.get(topic, partition)
    assert log is not None
    return log.folder.rpartition("/")[0]


def storage_of(cluster: SimulatedCluster, broker: int) -> Storage:
    return cluster.world.machine(host_of(broker)).storage


def batches_in(data: bytes) -> list[BatchView]:
    """The complete batches of a log file."""
    return list(iter_batches(memoryview(bytearray(data))))


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait in virtual time until ``condition`` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - any state of any node may be meant
            await asyncio.sleep(0.01)
