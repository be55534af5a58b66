"""Makes this broker's partitions match the metadata image (Kafka's ``ReplicaManager.applyDelta``).

Of a delta only the names of changed partitions are used: each partition's state is compared with the current image, so
several deltas may be applied late, together, or twice. A few partitions are applied within ``publish``, so that a new
topic is served before any client sees it in metadata. Many are applied in several iterations of the event loop, while
clients see them in metadata already; until then their requests get NOT_LEADER_OR_FOLLOWER, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from milena.protocol.types import LOST_DIR, RESERVED_DIRECTORIES, ZERO_UUID, LeaderEpoch, NodeId
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
"""The maximum number of partitions that are applied within ``publish``, and in each iteration of the loop."""


class Coordinator(Protocol):
    """The coordinator of an internal topic, which follows the leaderships of its partitions (``broker.groups`` and
    ``broker.transactions``)."""

    def elected(self, index: int, leader_epoch: LeaderEpoch, partition: Partition) -> None: ...

    def resigned(self, index: int) -> None: ...


class TopicOffsets(Protocol):
    """The committed offsets of all topics (``broker.groups``)."""

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None: ...


@dataclass(frozen=True, slots=True)
class PartitionServices:
    """What this broker's partitions are created from, and the set that they are in."""

    partitions: PartitionSet
    logs: LogManager
    configs: ConfigStore
    purgatory: Purgatory
    meters: BrokerMeters
    replication: Replication


@dataclass(frozen=True, slots=True)
class RoleServices:
    """What depends on the roles of this broker's partitions: leader, follower, offline or removed."""

    coordinators: Mapping[str, Coordinator]
    """By topic."""
    offsets: TopicOffsets
    fetchers: Fetchers
    expected_followers: ExpectedFollowers
    mover: LogMover
    tier: RemoteLogManager | None
    """None without a remote tier."""


class Applier:
    """Creates, leads, follows and deletes partitions."""

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        services: PartitionServices,
        roles: RoleServices,
        assigner: DirectoryAssigner,
        clock: Clock,
        contained: Containment,
    ) -> None:
        self.applied_offset = -1
        """The offset of the last metadata record that has been applied; -1 for none."""
        self.started = False
        self._node_id = node_id
        self._image = image
        self._partitions = services.partitions
        self._logs = services.logs
        self._configs = services.configs
        self._purgatory = services.purgatory
        self._meters = services.meters
        self._replication = services.replication
        self._coordinators = roles.coordinators
        self._offsets = roles.offsets
        self._assigner = assigner
        self._warned_directories: set[tuple[UUID, UUID]] = set()
        self._fetchers = roles.fetchers
        self._expected_followers = roles.expected_followers
        self._mover = roles.mover
        self._tier = roles.tier
        self._clock = clock
        self._contained = contained
        self._pending: dict[tuple[str, int], None] = {}
        self._led_when_deleted: set[tuple[UUID, int]] = set()
        self._has_pending = asyncio.Event()
        self._idle = asyncio.Event()
        self._on_progress: Callable[[], None] = lambda: None
        self._log = get_logger("applier")
        self._logs.set_ended_listener(self.log_failed)

    def start(self, tasks: Tasks) -> None:
        """Start applying the whole image, and every delta from now on. The logs must be loaded."""
        self.started = True
        tasks.keep(self._run, name="metadata applier")
        self._set_aside_strays()
        warn_of_new_disks(self._image(), self._node_id, self._logs, self._log)
        for topic, index, _ in self._image().partitions_of(self._node_id):
            self._pending[topic.name, index] = None
        self._update_progress()

    @property
    def known_offset(self) -> int:
        """The offset of the last metadata record in the image, which may not be applied yet; -1 for none."""
        return self._image().offset if self.started else -1

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever ``applied_offset`` or ``known_offset`` may have risen."""
        self._on_progress = callback

    def current_at(self, known_at: float) -> float:
        """When everything that was committed had last been applied, given that the image contained it at
        ``known_at``."""
        return -inf if self._pending else known_at

    async def wait_applied(self) -> None:
        """Wait until everything published so far is applied."""
        await self._idle.wait()

    def publish(self, delta: Delta) -> None:
        """Apply a change of the image. Does nothing before ``start``, which applies the whole image."""
        if not self.started:
            return
        self._apply_to("configuration", self._configs.publish, delta)
        if self._tier is not None:
            self._led_when_deleted |= self._led_partitions(delta)
        for key in self._affected_partitions(delta):
            self._pending[key] = None
        if not self._has_pending.is_set() and len(self._pending) <= PARTITIONS_PER_ITERATION:
            self._reconcile_some()
        if delta.brokers:
            for partition in list(self._partitions):
                self._apply_to("ISR check", Partition.check_isr, partition)
        if delta.deleted_topics:
            deleted = {topic.id: topic.name for topic in delta.deleted_topics}
            self._apply_to("offsets of deleted topics", self._offsets.topics_deleted, deleted)
        self._update_progress()

    def _apply_to(self, subject: str, work: Callable[[Arg], None], argument: Arg) -> None:
        """Call ``work``, one part of a publication. An unexpected error is logged, so that the other parts run."""
        try:
            work(argument)
        except Exception as error:
            self._contained.note(subject, error)

    def _led_partitions(self, delta: Delta) -> set[tuple[UUID, int]]:
        """The partitions of deleted topics that this broker led, even if the leadership arrived in the same delta: this
        broker deletes their segments in the tier."""
        return {
            (topic.id, index)
            for topic in delta.deleted_topics
            for index, partition in topic.partitions.items()
            if partition.leader == self._node_id and self._partitions.find(topic.name, index) is not None
        }

    def _affected_partitions(self, delta: Delta) -> list[tuple[str, int]]:
        """The partitions of the delta that this broker hosts or is a replica of."""
        hosted, image = self._partitions, self._image()
        keys = [(topic.name, index) for topic in delta.deleted_topics for index in topic.partitions]
        keys += [(name, index) for name, indexes in delta.topics.items() for index in sorted(indexes)]
        return [
            (name, index)
            for name, index in keys
            if hosted.find(name, index) is not None or self._is_replica(image.partition(name, index))
        ]

    def _is_replica(self, partition: PartitionImage | None) -> bool:
        return partition is not None and self._node_id in partition.replicas

    async def _run(self) -> None:
        while True:
            await self._has_pending.wait()
            self._reconcile_some()
            self._update_progress()
            await self._clock.sleep(0)

    def _reconcile_some(self) -> None:
        for key in list(self._pending)[:PARTITIONS_PER_ITERATION]:
            del self._pending[key]
            try:
                self._reconcile(*key)
            except Exception as error:
                self._contained.note("partition assignment", error, topic=key[0], partition=key[1])

    def _update_progress(self) -> None:
        if self._pending:
            self._has_pending.set()
            self._idle.clear()
        else:
            self.applied_offset = self._image().offset
            self._has_pending.clear()
            self._idle.set()
        self._on_progress()

    def _set_aside_strays(self) -> None:
        """Set aside logs of topics that were deleted, or of replicas that were moved away, while this broker was
        down."""
        image = self._image()
        for log in self._logs:
            topic = image.topics.get(log.topic)
            is_assigned = topic is not None and self._is_replica(topic.partitions.get(log.partition))
            if not is_assigned or topic is None or log.topic_id not in (None, topic.id):
                self._logs.set_aside(log)
                future = self._logs.futures.find(log.topic, log.partition)
                if future is not None:
                    self._logs.set_aside(future)

    def take_offline(self, partition: Partition) -> None:
        """Take a partition offline whose log directory has failed."""
        # Also if the partition is not led any more: the coordinator may not have been notified of that.
        self._resign(partition)
        self._fetchers.unfollow(partition)
        self._mover.stop_tracking(partition)
        if self._tier is not None:
            self._tier.drop(partition)
        partition.take_offline()

    def fail(self, partition: Partition, broken: BrokenInvariant) -> None:
        """Take a partition offline until this broker restarts, because one of its invariants is broken."""
        if not isinstance(broken, BrokenLog):  # ``log_failed`` has logged that
            labels = {"topic": partition.topic, "partition": partition.index}
            state = describe(partition)
            self._log.error("partition is offline: invariant broken", **labels, invariant=str(broken), **state)
            self._contained.note("partition invariant", broken, **labels)
        self._fail_partition(partition)

    def log_failed(self, log: NamedLog, error: KafkaError) -> None:
        """Take the partition of ``log`` offline: the log is damaged, or one of its invariants is broken."""
        partition = self._partitions.of_log(log)
        if partition is None:
            return
        self._fail_partition(partition)
        if isinstance(error, BrokenLog):
            self._contained.note("log invariant", error, topic=partition.topic, partition=partition.index)

    def _fail_partition(self, partition: Partition) -> None:
        """Take a partition offline until this broker restarts, and report it to the controller like a replica in a
        failed log directory (KIP-858), so that another replica is elected."""
        self.take_offline(partition)
        self._report_directory(partition, LOST_DIR)

    def _report_directory(self, partition: Partition, directory: UUID | None) -> None:
        if directory is not None and self._image().metadata_version >= DIRECTORY_ASSIGNMENT:
            self._assigner.assign(partition.topic_id, partition.index, directory)

    def log_moved(self, partition: Partition) -> None:
        """Continue with a log that was moved to another directory."""
        assignment = self._image().partition(partition.topic, partition.index)
        if assignment is not None:
            self._assign_directory(partition, assignment.directory_of(self._node_id))
        if not partition.is_leader:
            self._fetchers.follow(partition)
        partition.changed()

    # -- one partition

    def _reconcile(self, name: str, index: int) -> None:
        """Create, change or remove one partition as in the current image."""
        image = self._image()
        topic = image.topics.get(name)
        assignment = topic.partitions.get(index) if topic is not None else None
        hosted = self._partitions.find(name, index)
        if hosted is not None and (topic is None or topic.id != hosted.topic_id or not self._is_replica(assignment)):
            self._remove(hosted, topic_deleted=topic is None)
            hosted = None
        if topic is None or assignment is None or not self._is_replica(assignment):
            return
        if hosted is None:
            hosted = self._create_partition(topic, index, assignment)
        self._apply_assignment(hosted, assignment)

    def _create_partition(self, topic: TopicImage, index: int, assignment: PartitionImage) -> Partition:
        meters = self._meters.of(topic.name)
        partition = Partition(topic.name, index, topic.id, self._purgatory, meters, self._replication, self.fail)
        directory = assignment.directory_of(self._node_id)
        if self._is_lost(topic, index, assignment):
            self._log.error(
                "partition is offline: its log directory is missing, and no other replica is in sync. Restore the "
                "directory; or, to lose its records, set unclean.leader.election.enable on the topic and restart "
                "this broker",
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
                is_new=assignment.leader_epoch == 0 and assignment.partition_epoch == 0,
            )
        except KafkaError as error:
            # The partition exists without a log, so that requests get KAFKA_STORAGE_ERROR.
            self._log.error("partition is offline", topic=topic.name, partition=index, reason=error.message)
        self._partitions.add(partition)
        if partition.log is not None:
            self._assign_directory(partition, directory)
            self._mover.resume(partition)
        return partition

    def _is_lost(self, topic: TopicImage, index: int, assignment: PartitionImage) -> bool:
        """Whether the replica was the only one in the ISR, or the last leader (KIP-966), and its directory is missing
        or it has failed. Such a replica stays offline: a new empty log must not be elected. If this broker found no
        logs at all, its disks are new, and an empty log is created."""
        return (
            is_elsewhere(assignment, self._node_id, self._logs)
            and is_last_in_sync(assignment, self._node_id)
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
                self._warn_of_foreign_directory(recorded, actual)
            self._assigner.assign(partition.topic_id, partition.index, actual)

    def _warn_of_foreign_directory(self, recorded: UUID, actual: UUID) -> None:
        """Log once per directory, which may have thousands of replicas."""
        if (recorded, actual) not in self._warned_directories:
            self._warned_directories.add((recorded, actual))
            self._log.warning(
                "log directory id differs from the metadata, reporting the actual id",
                recorded=to_text(recorded),
                directory=to_text(actual),
            )

    def _apply_assignment(self, partition: Partition, assignment: PartitionImage) -> None:
        self._report_directory(
            partition, correct_directory(partition, assignment.directory_of(self._node_id), self._logs)
        )
        if partition.log is None:
            self._fetchers.unfollow(partition)
            partition.update_offline(assignment)
            return
        # The epochs in which this replica led before and leads now, None if it did or does not.
        led_in = partition.leader_epoch if partition.is_leader else None
        if not self._become(partition, assignment):
            return
        if partition.is_leader:
            self._fetchers.unfollow(partition)
            if led_in != partition.leader_epoch:
                self._expected_followers.expect(partition.replicas)
        else:
            self._fetchers.follow(partition)
        if self._tier is not None:
            self._tier.take_up(partition)
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            leads_in = partition.leader_epoch if partition.is_leader else None
            if led_in is not None and leads_in is None:
                coordinator.resigned(partition.index)
            elif leads_in is not None and led_in != leads_in:
                coordinator.elected(partition.index, leads_in, partition)

    def _resign(self, partition: Partition) -> None:
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.resigned(partition.index)

    def _become(self, partition: Partition, assignment: PartitionImage) -> bool:
        """Apply leadership, replicas and ISR. Returns False if the partition is offline then."""
        try:
            partition.become(assignment)
        except KafkaError as error:
            self._log.error(
                "partition assignment not applied",
                topic=partition.topic,
                partition=partition.index,
                reason=error.message,
            )
        return partition.log is not None

    def _remove(self, partition: Partition, *, topic_deleted: bool) -> None:
        log = partition.log or self._logs.get(partition.topic, partition.index)  # a failed partition has a log on disk
        self._resign(partition)
        self._fetchers.unfollow(partition)
        self._mover.cancel(partition)
        if self._tier is not None:
            is_deleted = partition.topic_id not in self._image().topics_by_id
            key = (partition.topic_id, partition.index)
            leads = partition.is_leader or key in self._led_when_deleted
            self._led_when_deleted.discard(key)
            self._tier.drop(partition, erase_remote=is_deleted, others_first=not leads)
        self._partitions.remove(partition)
        if topic_deleted:
            self._meters.forget(partition.topic)
        if log is not None:
            self._logs.delete(log)
