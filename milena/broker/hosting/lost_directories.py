"""Replicas whose log directory, as the metadata names it, this broker does not have any more."""

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
    """Whether the replica is recorded in a directory that is not here, or was given up."""
    recorded = partition.directory_of(node_id)
    return (
        recorded is not None
        and (recorded.int >= RESERVED_DIRECTORIES or recorded == LOST_DIR)
        and not logs.has_directory(recorded)
    )


def is_last_in_sync(partition: PartitionImage, node_id: NodeId) -> bool:
    """The only replica in sync, or the last that led (KIP-966)."""
    return (partition.isr or partition.elr or partition.last_known_elr) == (node_id,)


def correct_directory(replica: Partition, recorded: UUID | None, logs: LogManager) -> UUID | None:
    """What to report if ``recorded`` is wrong about whether the replica is lost; else None. An assignment may arrive
    after one that was sent later, or after the replica was removed and placed here again."""
    if replica.log is not None:
        return logs.directory_id(replica.log) if recorded == LOST_DIR else None
    log = logs.get(replica.topic, replica.index)
    is_given_up = log is not None and log.topic_id == replica.topic_id and not log.context.offline
    return LOST_DIR if is_given_up and recorded != LOST_DIR else None


def warn_of_new_disks(image: MetadataImage, node_id: NodeId, logs: LogManager, events: EventLog) -> None:
    """The logs are loaded, and there are none, where the metadata knows of replicas: this broker has new disks, or its
    own are not mounted. Kafka refuses to start on directories that nobody has formatted."""
    if logs.found_logs or logs.offline_dirs:
        return
    missing = [partition for _, _, partition in image.partitions_of(node_id) if is_elsewhere(partition, node_id, logs)]
    if not missing:
        return
    events.error(
        "log directories have no logs, but the metadata has replicas of this broker in others: it goes on with empty "
        "ones, which lead where this replica was the last in sync. If a disk is not mounted, stop this broker, remove "
        "what it has made in the mount point, and mount the disk",
        directories=[directory.path for directory in logs.dirs],
        replicas=len(missing),
        last_in_sync=sum(is_last_in_sync(partition, node_id) for partition in missing),
    )
