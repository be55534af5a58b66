"""Makes this broker's partitions what the metadata image says they are.

A delta only names what has changed; the work is to compare the image as it is now with what is hosted, so that it may
come late, together, or twice. A few partitions are done at once, within the publication: a new topic is served
before anybody hears of it. Many are done in slices, with the loop free in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from milena.broker.follower.fetchers import Fetchers
from milena.broker.hosting.config_store import ConfigStore
from milena.broker.hosting.directory_assigner import DirectoryAssigner
from milena.broker.hosting.log_mover import LogMover
from milena.broker.replica.description import describe
from milena.broker.replica.expected_followers import ExpectedFollowers
from milena.broker.replica.meters import BrokerMeters
from milena.broker.replica.partition import Partition
from milena.broker.replica.partitions import PartitionSet
from milena.broker.replica.replication import Replication
from milena.broker.waiting.purgatory import Purgatory
from milena.node.metadata.image import Delta, MetadataImage, PartitionImage, TopicImage
from milena.protocol.errors import KafkaError
from milena.protocol.features import DIRECTORY_ASSIGNMENT
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import (
    LOST_DIR,
    OFFSETS_TOPIC,
    RESERVED_DIRECTORIES,
    ZERO_UUID,
    LeaderEpoch,
    NodeId,
)
from milena.protocol.uuids import to_text
from milena.runtime.clock import Clock
from milena.runtime.containment import Containment
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks
from milena.storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from milena.tiered.work.tier_manager import RemoteLogManager

AT_ONCE: Final = 16
"""So many partitions are done within a publication, and in one slice of a longer work."""


class Coordinator(Protocol):
    """Who follows the leadership of an internal topic (``broker.groups``)."""

    def elected(self, index: int, leader_epoch: LeaderEpoch, partition: Partition) -> None: ...

    def resigned(self, index: int) -> None: ...

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None: ...


class Applier:
    """The one who creates, leads, follows and deletes partitions."""

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        partitions: PartitionSet,
        logs: LogManager,
        configs: ConfigStore,
        purgatory: Purgatory,
        meters: BrokerMeters,
        replication: Replication,
        groups: Coordinator,
        assigner: DirectoryAssigner,
        fetchers: Fetchers,
        expected_followers: ExpectedFollowers,
        mover: LogMover,
        tier: RemoteLogManager | None,
        clock: Clock,
        contained: Containment,
    ) -> None:
        self.applied_offset = -1
        """The image is carried out up to here."""
        self.started = False
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._logs = logs
        self._configs = configs
        self._purgatory = purgatory
        self._meters = meters
        self._replication = replication
        self._groups = groups
        self._assigner = assigner
        self._foreign: set[tuple[UUID, UUID]] = set()
        self._fetchers = fetchers
        self._expected_followers = expected_followers
        self._mover = mover
        self._tier = tier
        self._clock = clock
        self._contained = contained
        self._todo: dict[tuple[str, int], None] = {}
        self._led_when_deleted: set[tuple[UUID, int]] = set()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._progressed: Callable[[], None] = lambda: None
        self._log = get_logger("applier")

    def start(self, tasks: Tasks) -> None:
        """The logs are loaded: carry out the whole image, and from now on what changes."""
        self.started = True
        tasks.keep(self._run, name="metadata applier")
        self._set_strays_aside()
        for topic, index, _ in self._image().partitions_of(self._node_id):
            self._todo[topic.name, index] = None
        self._note_progress()

    def on_progress(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` when ``applied_offset`` has moved."""
        self._progressed = tell

    def current_at(self, known_at: float) -> float:
        """When what is carried out was last all that was committed, where the image was so at ``known_at``."""
        return -inf if self._todo else known_at

    async def caught_up(self) -> None:
        """Until everything published so far is carried out."""
        await self._idle.wait()

    def publish(self, delta: Delta) -> None:
        """The image has changed. Before ``start`` there is nothing to do: the whole of it will be read then."""
        if not self.started:
            return
        self._configs.publish(delta)
        if self._tier is not None:
            self._led_when_deleted |= self._led_here(delta)
        for key in self._touched(delta):
            self._todo[key] = None
        if not self._work.is_set() and len(self._todo) <= AT_ONCE:
            self._slice()
        if delta.brokers:
            for partition in list(self._partitions):
                partition.review()
        if delta.deleted_topics:
            self._groups.topics_deleted({topic.id: topic.name for topic in delta.deleted_topics})
        self._note_progress()

    def _led_here(self, delta: Delta) -> set[tuple[UUID, int]]:
        """The partitions that went with their topics while this broker led them. It may hear of that together: it is
        the one to delete what they have in the tier all the same."""
        return {
            (topic.id, index)
            for topic in delta.deleted_topics
            for index, partition in topic.partitions.items()
            if partition.leader == self._node_id and self._partitions.find(topic.name, index) is not None
        }

    def _touched(self, delta: Delta) -> list[tuple[str, int]]:
        """The named partitions that are hosted here, or should be."""
        hosted, image = self._partitions, self._image()
        keys = [(topic.name, index) for topic in delta.deleted_topics for index in topic.partitions]
        keys += [(name, index) for name, indexes in delta.topics.items() for index in sorted(indexes)]
        return [
            (name, index)
            for name, index in keys
            if hosted.find(name, index) is not None or self._is_here(image.partition(name, index))
        ]

    def _is_here(self, partition: PartitionImage | None) -> bool:
        return partition is not None and self._node_id in partition.replicas

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._slice()
            self._note_progress()
            await self._clock.sleep(0)

    def _slice(self) -> None:
        for key in list(self._todo)[:AT_ONCE]:
            del self._todo[key]
            try:
                self._reconcile(*key)
            except Exception as error:
                self._contained.note("role of a partition", error, topic=key[0], partition=key[1])

    def _note_progress(self) -> None:
        if self._todo:
            self._work.set()
            self._idle.clear()
        else:
            self.applied_offset = self._image().offset
            self._work.clear()
            self._idle.set()
            self._progressed()

    def _set_strays_aside(self) -> None:
        """Logs of topics that were deleted, or that were moved away, while this broker was down."""
        image = self._image()
        for log in self._logs:
            topic = image.topics.get(log.topic)
            placed = topic is not None and self._is_here(topic.partitions.get(log.partition))
            if not placed or topic is None or log.topic_id not in (None, topic.id):
                self._logs.set_aside(log)
                future = self._logs.futures.find(log.topic, log.partition)
                if future is not None:
                    self._logs.set_aside(future)

    def take_offline(self, partition: Partition) -> None:
        """The partition's log directory has failed."""
        if partition.topic == OFFSETS_TOPIC and partition.is_leader:
            self._groups.resigned(partition.index)
        self._fetchers.unfollow(partition)
        self._mover.forget(partition)
        if self._tier is not None:
            self._tier.drop(partition)
        partition.take_offline()

    def end(self, partition: Partition, broken: BrokenInvariant) -> None:
        """An invariant of the partition does not hold. It goes offline until this broker is restarted."""
        self._log.error(
            "partition is offline: an invariant does not hold",
            topic=partition.topic,
            partition=partition.index,
            invariant=str(broken),
            **describe(partition),
        )
        self.take_offline(partition)
        self._contained.note("invariant of a partition", broken, topic=partition.topic, partition=partition.index)

    def log_moved(self, partition: Partition) -> None:
        """The partition has another log, in another directory."""
        wanted = self._image().partition(partition.topic, partition.index)
        if wanted is not None:
            self._assign_directory(partition, wanted.directory_of(self._node_id))
        if not partition.is_leader:
            self._fetchers.follow(partition)
        partition.changed()

    # -- one partition

    def _reconcile(self, name: str, index: int) -> None:
        image = self._image()
        topic = image.topics.get(name)
        wanted = topic.partitions.get(index) if topic is not None else None
        hosted = self._partitions.find(name, index)
        if hosted is not None and (topic is None or topic.id != hosted.topic_id or not self._is_here(wanted)):
            self._remove(hosted, topic_is_gone=topic is None)
            hosted = None
        if topic is None or wanted is None or not self._is_here(wanted):
            return
        if hosted is None:
            hosted = self._host(topic, index, wanted)
        self._take_role(hosted, wanted)

    def _host(self, topic: TopicImage, index: int, wanted: PartitionImage) -> Partition:
        meters = self._meters.of(topic.name)
        partition = Partition(topic.name, index, topic.id, self._purgatory, meters, self._replication, self.end)
        directory = wanted.directory_of(self._node_id)
        if self._is_lost(topic, index, wanted):
            self._log.error(
                "partition is offline: its log directory is not here, and nobody else has its records. Put the "
                "directory back; or set unclean.leader.election.enable on the topic and start this broker again, "
                "which gives the records up",
                topic=topic.name,
                partition=index,
                directory=to_text(directory or ZERO_UUID),
            )
            self._partitions.add(partition)
            return partition
        try:
            partition.log = self._logs.get_or_create(
                topic.name,
                index,
                topic.id,
                self._configs.topic(topic.name),
                directory=directory,
                is_new=wanted.leader_epoch == 0 and wanted.partition_epoch == 0,
            )
        except KafkaError as error:
            self._log.error("partition is offline", topic=topic.name, partition=index, reason=error.message)
        self._partitions.add(partition)
        if partition.log is not None:
            self._assign_directory(partition, directory)
            self._mover.resume(partition)
        return partition

    def _is_lost(self, topic: TopicImage, index: int, wanted: PartitionImage) -> bool:
        """The only replica in sync, or the last that led (KIP-966), lay in a directory that this broker does not have
        any more: an empty log made elsewhere must not take its place, and be elected. A broker on new disks alone has
        nothing to wait for."""
        recorded = wanted.directory_of(self._node_id)
        return (
            recorded is not None
            and recorded.int >= RESERVED_DIRECTORIES
            and (wanted.isr or wanted.elr or wanted.last_known_elr) == (self._node_id,)
            and not self._logs.has_directory(recorded)
            and self._logs.found_logs
            and not self._logs.offline_dirs
            and self._logs.get(topic.name, index) is None
            and not self._configs.topic(topic.name).unclean_leader_election_enable
        )

    def _assign_directory(self, partition: Partition, recorded: UUID | None) -> None:
        assert partition.log is not None
        actual = self._logs.directory_id(partition.log)
        if self._image().metadata_version >= DIRECTORY_ASSIGNMENT and actual != recorded and recorded != LOST_DIR:
            if recorded is not None and recorded.int >= RESERVED_DIRECTORIES and not self._logs.has_directory(recorded):
                self._warn_of_foreign(recorded, actual)
            self._assigner.assign(partition.topic_id, partition.index, actual)

    def _warn_of_foreign(self, recorded: UUID, actual: UUID) -> None:
        """Once for each directory: it may hold thousands of replicas."""
        if (recorded, actual) not in self._foreign:
            self._foreign.add((recorded, actual))
            self._log.warning(
                "logs lie in a directory with another id than the metadata says: it is told of this one",
                recorded=to_text(recorded),
                directory=to_text(actual),
            )

    def _take_role(self, partition: Partition, wanted: PartitionImage) -> None:
        if partition.log is None:
            self._fetchers.unfollow(partition)
            partition.note_offline(wanted)
            return
        led_in = partition.leader_epoch if partition.is_leader else None
        if not self._become(partition, wanted):
            return
        if partition.is_leader:
            self._fetchers.unfollow(partition)
            if led_in != partition.leader_epoch:
                self._expected_followers.expect(partition.replicas)
        else:
            self._fetchers.follow(partition)
        if self._tier is not None:
            self._tier.take_up(partition)
        if partition.topic == OFFSETS_TOPIC:
            leads_in = partition.leader_epoch if partition.is_leader else None
            if led_in is not None and leads_in is None:
                self._groups.resigned(partition.index)
            elif leads_in is not None and led_in != leads_in:
                self._groups.elected(partition.index, leads_in, partition)

    def _become(self, partition: Partition, wanted: PartitionImage) -> bool:
        """False if the partition went offline by it."""
        try:
            partition.become(wanted)
        except KafkaError as error:
            self._log.error("role not taken", topic=partition.topic, partition=partition.index, reason=error.message)
        return partition.log is not None

    def _remove(self, partition: Partition, *, topic_is_gone: bool) -> None:
        log = partition.log
        if partition.topic == OFFSETS_TOPIC and partition.is_leader:
            self._groups.resigned(partition.index)
        self._fetchers.unfollow(partition)
        self._mover.cancel(partition)
        if self._tier is not None:
            is_deleted = partition.topic_id not in self._image().topics_by_id
            key = (partition.topic_id, partition.index)
            leads = partition.is_leader or key in self._led_when_deleted
            self._led_when_deleted.discard(key)
            self._tier.drop(partition, erase_remote=is_deleted and leads)
        self._partitions.remove(partition)
        if topic_is_gone:
            self._meters.forget(partition.topic)
        if log is not None:
            self._logs.delete(log)
