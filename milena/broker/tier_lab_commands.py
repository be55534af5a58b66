"""The lab commands that use the tier. Errors of the tier become ValueError, whose message the client gets."""

from __future__ import annotations

from collections.abc import Sequence

from milena.broker.replica.partition import Partition
from milena.config.tiered_rules import COMPACTION_ENABLE
from milena.protocol.uuids import from_text, to_text
from milena.tiered.cleaning.window import map_at_start
from milena.tiered.rebuilding.rebuilt_metadata import placeholder
from milena.tiered.segments.lineage import filtered, is_within_leader_epochs
from milena.tiered.shared.tier import FAILURES, HostedReplica
from milena.tiered.store.remote_storage import RemoteResourceNotFound
from milena.tiered.work.tier_manager import RemoteLogManager


async def work_now(manager: RemoteLogManager, partition: Partition) -> None:
    """Run all work for the partition in the tier once, as leader or follower. Raises ValueError if it fails."""
    try:
        await manager.run_now(partition)
    except FAILURES as error:
        raise ValueError(str(error)) from error


async def job_now(manager: RemoteLogManager, partition: Partition, name: str) -> None:
    """Run one job of a leader in the tier once. Raises ValueError if it fails, or if the leader does not have it."""
    role, of_partition = manager.role_of(partition), f"{partition.topic}-{partition.index}"
    if role is None:
        raise ValueError(f"{of_partition} is not in the tier: {partition.topic} has no remote.storage.enable=true")
    try:
        if not await manager.run_job_now(role, name):
            raise ValueError(f"the job {name} of {of_partition} is not enabled ({COMPACTION_ENABLE})")
    except FAILURES as error:
        raise ValueError(str(error)) from error


async def erase_topics(manager: RemoteLogManager, topics: Sequence[str]) -> int:
    """Delete the segments of deleted topics, given by their ids, without records in the metadata topic. Return their
    number. Raises ValueError if that fails."""
    storage, ids = manager.tier.storage, {from_text(topic) for topic in topics}
    count = 0
    try:
        for stored in await storage.segments():
            if stored.segment_id.partition.topic_id in ids:
                await storage.delete(placeholder(stored))
                count += 1
    except RemoteResourceNotFound:
        return count  # nothing was ever copied
    except FAILURES as error:
        raise ValueError(str(error)) from error
    return count


async def segments_now(manager: RemoteLogManager, partition: Partition) -> list[dict[str, object]]:
    """``described_segments`` of the partition. Raises ValueError if the metadata cannot be read."""
    try:
        return await described_segments(manager, partition)
    except FAILURES as error:
        raise ValueError(str(error)) from error


async def resolved_now(manager: RemoteLogManager, partition: Partition) -> list[list[int | None]]:
    """Return the cleaner-offset map with which the leader starts to clean; empty if this broker does not lead. Raises
    ValueError if the metadata cannot be read."""
    role = manager.role_of(partition)
    if role is None or not role.leads:
        return []
    try:
        await manager.ready(role)
    except FAILURES as error:
        raise ValueError(str(error)) from error
    epochs = [] if role.log is None else role.log.epochs.entries
    if not epochs:
        return []
    found = map_at_start(manager.tier.metadata.cache(role.partition), role.leader_epoch, leader_epochs=epochs)
    return [[epoch, offset] for epoch, offset in found]


async def described_segments(manager: RemoteLogManager, replica: HostedReplica) -> list[dict[str, object]]:
    """Return the segments as plain data, by start offset; empty if the replica is not tiered. ``on_lineage`` is None
    without a log.

    Raises MetadataNotReady.
    """
    role = manager.role_of(replica)
    if role is None:
        return []
    await manager.ready(role)
    log = replica.log
    lineage = [] if log is None else filtered(log.epochs.entries)
    return [
        {
            "id": to_text(segment.id),
            "start_offset": segment.start_offset,
            "end_offset": segment.end_offset,
            "epochs": [[entry.epoch, entry.start] for entry in segment.epochs],
            "state": segment.state.name,
            "size": segment.size,
            "broker": segment.broker_id,
            "max_timestamp_ms": segment.max_timestamp_ms,
            "on_lineage": None
            if log is None
            else is_within_leader_epochs(segment, log_end=log.log_end_offset, leader_epochs=lineage),
        }
        for segment in manager.tier.metadata.cache(role.partition).segments()
    ]
