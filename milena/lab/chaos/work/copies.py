"""Finds the values that a log has several times, and reads the headers of their batches from the running cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from milena.client.cluster import Cluster
from milena.client.producer import MAX_SEQUENCE
from milena.client.raw_reads import read_raw
from milena.lab.histories.copies import Copies
from milena.protocol.records.batch import iter_batches
from milena.protocol.types import TopicPartition

BYTES: Final = 1 << 16


def repeated(records: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """Return the values that ``records`` (offset, value) have at several offsets, with the offsets. "" is the value of
    tombstones."""
    offsets: dict[str, list[int]] = {}
    for offset, value in records:
        offsets.setdefault(value, []).append(offset)
    return {value: places for value, places in offsets.items() if value and len(places) > 1}


async def copies_of(client: Cluster, place: TopicPartition, value: str, offsets: Sequence[int]) -> Copies:
    """Return the copies of a value. Left out are copies that the cleaner has removed since the log was read, and those
    in a batch without a producer id. Raises KafkaError, ChannelError."""
    found: list[tuple[int, int, int, int]] = []
    for offset in offsets:
        raw = await read_raw(client, *place, offset, committed=False, max_bytes=BYTES)
        batch = next(iter_batches(memoryview(raw.data)), None)
        if batch is None or not batch.has_producer_id or not batch.base_offset <= offset <= batch.last_offset:
            continue
        sequence = (batch.base_sequence + offset - batch.base_offset) % MAX_SEQUENCE
        found.append((offset, batch.producer_id, batch.producer_epoch, sequence))
    return Copies(place, value, tuple(found))
