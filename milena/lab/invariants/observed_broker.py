"""One observed broker process: the partitions that have changed, and the position up to which each log was read."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from milena.broker.controller_link.lifecycle import BrokerState
from milena.broker.replica.partition import Partition
from milena.broker.server import Broker
from milena.lab.invariants.images import Key
from milena.lab.invariants.log_cursor import LogCursor
from milena.lab.invariants.replicas import ObservedReplica, PartitionKey
from milena.lab.world.disk import Storage


class ObservedBroker:
    """An observed process. ``alive`` returns whether it still runs; ``run`` is its number among the processes of all
    brokers."""

    def __init__(self, broker: Broker, storage: Storage, run: int, alive: Callable[[], bool]) -> None:
        self.broker = broker
        self.storage = storage
        self.run = run
        self.alive = alive
        self.touched: dict[Partition, None] = {}
        self.seen: dict[Key, object] = {}
        """The entries of the last image that was checked, and its offset."""
        self.offset = -1
        self._cursors: dict[PartitionKey, LogCursor] = {}
        self._turn: list[Partition] = []
        broker.purgatory.observer = self._note

    def _note(self, changed: Hashable) -> None:
        if isinstance(changed, Partition):
            self.touched[changed] = None

    @property
    def broker_epoch(self) -> int | None:
        """The epoch under which this process has registered; None before."""
        broker = self.broker
        return None if broker.state is BrokerState.NOT_RUNNING else broker.lifecycle.epoch

    def touch_next(self) -> None:
        """Touch another partition in turn."""
        if not self._turn:
            self._turn = list(self.broker.partitions)
        if self._turn:
            self.touched[self._turn.pop()] = None

    def take_touched(self) -> tuple[Partition, ...]:
        """Return the partitions touched since the last call."""
        taken = tuple(self.touched)
        self.touched.clear()
        return taken

    def cursor(self, key: PartitionKey) -> LogCursor:
        cursor = self._cursors.get(key)
        if cursor is None:
            cursor = self._cursors[key] = LogCursor()
        return cursor

    def forget_cursors(self) -> None:
        """Read all logs from their starts again."""
        self._cursors.clear()

    def replica(self, partition: Partition) -> ObservedReplica | None:
        """Return the present state of a replica; None if it has no log or no role yet."""
        log = partition.log
        if log is None or partition.partition_epoch < 0:
            return None
        return ObservedReplica(
            self.broker.node_id,
            self.run,
            (partition.topic_id, partition.index),
            f"{partition.topic}-{partition.index}",
            partition.is_leader,
            partition.leader_epoch,
            partition.partition_epoch,
            log.log_start_offset,
            log.local_log_start_offset,
            log.high_watermark,
            log.log_end_offset,
        )
