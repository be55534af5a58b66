"""What the remote tier changes for a log (KIP-405; kafka-behaviour A1, A16).

A tiered log begins in the tier: its ``log_start_offset`` lies there, ``local_log_start_offset`` is that of the first
record on this disk. Local segments go once they are copied, and only move the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.types import METADATA_TOPIC, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, Offset
from storage.names import SNAPSHOT, segment_file
from storage.producer_files import ProducerFiles
from storage.producer_state import ProducerState
from storage.replay import replay_producers
from storage.segment import Segment

if TYPE_CHECKING:
    from runtime.config.topic_config import TopicConfig
    from storage.context import LogContext
    from storage.partition_log import PartitionLog

REMOTE_METADATA_TOPIC: Final = "__remote_log_metadata"
NEVER_TIERED: Final = frozenset(
    {OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC, METADATA_TOPIC, REMOTE_METADATA_TOPIC}
)


def may_be_tiered(context: LogContext, topic: str, config: TopicConfig) -> bool:
    """Whether a part of this log may lie in the tier."""
    return context.tiered and config.remote_storage_enable and not config.compacted and topic not in NEVER_TIERED


def is_copied(log: PartitionLog) -> bool:
    """Whether segments go on to the tier: then ``local.retention.*`` rules here, and ``retention.*`` there."""
    return log.remote_enabled and not log.config.remote_log_copy_disable


def note_copied(log: PartitionLog, offset: Offset) -> None:
    """Everything up to ``offset`` is in the tier. It never moves back but with the end of the log."""
    log.highest_offset_in_remote_storage = max(log.highest_offset_in_remote_storage, offset)


def update_log_start(log: PartitionLog, offset: Offset) -> bool:
    """The tier begins at ``offset``, or later; False where the log does so already, or is not tiered.

    Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
    """
    return log.remote_enabled and log.increment_log_start(offset)


def only_local(log: PartitionLog) -> list[Segment]:
    """The segments of which nothing is in the tier, the active one among them."""
    return [segment for segment in log.segments if segment.base_offset > log.highest_offset_in_remote_storage]


def take_bounds(log: PartitionLog, other: PartitionLog) -> None:
    """``log`` is a copy of ``other``'s local part."""
    log.log_start_offset = min(log.log_start_offset, other.log_start_offset)
    log.local_log_start_offset = max(log.local_log_start_offset, other.local_log_start_offset)
    log.highest_offset_in_remote_storage = other.highest_offset_in_remote_storage


def snapshot_at(log: PartitionLog, offset: Offset) -> str:
    """The path of the producers' snapshot at ``offset``, where a segment begins. One that was lost is made anew from
    the batches before it. Raises CorruptBatch, OSError."""
    path = f"{log.folder}/{segment_file(offset, SNAPSHOT)}"
    if not log.context.disk.exists(path):
        files = ProducerFiles(log.context, (one for one in log.producer_files.offsets if one < offset))
        state = ProducerState()
        start = files.load(log.folder, state, upto=offset, log_start=log.local_log_start_offset)
        replay_producers(log.segments, state, start, offset)
        log.producer_files.put(log.folder, state, offset)
    return path
