"""The group coordinator of this broker, for the groups of the ``__consumer_offsets`` partitions that it leads.

When this broker becomes the leader of a partition, it loads the groups from the partition's log; when it resigns, it
drops them. Requests are answered with COORDINATOR_LOAD_IN_PROGRESS while a partition is loading, and with
NOT_COORDINATOR if this broker does not lead it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from milena.broker.groups.deleted_topic_offsets import OffsetCleaner, TopicsView
from milena.broker.groups.group import Group
from milena.broker.groups.loading import load
from milena.broker.groups.model import GroupSettings
from milena.broker.groups.offsets_log import PartitionOffsetsLog
from milena.broker.groups.shard import Shard
from milena.broker.replica.partition import Partition
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.records.control_records import EndMarkerRequest
from milena.protocol.records.hashing import partition_for_group
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import LeaderEpoch
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks


@dataclass(slots=True)
class _LedPartition:
    """A partition of ``__consumer_offsets`` that this broker leads."""

    leader_epoch: LeaderEpoch
    shard: Shard
    offsets_log: PartitionOffsetsLog
    cleaner: OffsetCleaner
    loaded: bool = False


class GroupCoordinator:
    """The shards of one broker."""

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
        retention_ms: int,
        check_interval_ms: int,
    ) -> None:
        """``turn`` (``Scheduler.turn``) is awaited before each step of long work: it returns for one waiting task per
        iteration of the event loop, however many partitions load at the same time."""
        self._runtime = runtime
        self._tasks = tasks
        self._turn = turn
        self._partition_count = partition_count
        self._topics = topics
        self.settings = settings
        self._commit_timeout_ms = commit_timeout_ms
        self._retention_ms = retention_ms
        self._check_interval_ms = check_interval_ms
        self._led: dict[int, _LedPartition] = {}

    def start(self) -> None:
        self._tasks.keep(self._expire_offsets, name="group-offset-expiry")

    # -- leadership

    def elected(self, index: int, leader_epoch: LeaderEpoch, partition: Partition) -> None:
        """Load the groups of partition ``index`` of ``__consumer_offsets``, which this broker leads. If this broker
        led it in the epoch before, the groups are kept, as in Kafka: waiting requests keep waiting, and no session is
        extended."""
        known = self._led.get(index)
        if known is not None and known.leader_epoch == leader_epoch:
            return
        if known is not None and known.loaded and known.leader_epoch + 1 == leader_epoch:
            known.leader_epoch = leader_epoch
            known.offsets_log.set_leader_epoch(leader_epoch)
            return
        self.resigned(index)
        runtime = self._runtime
        offsets_log = PartitionOffsetsLog(partition, leader_epoch, self._commit_timeout_ms)
        shard = Shard(offsets_log, clock=runtime.clock, random=runtime.random, settings=self.settings)
        failed = partial(self._cleaning_failed, index)
        cleaner = OffsetCleaner(shard, self._topics, self._tasks, runtime.clock, self._turn, failed)
        led = _LedPartition(leader_epoch, shard, offsets_log, cleaner)
        self._led[index] = led
        self._tasks.attempt(self._load(index, led), name=f"group-load-{index}")

    def resigned(self, index: int) -> None:
        """Close the shard of partition ``index``: this broker no longer leads it."""
        led = self._led.pop(index, None)
        if led is not None:
            led.shard.close()

    def _cleaning_failed(self, partition: int, error: Exception) -> None:
        self._runtime.contained.note("offsets of deleted topics", error, partition=partition)

    async def _load(self, partition: int, led: _LedPartition) -> None:
        try:
            if not await self._finish(partition, led, load(led.offsets_log, led.shard)):
                return
        except Exception as error:
            if not isinstance(error, (KafkaError, CorruptBatch, DecodeError)):
                self._runtime.contained.note("load of groups", error, partition=partition)
            get_logger("groups").error(
                "failed to load groups", partition=partition, leader_epoch=led.leader_epoch, reason=str(error)
            )
            if self._led.get(partition) is led:
                self.resigned(partition)
            return
        led.loaded = True
        led.cleaner.loaded()
        if led.shard.groups:
            get_logger("groups").info(
                "groups loaded", partition=partition, leader_epoch=led.leader_epoch, groups=len(led.shard.groups)
            )
        await self._finish(partition, led, led.shard.begin_sessions())

    async def _finish(self, partition: int, led: _LedPartition, steps: Cooperative[None]) -> bool:
        """Run ``steps``, one for each turn. Returns False if this leadership ended before the last step."""
        while True:
            await self._turn()
            if self._led.get(partition) is led and not led.offsets_log.leads:
                self.resigned(partition)  # the leader epoch changed, and no call has reported it
            if self._led.get(partition) is not led:
                return False
            try:
                next(steps)
            except StopIteration:
                return True

    # -- look-ups

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` for a group."""
        return partition_for_group(group_id, self._partition_count())

    def shard(self, group_id: str) -> Shard:
        """The shard of a group. Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard_at(self.partition_for(group_id))

    def shard_for_offsets(self, group_id: str) -> Shard:
        """Like ``shard``, but allows the empty group id, under which old clients without a group commit offsets."""
        return self._shard_at(self.partition_for(group_id))

    def _shard_at(self, partition: int) -> Shard:
        led = self._led.get(partition)
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not led.loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led.shard

    def offsets_partition(self, group_id: str) -> Partition:
        """The partition of ``__consumer_offsets`` that a group hashes to, which may still be loading. Raises KafkaError
        NOT_COORDINATOR."""
        led = self._led.get(self.partition_for(group_id))
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return led.offsets_log.partition

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

    def shards(self) -> Iterator[Shard]:
        """All loaded shards. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS if one is still loading."""
        if any(not led.loaded for led in self._led.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return iter([led.shard for led in self._led.values()])

    def groups(self) -> list[Group]:
        """All groups of the partitions that this broker leads, including those that are still loading."""
        return [group for led in self._led.values() for group in led.shard.groups.values()]

    # -- removing offsets

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Remove the offsets of these topics (names by id). Offsets of a loading partition are removed once it has
        loaded."""
        for led in self._led.values():
            led.cleaner.topics_deleted(topics)

    async def _expire_offsets(self) -> None:
        while True:
            await self._runtime.clock.sleep(self._check_interval_ms / 1000)
            for led in list(self._led.values()):
                if led.loaded:
                    for _ in led.shard.expire_offsets(self._retention_ms):
                        await self._runtime.clock.sleep(0)
