"""Helpers of tests with a tiered partition on three brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milena.lab.cluster import SimulatedCluster
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records
from milena.tiered.store.tier_names import object_path
from tests.simulation.steps import (
    partition_image,
    until,
)
from tests.simulation.tiered_topics import (
    TIER,
    known_segments,
    log_of,
    replica,
)

REPLICATED: dict[str, Any] = {
    "rlmm_config_remote_log_metadata_topic_replication_factor": 3,
    "rlmm_config_remote_log_metadata_topic_min_isr": 2,
}


def records_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(offset, leader epoch, number) of the records that ``steps.write`` wrote."""
    for batch in iter_batches(memoryview(bytearray(data))):
        for record in iter_records(batch):
            yield batch.base_offset + record.offset_delta, batch.leader_epoch, int(record.value or b"-1")


def readable(cluster: SimulatedCluster, broker: int) -> dict[int, int]:
    """Offset to record number from the log start offset to the high watermark, from the local log and the tier."""
    log, cache = log_of(cluster, broker), known_segments(cluster, broker)
    found: dict[int, int] = {}
    served = cache.served(log.log_start_offset, leader_epochs=log.epochs.entries, log_end=log.log_end_offset)
    for segment, first, last in served:
        data = bytes(cluster.world.tier.files[f"{TIER}/{object_path(segment, '.log')}"].data)
        found |= {offset: number for offset, _, number in records_of(data) if first <= offset <= last}
    data = b"".join(bytes(segment.file().pread(segment.size, 0)) for segment in log.segments)
    found |= {offset: number for offset, _, number in records_of(data) if offset >= log.local_log_start_offset}
    return {offset: found[offset] for offset in sorted(found) if log.log_start_offset <= offset < log.high_watermark}


def leader_of(cluster: SimulatedCluster) -> int:
    return int(partition_image(cluster).leader)


async def all_in_sync(cluster: SimulatedCluster) -> None:
    brokers = set(cluster.brokers)
    await until(lambda: set(partition_image(cluster).isr) == brokers and leader_of(cluster) in brokers)
    await until(lambda: replica(cluster, leader_of(cluster)).is_leader)
