"""Batches whose validation takes many iterations of the event loop: order, replication, repeatable runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import Codec, iter_batches
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request
from milena.protocol.types import Offset, ProducerEpoch, ProducerId
from milena.storage.log.unified_log import UnifiedLog

COUNT = 6000


async def produce(client: Cluster, leader: int, data: bytes, acks: int = -1) -> Any:
    """(error code, base offset) of one request over the client's connection to the leader."""
    body = encode_produce_request(9, ProduceRequest(None, acks, 30_000, [("t", None, [(0, memoryview(data))])]))
    channel = client.to(host_of(leader), 9092)
    response = await channel.request_raw(ApiKey.PRODUCE, 9, [body], lambda got: decode_produce_response(9, got))
    result = response.topics[0][2][0]
    return result.error_code, result.base_offset


def batch(count: int, sequence: int, codec: Codec, now: int) -> bytes:
    records = [Record(at, 0, b"k", b"%d" % at) for at in range(count)]
    return build_batch(
        records,
        base_timestamp=now,
        codec=codec,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
    )


async def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition`` is true, at most a virtual minute."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def leaders(cluster: SimulatedCluster) -> list[int]:
    """The leader of the partition, once all replicas are in the ISR."""
    hosted = [(number, broker.partitions.find("t", 0)) for number, broker in cluster.brokers.items()]
    return [number for number, found in hosted if found is not None and found.is_leader and len(found.isr) == 3]


def replicated(log: UnifiedLog, offset: int) -> bool:
    return log.high_watermark == offset


async def in_order(world: World) -> tuple[list[Any], list[bytes]]:
    cluster = await start_cluster(world, 3)
    async with cluster.client() as client:
        assert await admin.create_topics(client, [admin.NewTopic("t", 1, 3)]) == {"t": None}
        await until(lambda: leaders(cluster))
        (leader,) = leaders(cluster)
        now = client.runtime.clock.time_ms()
        sent = []
        sequence = 0
        async with asyncio.TaskGroup() as tasks:
            for count, codec in ((COUNT, Codec.ZSTD), (1, Codec.NONE), (COUNT, Codec.GZIP), (2, Codec.LZ4)):
                sent.append(tasks.create_task(produce(client, leader, batch(count, sequence, codec, now))))
                sequence += count
        answers = [one.result() for one in sent]
        logs = []
        for broker in cluster.brokers.values():
            partition = broker.partitions.get("t", 0)
            log = partition.online_log
            await until(partial(replicated, log, sequence))
            logs.append(bytes(log.read_bytes(Offset(0), 1 << 30, upper=log.log_end_offset, min_one=True)))
    cluster.check_alive()
    return answers, logs


@pytest.mark.parametrize("seed", [1, 2])
def test_later_requests_of_a_connection_do_not_overtake_a_long_validation(seed: int) -> None:
    answers, logs = simulate(in_order, seed=seed)
    assert answers == [(0, 0), (0, COUNT), (0, COUNT + 1), (0, 2 * COUNT + 1)]
    assert len(set(logs)) == 1
    assert [one.codec for one in iter_batches(memoryview(logs[0]))] == [Codec.ZSTD, Codec.NONE, Codec.GZIP, Codec.LZ4]
    assert simulate(in_order, seed=seed) == (answers, logs)
