"""Writes batches without some or all of their records, like Kafka's ``MemoryRecords.filterTo``.

A rebuilt batch keeps its offsets, leader epoch, producer and codec. It may have a delete horizon (attribute bit 6,
KIP-534): the time from which its tombstones or its marker may be removed. The delete horizon is stored in the base
timestamp, and the timestamps of the records are relative to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from milena.protocol.records.batch import NO_TIMESTAMP, BatchView, TimestampType, pack_batch
from milena.protocol.records.compression import compress
from milena.protocol.records.records import as_long
from milena.protocol.records.varints import read_varint, write_varint


class KeptRecord(NamedTuple):
    """A record that is kept."""

    encoded: bytes
    """The encoded record, with its length."""
    timestamp_delta: int


def delete_horizon(batch: BatchView) -> int | None:
    """Return the delete horizon of ``batch`` (ms), None if it has none."""
    return batch.base_timestamp if batch.has_delete_horizon else None


def rebuilt(batch: BatchView, records: Sequence[KeptRecord], horizon: int | None) -> bytearray:
    """Return ``batch`` with only ``records`` (at least one) and with the delete horizon ``horizon``."""
    appended = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    times = [
        batch.max_timestamp if appended else as_long(batch.base_timestamp + record.timestamp_delta)
        for record in records
    ]
    base = times[0] if horizon is None else horizon
    # Deltas are relative to the base timestamp, so a record is encoded again if that has changed.
    data = bytearray()
    for record, time in zip(records, times, strict=True):
        delta = as_long(time - base)
        data += record.encoded if delta == record.timestamp_delta else _with_delta(record.encoded, delta)
    return pack_batch(
        compress(batch.codec, data),
        count=len(records),
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=base,
        max_timestamp=batch.max_timestamp if appended else max(NO_TIMESTAMP, max(times)),
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        codec=batch.codec,
        timestamp_type=batch.timestamp_type,
        transactional=batch.is_transactional,
        control=batch.is_control,
        delete_horizon=horizon is not None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def emptied(batch: BatchView) -> bytearray:
    """Return ``batch`` without records. It keeps the offsets and the state of the producer."""
    return pack_batch(
        b"",
        count=0,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        timestamp_type=batch.timestamp_type,
        transactional=batch.is_transactional,
        control=batch.is_control,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def epoch_mark(batch: BatchView) -> bytearray:
    """Return an empty batch with only the offsets and the leader epoch of ``batch``."""
    return pack_batch(
        b"",
        count=0,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        timestamp_type=batch.timestamp_type,
    )


def _with_delta(encoded: bytes, delta: int) -> bytes:
    """Return the record with another timestamp delta."""
    _, at = read_varint(encoded, 0)
    _, after_delta = read_varint(encoded, at + 1, 64)
    body = bytearray(encoded[at : at + 1])
    write_varint(body, delta)
    body += encoded[after_delta:]
    out = bytearray()
    write_varint(out, len(body))
    return bytes(out + body)
