"""The base of a broker's coordinators: the partitions of their topic that this broker leads (Kafka's
``CoordinatorRuntime``).

When this broker becomes the leader of a partition, it loads a shard from the partition's log; when it resigns, it drops
the shard. Requests are answered with COORDINATOR_LOAD_IN_PROGRESS while a partition is loading, and with
NOT_COORDINATOR if this broker does not lead it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from milena.broker.coordinators.load_times import LoadTimes
from milena.broker.coordinators.partition_log import PartitionLog
from milena.broker.replica.partition import Partition
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.records.hashing import partition_for_group
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import LeaderEpoch
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks


class CoordinatorShard(Protocol):
    """What a coordinator has in memory of one partition, during one leadership of it."""

    @property
    def size(self) -> int:
        """The number of its groups or transactional ids."""
        ...

    def begin(self) -> Cooperative[None]:
        """Continue what was loaded: sessions, timeouts."""
        ...

    def close(self) -> None:
        """End this leadership: waiting requests get NOT_COORDINATOR, later writes are refused."""
        ...


S = TypeVar("S", bound=CoordinatorShard)


@dataclass(slots=True, eq=False)
class LedPartition(Generic[S]):
    """A partition of the coordinator's topic that this broker leads."""

    index: int
    leader_epoch: LeaderEpoch
    log: PartitionLog
    shard: S
    loaded: bool = False


class Coordinator(ABC, Generic[S]):
    """The shards of one broker."""

    SUBJECT: ClassVar[str]
    """In names of tasks and log events: ``group``, ``transaction``."""
    COUNTED: ClassVar[str]
    """What ``CoordinatorShard.size`` counts."""
    KEEPS_SHARDS: ClassVar[bool]
    """Whether a shard continues in the next leader epoch if this broker stays the leader."""

    def __init__(
        self,
        runtime: Runtime,
        tasks: Tasks,
        *,
        turn: Callable[[], Awaitable[None]],
        partition_count: Callable[[], int],
        commit_timeout_ms: int,
        load_bytes: int,
    ) -> None:
        """``turn`` (``Scheduler.turn``) is awaited before each step of long work: it returns for one waiting task per
        iteration of the event loop, however many partitions load at the same time. ``partition_count``: that of the
        topic. ``commit_timeout_ms``: how long a write may take until it is committed. ``load_bytes``: how much of a log
        is read at once while loading."""
        self._runtime = runtime
        self._tasks = tasks
        self._turn = turn
        self._partition_count = partition_count
        self._commit_timeout_ms = commit_timeout_ms
        self._load_bytes = load_bytes
        self._loading = asyncio.Lock()
        """One partition is loaded at a time, as in Kafka: each has a buffer of ``load_bytes``."""
        self.loads = LoadTimes(runtime.clock)
        self._led: dict[int, LedPartition[S]] = {}
        self._log = get_logger(f"{self.SUBJECT}s")

    @abstractmethod
    def _new_shard(self, index: int, leader_epoch: LeaderEpoch, log: PartitionLog) -> S:
        """Return an empty shard of partition ``index``."""

    @abstractmethod
    def _load(self, log: PartitionLog, shard: S) -> Cooperative[None]:
        """Load a shard from its log. All of it is added in the last step. Raises KafkaError, CorruptBatch,
        DecodeError."""

    def _loaded(self, index: int) -> None:
        """The shard of partition ``index`` is loaded."""

    def _closed(self, index: int) -> None:
        """The shard of partition ``index`` was closed."""

    # -- leadership

    def elected(self, index: int, leader_epoch: LeaderEpoch, partition: Partition) -> None:
        """Load the shard of partition ``index``, which this broker leads in ``leader_epoch``."""
        known = self._led.get(index)
        if known is not None and known.leader_epoch == leader_epoch:
            return
        if self.KEEPS_SHARDS and known is not None and known.loaded and known.leader_epoch + 1 == leader_epoch:
            known.leader_epoch = leader_epoch
            known.log.set_leader_epoch(leader_epoch)
            return
        self.resigned(index)
        log = PartitionLog(
            partition, leader_epoch, commit_timeout_ms=self._commit_timeout_ms, load_bytes=self._load_bytes
        )
        led = LedPartition(index, leader_epoch, log, self._new_shard(index, leader_epoch, log))
        self._led[index] = led
        self._tasks.attempt(self._bring_up(led), name=f"{self.SUBJECT}-load-{index}")

    def resigned(self, index: int) -> None:
        """Close the shard of partition ``index``: this broker no longer leads it."""
        led = self._led.pop(index, None)
        if led is not None:
            led.shard.close()
            self._closed(index)

    def close(self) -> None:
        """Close all shards: this broker stops."""
        for index in list(self._led):
            self.resigned(index)

    async def _bring_up(self, led: LedPartition[S]) -> None:
        """Load a shard and begin with it. If that fails, this broker does not coordinate the partition."""
        began = self._runtime.clock.monotonic()
        try:
            async with self._loading:
                if not await self._finish(led, self._load(led.log, led.shard)):
                    return
        except Exception as error:
            if not isinstance(error, (KafkaError, CorruptBatch, DecodeError)):
                self._runtime.contained.note(f"load of {self.SUBJECT}s", error, partition=led.index)
            self._log.error(
                f"failed to load {self.SUBJECT}s",
                partition=led.index,
                leader_epoch=led.leader_epoch,
                reason=str(error),
            )
            if self._led.get(led.index) is led:
                self.resigned(led.index)
            return
        led.loaded = True
        self.loads.loaded(began)
        self._loaded(led.index)
        if size := led.shard.size:
            self._log.info(
                f"{self.SUBJECT}s loaded",
                partition=led.index,
                leader_epoch=led.leader_epoch,
                **{self.COUNTED: size},
            )
        await self._finish(led, led.shard.begin())

    async def _finish(self, led: LedPartition[S], steps: Cooperative[None]) -> bool:
        """Run ``steps``, one for each turn. Returns False if this leadership ended before the last step."""
        while True:
            await self._turn()
            if self._led.get(led.index) is led and not led.log.leads:
                self.resigned(led.index)  # the leader epoch changed, and no call has reported it
            if self._led.get(led.index) is not led:
                return False
            try:
                next(steps)
            except StopIteration:
                return True

    # -- look-ups

    def partition_for(self, key: str) -> int:
        """The partition of the topic for a group id or transactional id."""
        return partition_for_group(key, self._partition_count())

    def _shard_for(self, key: str) -> S:
        """The shard of a group id or transactional id. Raises KafkaError: NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS."""
        led = self._led.get(self.partition_for(key))
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not led.loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led.shard

    def shards(self) -> Iterator[S]:
        """All loaded shards. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS if one is still loading."""
        if any(not led.loaded for led in self._led.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return iter([led.shard for led in self._led.values()])

    def led(self) -> Iterator[S]:
        """All shards, also those that are still loading."""
        return (led.shard for led in self._led.values())
