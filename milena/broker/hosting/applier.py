"""Makes this broker's partitions match the metadata image (Kafka's ``ReplicaManager.applyDelta``).

A delta only says which partitions have changed. Each of them is compared as it is in the current image with what is
hosted, so several deltas may be applied late, together, or twice. A few partitions are handled within ``publish``, so
that a new topic is served before any client learns of it. Many are handled in slices, and other tasks run in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from uuid import UUID

from milena.broker.follower.fetchers import Fetchers
from milena.broker.hosting.config_store import ConfigStore
from milena.broker.hosting.directory_assigner import DirectoryAssigner
from milena.broker.hosting.log_mover import LogMover
from milena.broker.hosting.lost_directories import correct_directory, is_elsewhere, is_last_in_sync, warn_of_new_disks
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
from milena.protocol.types import LOST_DIR, OFFSETS_TOPIC, RESERVED_DIRECTORIES, ZERO_UUID, LeaderEpoch, NodeId
from milena.protocol.uuids import to_text
from milena.runtime.clock import Clock
from milena.runtime.containment import Containment
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks
from milena.storage.log.broken_log import BrokenLog
from milena.storage.log.context import NamedLog
from milena.storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from milena.tiered.work.tier_manager import RemoteLogManager

Arg = TypeVar("Arg")
PARTITIONS_PER_ITERATION: Final = 16
"""Partitions that are handled within ``publish``, and in each iteration of the loop for a longer list."""


class Coordinator(Protocol):
    """Is told which partitions of an internal topic this broker leads (``broker.groups``)."""

    def elected(self, index: int, leader_epoch: LeaderEpoch, partition: Partition) -> None: ...

    def resigned(self, index: int) -> None: ...

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None: ...


class Applier:
    """Creates, leads, follows and deletes partitions."""

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
        """The image has been applied up to this offset."""
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
        logs.set_ended_listener(self.log_ended)

    def start(self, tasks: Tasks) -> None:
        """The logs are loaded: apply the whole image now, and every delta from now on."""
        self.started = True
        tasks.keep(self._run, name="metadata applier")
        self._set_strays_aside()
        warn_of_new_disks(self._image(), self._node_id, self._logs, self._log)
        for topic, index, _ in self._image().partitions_of(self._node_id):
            self._todo[topic.name, index] = None
        self._note_progress()

    def on_progress(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` whenever ``applied_offset`` has moved."""
        self._progressed = tell

    def current_at(self, known_at: float) -> float:
        """When the applied state was last the committed one, given that the image was so at ``known_at``."""
        return -inf if self._todo else known_at

    async def caught_up(self) -> None:
        """Wait until everything published so far is applied."""
        await self._idle.wait()

    def publish(self, delta: Delta) -> None:
        """The image has changed. Before ``start`` nothing needs to be done: it applies the whole image."""
        if not self.started:
            return
        self._carry_out("configuration", self._configs.publish, delta)
        if self._tier is not None:
            self._led_when_deleted |= self._led_here(delta)
        for key in self._touched(delta):
            self._todo[key] = None
        if not self._work.is_set() and len(self._todo) <= PARTITIONS_PER_ITERATION:
            self._slice()
        if delta.brokers:
            for partition in list(self._partitions):
                self._carry_out("review of a partition", Partition.review, partition)
        if delta.deleted_topics:
            deleted = {topic.id: topic.name for topic in delta.deleted_topics}
            self._carry_out("offsets of deleted topics", self._groups.topics_deleted, deleted)
        self._note_progress()

    def _carry_out(self, place: str, work: Callable[[Arg], None], argument: Arg) -> None:
        """One part of a publication. The others have their turn if it fails."""
        try:
            work(argument)
        except Exception as error:
            self._contained.note(place, error)

    def _led_here(self, delta: Delta) -> set[tuple[UUID, int]]:
        """Partitions of deleted topics that this broker led. Leadership and deletion may arrive in one delta; it is
        this broker that deletes their segments in the tier in any case."""
        return {
            (topic.id, index)
            for topic in delta.deleted_topics
            for index, partition in topic.partitions.items()
            if partition.leader == self._node_id and self._partitions.find(topic.name, index) is not None
        }

    def _touched(self, delta: Delta) -> list[tuple[str, int]]:
        """The partitions in the delta that this broker hosts, or should host."""
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
        for key in list(self._todo)[:PARTITIONS_PER_ITERATION]:
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
        """Set aside logs of topics that were deleted, or of replicas that were moved away, while this broker was
        down."""
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
        if partition.topic == OFFSETS_TOPIC:  # also if it has just ceased to lead: its groups may not have been told
            self._groups.resigned(partition.index)
        self._fetchers.unfollow(partition)
        self._mover.forget(partition)
        if self._tier is not None:
            self._tier.drop(partition)
        partition.take_offline()

    def end(self, partition: Partition, broken: BrokenInvariant) -> None:
        """An invariant of the partition is broken. It stays offline until this broker is restarted."""
        if not isinstance(broken, BrokenLog):  # ``log_ended`` has told of that
            told = {"topic": partition.topic, "partition": partition.index}
            state = describe(partition)
            self._log.error("partition is offline: an invariant does not hold", **told, invariant=str(broken), **state)
            self._contained.note("invariant of a partition", broken, **told)
        self._give_up(partition)

    def log_ended(self, log: NamedLog, error: KafkaError) -> None:
        """A log is of no use: one of its invariants does not hold, or it is damaged."""
        partition = self._partitions.of_log(log)
        if partition is None:
            return
        self._give_up(partition)
        if isinstance(error, BrokenLog):
            self._contained.note("invariant of a log", error, topic=partition.topic, partition=partition.index)

    def _give_up(self, partition: Partition) -> None:
        """The partition goes offline until this broker is restarted, and the controller hears of it as it would of a
        log directory that failed (KIP-858): another replica leads from then on."""
        self.take_offline(partition)
        self._report(partition, LOST_DIR)

    def _report(self, partition: Partition, directory: UUID | None) -> None:
        if directory is not None and self._image().metadata_version >= DIRECTORY_ASSIGNMENT:
            self._assigner.assign(partition.topic_id, partition.index, directory)

    def log_moved(self, partition: Partition) -> None:
        """The partition's log is now the one in another directory."""
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
        """Whether the replica was the only one in the ISR, or the last leader (KIP-966), and its directory is missing
        on this broker, or it was given up. An empty log in another directory must not take its place and be elected. If
        this broker found no logs at all, its disks are new, and there is nothing to wait for."""
        return (
            is_elsewhere(wanted, self._node_id, self._logs)
            and is_last_in_sync(wanted, self._node_id)
            and self._logs.found_logs
            and not self._logs.offline_dirs
            and self._logs.get(topic.name, index) is None
            and not self._configs.topic(topic.name).unclean_leader_election_enable
        )

    def _assign_directory(self, partition: Partition, recorded: UUID | None) -> None:
        assert partition.log is not None
        actual = self._logs.directory_id(partition.log)
        if self._image().metadata_version >= DIRECTORY_ASSIGNMENT and actual != recorded:
            if recorded is not None and recorded.int >= RESERVED_DIRECTORIES and not self._logs.has_directory(recorded):
                self._warn_of_foreign(recorded, actual)
            self._assigner.assign(partition.topic_id, partition.index, actual)

    def _warn_of_foreign(self, recorded: UUID, actual: UUID) -> None:
        """Warn once for each directory, which may hold thousands of replicas."""
        if (recorded, actual) not in self._foreign:
            self._foreign.add((recorded, actual))
            self._log.warning(
                "logs lie in a directory with another id than the metadata says: it is told of this one",
                recorded=to_text(recorded),
                directory=to_text(actual),
            )

    def _take_role(self, partition: Partition, wanted: PartitionImage) -> None:
        self._report(partition, correct_directory(partition, wanted.directory_of(self._node_id), self._logs))
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
        """Apply leadership, replicas and ISR. Returns False if that took the partition offline."""
        try:
            partition.become(wanted)
        except KafkaError as error:
            self._log.error("role not taken", topic=partition.topic, partition=partition.index, reason=error.message)
        return partition.log is not None

    def _remove(self, partition: Partition, *, topic_is_gone: bool) -> None:
        log = partition.log or self._logs.get(partition.topic, partition.index)  # which may have been given up
        if partition.topic == OFFSETS_TOPIC:
            self._groups.resigned(partition.index)
        self._fetchers.unfollow(partition)
        self._mover.cancel(partition)
        if self._tier is not None:
            is_deleted = partition.topic_id not in self._image().topics_by_id
            key = (partition.topic_id, partition.index)
            leads = partition.is_leader or key in self._led_when_deleted
            self._led_when_deleted.discard(key)
            self._tier.drop(partition, erase_remote=is_deleted, others_first=not leads)
        self._partitions.remove(partition)
        if topic_is_gone:
            self._meters.forget(partition.topic)
        if log is not None:
            self._logs.delete(log)
