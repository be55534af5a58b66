"""The topics of a cluster, from the metadata logs in its directories, to compare with the tier."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from milena.commands.tier.directories import brokers_in
from milena.config.tiered_rules import ENABLE
from milena.node.metadata.image import TOPIC_RESOURCE, MetadataImage
from milena.node.metadata.stopped_node_image import read_image
from milena.protocol.types import METADATA_TOPIC, RESERVED_DIRECTORIES
from milena.protocol.uuids import to_text
from milena.runtime.disk import Disk
from milena.storage.files.meta_properties import CorruptMetaProperties, decode_meta_properties
from milena.storage.files.names import META_PROPERTIES
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.up.layout import ClusterDir


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """The topics of ``image``, the newest metadata found."""

    image: MetadataImage

    def not_tiered(self, one: TopicIdPartition) -> str | None:
        """Return why the partition should have nothing in the tier, or None if it should."""
        topic = self.image.topics_by_id.get(one.topic_id)
        if topic is None:
            other = self.image.topics.get(one.topic)
            now = f", but a topic with the same name and the id {to_text(other.id)}" if other is not None else ""
            return f"the cluster no longer has a topic with this id{now}"
        if one.partition not in topic.partitions:
            return f"the topic has only {len(topic.partitions)} partitions"
        enabled = self.image.config(TOPIC_RESOURCE, topic.name).get(ENABLE, "false")
        return None if enabled.strip().lower() == "true" else f"{ENABLE} of the topic is false"

    def metadata_elsewhere(self, directories: Collection[UUID]) -> set[int]:
        """Return the partitions of the metadata topic that have no replica in the log directories with these ids."""
        topic = self.image.topics.get(REMOTE_LOG_METADATA_TOPIC)
        placed = {} if topic is None else {number: one.directories for number, one in topic.partitions.items()}
        return {
            number
            for number, ids in placed.items()
            if ids and all(one.int >= RESERVED_DIRECTORIES and one not in directories for one in ids)
        }

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions of a topic; None if there is no such topic."""
        found = self.image.topics.get(topic)
        return None if found is None else len(found.partitions)


def topics_in(disk: Disk, directories: Sequence[str]) -> tuple[ClusterTopics | None, list[str]]:
    """Return the topics according to the newest metadata in the directories of clusters or brokers (None if there are
    no metadata), and messages about unreadable metadata. Blocking. Raises OSError, UserError."""
    newest, errors = None, []
    for folder in _folders(directories):
        try:
            image = read_image(disk, folder)
        except ValueError as error:
            errors.append(f"{folder}: {error}")
            continue
        if image.offset >= 0 and (newest is None or image.offset > newest.offset):
            newest = image
    return None if newest is None else ClusterTopics(newest), errors


def _folders(directories: Sequence[str]) -> list[str]:
    """Return the folders of the metadata logs in the directories."""
    found: dict[str, None] = {}
    for directory in directories:
        cluster = ClusterDir(directory)
        places = [one for broker in brokers_in(directory) for one in broker.log_dirs]
        if cluster.exists():
            places += [cluster.data(name) for name in sorted(os.listdir(cluster.path))]
        found |= dict.fromkeys(f"{place}/{METADATA_TOPIC}-0" for place in places)
    return [folder for folder in found if os.path.isdir(folder)]


def directory_ids(disk: Disk, log_dirs: Sequence[str]) -> set[UUID]:
    """Return the directory ids of ``log_dirs``. Blocking. Raises OSError."""
    found = set()
    for one in log_dirs:
        try:
            found.add(decode_meta_properties(disk.read(f"{one}/{META_PROPERTIES}")).directory_id)
        except (FileNotFoundError, CorruptMetaProperties):
            continue
    return {one for one in found if one is not None}
