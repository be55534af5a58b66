"""The control record that ends a transaction in a partition, as producer state takes it in."""

from __future__ import annotations

from protocol.batch import BatchView
from protocol.records import iter_records, timestamp_of
from protocol.types import Offset
from storage.producer_state import EndMarker


def read_end_marker(batch: BatchView) -> EndMarker | None:
    """The marker in a control batch; None for other control records. Raises CorruptBatch."""
    # Only partitions with transactions need it, and it is slow to import.
    from protocol.control_records import AbortMarker, CommitMarker, control_of

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
