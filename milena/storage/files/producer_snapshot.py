"""The snapshot file of a partition's producer state at an offset (docs/kafka-semantics.md: Checkpoint files).

Version int16 (1), CRC-32C uint32 of what follows, number of entries int32, and for each producer: id int64, epoch
int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first
offset of the open transaction int64 (-1 for none). Of each producer's batches only the last is kept.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from milena.protocol.records.crc import crc32c
from milena.protocol.types import Offset, ProducerEpoch, ProducerId
from milena.storage.state.producer_state import KeptBatch, ProducerEntry, ProducerState

_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A file that is not a valid snapshot."""


def encode_snapshot(state: ProducerState) -> bytes:
    body = bytearray(_COUNT.pack(len(state)))
    for producer_id, entry in state:
        body += _ENTRY.pack(
            producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.batches[-1].offset_delta if entry.batches else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.txn_first_offset is None else entry.txn_first_offset,
        )
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[tuple[ProducerId, ProducerEntry]]:
    """Return the producers of a snapshot. Raises CorruptSnapshot."""
    try:
        version, crc = _PREFIX.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    except error as reason:
        raise CorruptSnapshot(f"{len(data)} bytes are not a snapshot") from reason
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is not {_VERSION}")
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshot(f"the checksum is not {crc}")
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(body)} bytes cannot be {count} producers")
    entries = []
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first in _ENTRY.iter_unpack(
        body[_COUNT.size :]
    ):
        kept = [KeptBatch(sequence, Offset(offset), delta, timestamp)] if offset >= 0 else []
        txn_first = Offset(first) if first >= 0 else None
        entry = ProducerEntry(ProducerEpoch(epoch), coordinator, timestamp, txn_first, kept)
        entries.append((ProducerId(producer_id), entry))
    return entries
