"""Decodes the control record that ends a transaction in a partition, like Kafka's ``EndTransactionMarker``."""

from __future__ import annotations

from milena.protocol.records.batch import BatchView
from milena.protocol.records.records import iter_records, timestamp_of
from milena.protocol.types import Offset
from milena.storage.state.producer_state import EndMarker


def read_end_marker(batch: BatchView) -> EndMarker | None:
    """Return the end marker in a control batch, None for other control records. Raises CorruptBatch."""
    # Imported here, since it is slow to import and only partitions with transactions need it.
    from milena.protocol.records.control_records import AbortMarker, CommitMarker, control_of

    first = next(iter_records(batch), None)
    if first is None:
        return None
    record = control_of(first)
    if not isinstance(record, AbortMarker | CommitMarker):
        return None
    return EndMarker(
        batch.producer_id,
        batch.producer_epoch,
        Offset(batch.base_offset),
        timestamp_of(batch, first),
        record.coordinator_epoch,
        isinstance(record, AbortMarker),
    )
