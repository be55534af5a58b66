"""A compacted topic in the tier of simulated brokers: its settings, its load, and whether it is clean."""

from __future__ import annotations

import asyncio
from typing import Any

from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.offsets import LATEST, find_offset
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster
from tests.simulation.steps import partition_image
from tests.simulation.tiered_topics import known_segments, log_of

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2", "internal.segment.bytes": "1500"}
CLEANING = {"remote_log_compaction_enable": True, "remote_log_compaction_source_retention_ms": 2000}
METADATA: dict[str, Any] = {
    "rlmm_config_remote_log_metadata_topic_replication_factor": 3,
    "rlmm_config_remote_log_metadata_topic_min_isr": 1,
}


async def write(client: Cluster, rounds: int, keys: int, *, first: int = 0, pause: float = 0.0) -> dict[bytes, bytes]:
    """Write values of about 100 bytes for each key; return the last value of each key."""
    producer = Producer(client, request_timeout=2.0, delivery_timeout=120.0)
    last: dict[bytes, bytes] = {}
    for number in range(first, first + rounds):
        for key in range(keys):
            last[b"%d" % key] = b"%-99d" % number
            await producer.send("t", last[b"%d" % key], key=b"%d" % key, partition=0)
        await asyncio.sleep(pause)
    await producer.close()
    return last


async def read(client: Cluster, start: int = 0, *, pause: float = 0.0) -> list[tuple[int, bytes | None, bytes | None]]:
    """All records up to the current end of the log."""
    client.forget_topic("t")
    end = (await find_offset(client, "t", 0, LATEST)).offset
    consumer = Consumer(client)
    consumer.assign({("t", 0): start})
    found: list[tuple[int, bytes | None, bytes | None]] = []
    async with asyncio.timeout(300):
        while not found or found[-1][0] + 1 < end:
            found += [(record.offset, record.key, record.value) for record in await consumer.poll(1.0)]
            await asyncio.sleep(pause)
    await consumer.close()
    return found


def leader(cluster: SimulatedCluster) -> int:
    return int(partition_image(cluster).leader)


def is_clean(cluster: SimulatedCluster, broker: int, least: int) -> bool:
    """Whether offsets up to ``least`` are cleaned, and the replaced segments are deleted."""
    cache, log = known_segments(cluster, broker), log_of(cluster, broker)
    if cache.cleaned_to is None or cache.cleaned_to.offset < least:
        return False
    served = cache.served(log.log_start_offset, leader_epochs=log.epochs.entries, log_end=log.log_end_offset)
    return {one.segment.id for one in served} == {one.id for one in cache.segments() if one.was_copied}
