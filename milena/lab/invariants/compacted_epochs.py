"""Checks that the leader epochs of a compacted log can be rebuilt from its batches."""

from __future__ import annotations

from milena.lab.invariants.broken import demand
from milena.lab.invariants.log_cursor import batches_in
from milena.lab.world.disk import Storage
from milena.storage.files.names import LOG
from milena.storage.log.unified_log import UnifiedLog


def check_epochs(where: str, storage: Storage, log: UnifiedLog) -> None:
    """Check that every epoch in the leader epoch cache with offsets in the local log has a batch. Raises
    InvariantBroken."""
    epochs_in_batches = {
        batch.epoch for segment in log.segments for batch in batches_in(storage.files[segment.path(LOG)].data)
    }
    entries = log.epochs.entries
    for number, entry in enumerate(entries):
        end = entries[number + 1].start if number + 1 < len(entries) else log.log_end_offset
        if max(entry.start, log.local_log_start_offset) < end:
            demand(
                entry.epoch in epochs_in_batches,
                where,
                f"epoch {entry.epoch}, from {entry.start} to {end}, has no batch",
            )
