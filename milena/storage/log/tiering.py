"""What the remote tier changes for a log (KIP-405; docs/kafka-semantics.md: Tiered topics, Local retention).

A tiered log begins in the tier: its ``log_start_offset`` is there, and ``local_log_start_offset`` is the first offset
on this disk. Local segments are deleted once they are copied; that moves only the latter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.storage.files.names import SNAPSHOT, segment_file
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from milena.storage.log.guard import guarded
from milena.storage.log.producer_files import ProducerFiles
from milena.storage.log.replay import replay_producers
from milena.storage.log.segment import Segment
from milena.storage.log.truncation import increment_start, start_over
from milena.storage.state.epoch_cache import EpochEntry
from milena.storage.state.producer_state import ProducerState

if TYPE_CHECKING:
    from milena.storage.log.local_log import LocalLog


def is_copied(log: LocalLog) -> bool:
    """Whether segments are still copied to the tier: then ``local.retention.*`` applies here, and ``retention.*``
    there."""
    return log.remote_enabled and not log.config.remote_log_copy_disable


@guarded
def _increment_start(log: LocalLog, offset: Offset) -> bool:
    return increment_start(log, offset)


def update_log_start(log: LocalLog, offset: Offset) -> bool:
    """The tier begins at ``offset`` or later; False if the log already begins there, or is not tiered.

    Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
    """
    return log.remote_enabled and _increment_start(log, offset)


def only_local(log: LocalLog) -> list[Segment]:
    """The segments of which nothing is in the tier, including the active one."""
    return [segment for segment in log.segments if segment.base_offset > log.highest_offset_in_remote_storage]


def epochs_reach_start(log: LocalLog) -> bool:
    """Whether the leader epochs cover the whole log. If not, records in the tier cannot be found, and a follower must
    get the epochs again: a crash came between the steps of ``start_in_tier``, or the file was lost."""
    earliest = log.epochs.earliest
    return log.log_start_offset >= log.local_log_start_offset or (
        earliest is not None and earliest.start <= log.log_start_offset
    )


@guarded
def start_in_tier(
    log: LocalLog, offset: Offset, *, log_start: Offset, epochs: Iterable[EpochEntry], snapshot: bytes
) -> None:
    """Remove everything local: the log continues at ``offset``, and earlier records, from ``log_start`` on, are in the
    tier (docs/kafka-semantics.md: Followers that begin in the tier). ``epochs`` are those of the whole log,
    ``snapshot`` has the producers at ``offset``.

    Raises CorruptSnapshot, changing nothing, and KafkaError.
    """
    decode_snapshot(snapshot)
    start_over(log, offset, log_start, epochs=epochs, producers=snapshot)
    log.set_highest_offset_in_remote_storage(Offset(offset - 1))


def start_like(log: LocalLog, other: LocalLog, offset: Offset) -> None:
    """The same for a copy of ``other`` whose local log begins at ``offset``. Raises KafkaError."""
    snapshot, epochs = _producers_at(other, offset), list(other.epochs.entries)
    try:
        start_in_tier(log, offset, log_start=other.log_start_offset, epochs=epochs, snapshot=snapshot)
    except CorruptSnapshot as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"producers of {other} at {offset}: {error}") from error


@guarded
def _producers_at(log: LocalLog, offset: Offset) -> bytes:
    return log.context.disk.read(snapshot_at(log, offset))


@guarded
def clear_local(log: LocalLog) -> None:
    """Remove everything local, so that the log has only its records in the tier. Raises KafkaError."""
    end = log.log_end_offset
    if log.segments[0].base_offset < end:
        start_over(log, end, log.log_start_offset, epochs=list(log.epochs.entries))


def snapshot_at(log: LocalLog, offset: Offset) -> str:
    """The path of the producer snapshot at ``offset``, where a segment begins. A lost snapshot is rebuilt from the
    batches before it. Raises CorruptBatch, OSError."""
    path = f"{log.folder}/{segment_file(offset, SNAPSHOT)}"
    if not log.context.disk.exists(path):
        files = ProducerFiles(log.context, (one for one in log.producer_files.offsets if one < offset))
        state = ProducerState()
        start = files.load(log.folder, state, upto=offset, log_start=log.local_log_start_offset)
        replay_producers(log.segments, state, start, offset)
        log.producer_files.put(log.folder, state, offset)
    return path
