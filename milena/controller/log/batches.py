"""Encodes metadata records as record batches (docs/kafka-semantics.md: Framing of the metadata log): uncompressed,
without keys and without a producer."""

from __future__ import annotations

from collections.abc import Sequence

from milena.controller.state.result import MAX_RECORDS_PER_BATCH
from milena.node.metadata.metadata_folder import MAX_BATCH_BYTES
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import BrokerRegistrationChangeRecord, MetadataRecord, encode_record
from milena.protocol.records.records import BatchBuilder


def encode_batches(
    records: Sequence[MetadataRecord], *, metadata_version: int, timestamp_ms: int, atomic: bool
) -> bytearray:
    """Return one batch, or if not ``atomic`` as many as the size limit requires. Their base offsets are not set yet.

    Raises KafkaError(RECORD_LIST_TOO_LARGE) if an atomic batch would be too large.
    """
    out = bytearray()
    builder = BatchBuilder()
    for record in records:
        value = encode_record(record, metadata_version, version=_version(record, metadata_version))
        full = builder.count and not builder.has_room_for(None, value, MAX_BATCH_BYTES)
        if full or builder.count == MAX_RECORDS_PER_BATCH:
            if atomic:
                raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, "The records do not fit into one metadata batch.")
            out += builder.build()
            builder = BatchBuilder()
        builder.append(timestamp=timestamp_ms, value=value)
    if builder.count:
        out += builder.build()
    return out


def _version(record: MetadataRecord, metadata_version: int) -> int:
    """A BrokerRegistrationChange record is written in the lowest version that can express it, as Kafka's controller
    does."""
    highest = record.version_at(metadata_version)
    if not isinstance(record, BrokerRegistrationChangeRecord):
        return highest
    if record.cordoned_log_dirs is not None:
        return min(3, highest)
    if record.log_dirs:
        return min(2, highest)
    return min(1 if record.in_controlled_shutdown else 0, highest)
