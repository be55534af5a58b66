"""Replicas whose log directory in the metadata is missing on this broker (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.protocol.types import LOST_DIR, RESERVED_DIRECTORIES, NodeId

if TYPE_CHECKING:
    from uuid import UUID

    from milena.broker.replica.partition import Partition
    from milena.node.metadata.image import MetadataImage, PartitionImage
    from milena.storage.log.context import EventLog
    from milena.storage.manager.log_manager import LogManager


def is_elsewhere(partition: PartitionImage, node_id: NodeId, logs: LogManager) -> bool:
    """Whether the metadata has the replica in a directory that this broker lacks, or as lost (LOST_DIR)."""
    recorded = partition.directory_of(node_id)
    return (
        recorded is not None
        and (recorded.int >= RESERVED_DIRECTORIES or recorded == LOST_DIR)
        and not logs.has_directory(recorded)
    )


def is_last_in_sync(partition: PartitionImage, node_id: NodeId) -> bool:
    """Whether ``node_id`` is the only member of the ISR; with an empty ISR, the only eligible or last known leader
    (KIP-966)."""
    return (partition.isr or partition.elr or partition.last_known_elr) == (node_id,)


def correct_directory(replica: Partition, recorded: UUID | None, logs: LogManager) -> UUID | None:
    """Return the directory to report if the metadata is wrong about whether the replica is lost (LOST_DIR); else None.
    It can be wrong because assignments may be applied out of order, or after the replica was removed and added
    again."""
    if replica.log is not None:
        return logs.directory_id(replica.log) if recorded == LOST_DIR else None
    log = logs.get(replica.topic, replica.index)
    is_given_up = log is not None and log.topic_id == replica.topic_id and not log.context.offline
    return LOST_DIR if is_given_up and recorded != LOST_DIR else None


def warn_of_new_disks(image: MetadataImage, node_id: NodeId, logs: LogManager, events: EventLog) -> None:
    """Log an error if no logs were loaded, but the metadata has replicas of this broker: the disks are new, or they are
    not mounted. (Kafka does not start with unformatted directories.)"""
    if logs.found_logs or logs.offline_dirs:
        return
    missing = [partition for _, _, partition in image.partitions_of(node_id) if is_elsewhere(partition, node_id, logs)]
    if not missing:
        return
    events.error(
        "log directories are empty, but the metadata has replicas of this broker: new logs are created, and elected "
        "where this replica was the last in sync. If a disk is not mounted, stop this broker, remove the new files "
        "from the mount point, and mount the disk",
        directories=[directory.path for directory in logs.dirs],
        replicas=len(missing),
        last_in_sync=sum(is_last_in_sync(partition, node_id) for partition in missing),
    )
