"""Operations on tiered logs (KIP-405; docs/kafka-semantics.md: Tiered topics, Local retention).

The ``log_start_offset`` of a tiered log is in the tier, and ``local_log_start_offset`` is the first offset on this
disk. Local segments are deleted once they are copied to the tier, which moves only the local log start.
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
from milena.storage.log.recovery import replay_producers
from milena.storage.log.segment import Segment
from milena.storage.state.epoch_cache import EpochEntry
from milena.storage.state.producer_state import ProducerState

if TYPE_CHECKING:
    from milena.storage.log.unified_log import UnifiedLog


def only_local(log: UnifiedLog) -> list[Segment]:
    """Return the segments without records in the tier, including the active one."""
    return [segment for segment in log.segments if segment.base_offset > log.highest_offset_in_remote_storage]


def epochs_reach_start(log: UnifiedLog) -> bool:
    """Whether the leader epochs begin at the log start. If not, there was a crash during ``start_in_tier``, or the
    checkpoint was lost. Records in the tier cannot be found then, and a follower must fetch the epochs again."""
    earliest = log.epochs.earliest
    return log.log_start_offset >= log.local_log_start_offset or (
        earliest is not None and earliest.start <= log.log_start_offset
    )


@guarded
def start_in_tier(
    log: UnifiedLog, offset: Offset, *, log_start: Offset, epochs: Iterable[EpochEntry], snapshot: bytes
) -> None:
    """Remove all local records: the local log restarts at ``offset``, and earlier records, from ``log_start`` on, are
    in the tier (docs/kafka-semantics.md: Followers that begin in the tier). ``epochs``: the epochs of the complete log.
    ``snapshot``: the producer snapshot at ``offset``.

    Raises CorruptSnapshot, changing nothing, and KafkaError.
    """
    decode_snapshot(snapshot)
    log.truncate_fully_and_start_at(offset, log_start=log_start, epochs=epochs, producers=snapshot)
    log.set_highest_offset_in_remote_storage(Offset(offset - 1))


def start_like(log: UnifiedLog, other: UnifiedLog, offset: Offset) -> None:
    """``start_in_tier`` for a copy of ``other`` whose local log begins at ``offset``. Raises KafkaError."""
    snapshot, epochs = _producers_at(other, offset), list(other.epochs.entries)
    try:
        start_in_tier(log, offset, log_start=other.log_start_offset, epochs=epochs, snapshot=snapshot)
    except CorruptSnapshot as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"producers of {other} at {offset}: {error}") from error


@guarded
def _producers_at(log: UnifiedLog, offset: Offset) -> bytes:
    return log.context.disk.read(snapshot_at(log, offset))


@guarded
def clear_local(log: UnifiedLog) -> None:
    """Remove all local records, so that only those in the tier remain. Raises KafkaError."""
    end = log.log_end_offset
    if log.segments[0].base_offset < end:
        log.truncate_fully_and_start_at(end, log_start=log.log_start_offset, epochs=list(log.epochs.entries))


def snapshot_at(log: UnifiedLog, offset: Offset) -> str:
    """Return the path of the producer snapshot at ``offset``, the base offset of a segment. A missing snapshot is
    rebuilt from the batches before it. Raises CorruptBatch, OSError."""
    path = f"{log.folder}/{segment_file(offset, SNAPSHOT)}"
    if not log.context.disk.exists(path):
        files = ProducerFiles(log.context, (one for one in log.producer_files.offsets if one < offset))
        state = ProducerState()
        start = files.load(log.folder, state, upto=offset, log_start=log.local_log_start_offset)
        replay_producers(log.segments, state, start, offset)
        log.producer_files.put(log.folder, state, offset)
    return path
