"""Transactions that are open for longer than a coordinator allows: their markers are missing (KIP-664).

Until they are ended (``milena transactions abort``), consumers with read_committed, the cleaner and the copies to the
tier stop at their first offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from milena.broker.replica.partition import Partition
from milena.protocol.types import Offset
from milena.runtime.clock import Clock
from milena.runtime.limited_log import LimitedLog
from milena.runtime.tasks import Tasks
from milena.storage.state.producer_state import OpenTransaction

BUFFER_MS: Final = 300_000
"""As ``ProducerStateManager.LATE_TRANSACTION_BUFFER_MS``: the coordinator may need this long to write markers."""
CHECK_INTERVAL: Final = 60.0
"""Seconds."""
SLICE: Final = 1_000
"""The number of partitions that are checked before the loop runs other work."""


class LateTransactions:
    """Finds late transactions of the partitions that this broker leads, and warns once of each."""

    def __init__(self, partitions: Iterable[Partition], clock: Clock, max_timeout_ms: int, log: LimitedLog) -> None:
        """``max_timeout_ms``: ``transaction.max.timeout.ms``."""
        self._partitions = partitions
        self._clock = clock
        self._late_ms = max_timeout_ms + BUFFER_MS
        self._log = log
        self._warned: dict[Partition, Offset] = {}
        """The first offsets of the late transactions of which it has warned."""

    def start(self, tasks: Tasks) -> None:
        tasks.keep(self._run, name="late transactions")

    def count(self) -> int:
        """The number of partitions with a late transaction (Kafka's PartitionsWithLateTransactionsCount)."""
        now = self._clock.time_ms()
        return sum(self._late(partition, now) is not None for partition in self._partitions)

    def _late(self, partition: Partition, now_ms: int) -> OpenTransaction | None:
        if not partition.is_leader or partition.log is None:
            return None
        oldest = partition.log.producers.oldest_open
        if oldest is None or oldest.timestamp <= 0 or now_ms - oldest.timestamp <= self._late_ms:
            return None
        return oldest

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Warn of the partitions that have a late transaction now and had another one, or none, at the last check."""
        now = self._clock.time_ms()
        known, self._warned = self._warned, {}
        for number, partition in enumerate(list(self._partitions)):
            late = self._late(partition, now)
            if late is not None:
                self._warned[partition] = late.first_offset
                if known.get(partition) != late.first_offset:
                    self._warn(partition, late, now)
            if number % SLICE == SLICE - 1:
                await self._clock.sleep(0)

    def _warn(self, partition: Partition, late: OpenTransaction, now_ms: int) -> None:
        assert partition.log is not None
        self._log.warning(
            "transaction open for too long",
            topic=partition.topic,
            partition=partition.index,
            producer_id=late.producer_id,
            first_offset=late.first_offset,
            seconds_since_last_batch=(now_ms - late.timestamp) // 1000,
            records_held_back=partition.log.high_watermark - partition.log.last_stable_offset,
        )
