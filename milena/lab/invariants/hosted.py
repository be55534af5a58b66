"""One broker process under observation: which of its partitions something has touched, and how far each was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.broker.controller_link.lifecycle import BrokerState
from milena.broker.replica.partition import Partition
from milena.broker.server import Broker
from milena.lab.invariants.images import Key
from milena.lab.invariants.log_cursor import LogCursor
from milena.lab.invariants.replicas import ObservedReplica, PartitionKey
from milena.lab.world.disk import Storage

CALLS_FOR_A_TURN: Final = 32
"""Events from one look at a partition that nothing has touched to the next."""


class Hosted:
    """``alive`` says whether the process still runs; ``run`` numbers the processes of all brokers."""

    def __init__(self, broker: Broker, storage: Storage, run: int, alive: Callable[[], bool]) -> None:
        self.broker = broker
        self.storage = storage
        self.run = run
        self.alive = alive
        self.touched: dict[Partition, None] = {}
        self.seen: dict[Key, object] = {}
        """What the last image held that was looked at, and its offset."""
        self.offset = -1
        self._cursors: dict[PartitionKey, LogCursor] = {}
        self._turn: list[Partition] = []
        self._calls = 0
        self._listen()

    def _listen(self) -> None:
        """Hear of every partition that is added, and of everything that it tells those who wait for it."""
        add = self.broker.partitions.add

        def adding(partition: Partition) -> None:
            changed, watermark_moved = partition.changed, partition.watermark_moved

            def changing() -> None:
                self.touched[partition] = None
                changed()

            def moving() -> None:
                self.touched[partition] = None
                watermark_moved()

            partition.changed = changing  # type: ignore[method-assign]
            partition.watermark_moved = moving  # type: ignore[method-assign]
            add(partition)

        self.broker.partitions.add = adding  # type: ignore[method-assign]

    @property
    def broker_epoch(self) -> int | None:
        """Under which this process has registered; None before."""
        broker = self.broker
        return None if broker.state is BrokerState.NOT_RUNNING else broker.lifecycle.epoch

    def take_touched(self) -> tuple[Partition, ...]:
        """Those that were touched since the last call, and now and then one more in turn."""
        self._calls += 1
        if self._calls % CALLS_FOR_A_TURN == 0:
            if not self._turn:
                self._turn = list(self.broker.partitions)
            if self._turn:
                self.touched[self._turn.pop()] = None
        if not self.touched:
            return ()
        taken = tuple(self.touched)
        self.touched.clear()
        return taken

    def cursor(self, key: PartitionKey) -> LogCursor:
        found = self._cursors.get(key)
        if found is None:
            found = self._cursors[key] = LogCursor()
        return found

    def forget_cursors(self) -> None:
        """Read all logs from their beginnings again."""
        self._cursors.clear()

    def replica(self, partition: Partition) -> ObservedReplica | None:
        """As it is now; None without a log or a role."""
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
