"""The group coordinator of this broker, for the groups of the ``__consumer_offsets`` partitions that it leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from uuid import UUID

from milena.broker.coordinators.coordinator import Coordinator
from milena.broker.coordinators.partition_log import PartitionLog
from milena.broker.groups.deleted_topic_offsets import OffsetCleaner, TopicsView
from milena.broker.groups.group import Group
from milena.broker.groups.loading import load
from milena.broker.groups.model import GroupSettings
from milena.broker.groups.shard import Shard
from milena.broker.replica.partition import Partition
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.control_records import EndMarkerRequest
from milena.protocol.types import LeaderEpoch
from milena.runtime.context import Runtime
from milena.runtime.tasks import Tasks


class GroupCoordinator(Coordinator[Shard]):
    """The shards of one broker. If this broker stays the leader of a partition in the next epoch, the groups are kept,
    as in Kafka: waiting requests keep waiting, and no session is extended."""

    SUBJECT = "group"
    COUNTED = "groups"
    KEEPS_SHARDS = True

    def __init__(
        self,
        runtime: Runtime,
        tasks: Tasks,
        *,
        turn: Callable[[], Awaitable[None]],
        partition_count: Callable[[], int],
        topics: TopicsView,
        settings: GroupSettings,
        commit_timeout_ms: int,
        load_bytes: int,
        retention_ms: int,
        check_interval_ms: int,
    ) -> None:
        """``turn`` as in ``Coordinator``."""
        super().__init__(
            runtime,
            tasks,
            turn=turn,
            partition_count=partition_count,
            commit_timeout_ms=commit_timeout_ms,
            load_bytes=load_bytes,
        )
        self._topics = topics
        self.settings = settings
        self._retention_ms = retention_ms
        self._check_interval_ms = check_interval_ms
        self._cleaners: dict[int, OffsetCleaner] = {}
        """Those of the partitions that this broker leads."""

    def start(self) -> None:
        self._tasks.keep(self._expire_offsets, name="group-offset-expiry")

    # -- leadership

    def _new_shard(self, index: int, leader_epoch: LeaderEpoch, log: PartitionLog) -> Shard:
        clock = self._runtime.clock
        shard = Shard(log, clock=clock, random=self._runtime.random, settings=self.settings)
        failed = partial(self._cleaning_failed, index)
        self._cleaners[index] = OffsetCleaner(shard, self._topics, self._tasks, clock, self._turn, failed)
        return shard

    def _load(self, log: PartitionLog, shard: Shard) -> Cooperative[None]:
        return load(log, shard)

    def _loaded(self, index: int) -> None:
        self._cleaners[index].loaded()

    def _closed(self, index: int) -> None:
        del self._cleaners[index]

    def _cleaning_failed(self, partition: int, error: Exception) -> None:
        self._runtime.contained.note("offsets of deleted topics", error, partition=partition)

    # -- look-ups

    def shard(self, group_id: str) -> Shard:
        """The shard of a group. Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard_for(group_id)

    def shard_for_offsets(self, group_id: str) -> Shard:
        """Like ``shard``, but allows the empty group id, under which old clients without a group commit offsets."""
        return self._shard_for(group_id)

    def offsets_partition(self, group_id: str) -> Partition:
        """The partition of ``__consumer_offsets`` that a group hashes to, which may still be loading. Raises KafkaError
        NOT_COORDINATOR."""
        led = self._led.get(self.partition_for(group_id))
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return led.log.partition

    def complete_transaction(self, index: int, marker: EndMarkerRequest, done: Callable[[ErrorCode], None]) -> None:
        """Append a marker to partition ``index`` of ``__consumer_offsets``, and apply or drop the offsets that its
        transaction has sent to groups (GroupCoordinatorService.completeTransaction).

        ``done`` is called with the error code of the partition for WriteTxnMarkers: NONE once the marker is committed;
        NOT_LEADER_OR_FOLLOWER if this broker does not lead the partition or is still loading it."""
        led = self._led.get(index)
        if led is None or not led.loaded:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            led.shard.end_transaction(marker, done)

    def groups(self) -> list[Group]:
        """All groups of the partitions that this broker leads, including those that are still loading."""
        return [group for shard in self.led() for group in shard.groups.values()]

    # -- removing offsets

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Remove the offsets of these topics (names by id). Offsets of a loading partition are removed once it has
        loaded."""
        for cleaner in self._cleaners.values():
            cleaner.topics_deleted(topics)

    async def _expire_offsets(self) -> None:
        while True:
            await self._runtime.clock.sleep(self._check_interval_ms / 1000)
            for led in list(self._led.values()):
                if led.loaded:
                    for _ in led.shard.expire_offsets(self._retention_ms):
                        await self._runtime.clock.sleep(0)
