"""Rebuilds the state of producers, and the leader epochs, from the batches of a log."""

from __future__ import annotations

from contextlib import suppress

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import File
from milena.storage.files.end_marker import read_end_marker
from milena.storage.log.batch_scan import ScannedBatch, read_batch, scan_batches
from milena.storage.log.segments import Segments
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.storage.state.producer_state import CompletedTxn, ProducerState


def replay_producer(state: ProducerState, batch: ScannedBatch, file: File) -> CompletedTxn | None:
    """Apply one batch of a producer; returns the transaction that it ends. Raises CorruptBatch."""
    if not batch.is_control:
        state.add_batch(batch)
        return None
    marker = read_end_marker(read_batch(file, batch))
    return state.end_txn(marker) if marker is not None else None


def replay_producers(segments: Segments, state: ProducerState, start: Offset, end: Offset) -> None:
    """Apply the batches in ``[start, end)``. Raises CorruptBatch."""
    if start >= end:
        return
    for segment in segments.since(start):
        if segment.base_offset >= end:
            return
        position = segment.position_of(start)
        if position is None:
            continue
        file = segment.file()
        for batch in scan_batches(file, position, segment.size):
            if batch.base_offset >= end:
                return
            if batch.producer_id >= 0:
                replay_producer(state, batch, file)


def rebuild_epochs(segments: Segments, epochs: LeaderEpochCache) -> None:
    """Fill an empty cache from the headers of all batches. Raises CorruptBatch."""
    for segment in segments:
        for batch in scan_batches(segment.file(), 0, segment.size):
            note_epoch(epochs, batch)


def begins_locally(segments: Segments, start: Offset) -> bool:
    """Whether ``start`` is that of the first segment, or before the first record there."""
    first = segments[0]
    if start <= first.base_offset:
        return start == first.base_offset
    with suppress(CorruptBatch):
        for segment in segments:
            for batch in scan_batches(segment.file(), 0, segment.size):
                return start <= batch.base_offset
    return False


def note_epoch(epochs: LeaderEpochCache, batch: ScannedBatch) -> None:
    epoch = batch.leader_epoch
    if epoch >= 0 and (epochs.latest is None or epoch > epochs.latest):
        epochs.assign(LeaderEpoch(epoch), Offset(batch.base_offset))
