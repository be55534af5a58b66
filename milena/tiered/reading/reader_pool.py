"""The readers of a broker's tier: so many reads at a time, so many more that wait, no more (docs/kafka-semantics.md:
Tasks of the tier, Remote fetches).

Who asks for what is being read already shares that read: a client that tries again after its time was up takes no
second place from others, and comes to a slow store's answer in the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Protocol

from milena.node.metrics import Metrics
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.tasks import TaskHandle
from milena.tiered.shared.pool import Pool
from milena.tiered.shared.tier import FAILURES, Tier
from milena.tiered.store.remote_storage import cancelled_calls

_POOL: Final = "kafka_log_remote_remotestoragethreadpool"


class RemoteReadWaiter(Protocol):
    """Who waits for a read."""

    def read_done(self, key: Hashable, result: Any, error: Exception | None) -> None:
        """Must not raise."""
        ...


class _Reading:
    __slots__ = ("readers", "started", "task")

    def __init__(self) -> None:
        self.readers: dict[RemoteReadWaiter, None] = {}
        self.started = False
        self.task: TaskHandle | None = None


class ReaderPool:
    """For use on the loop only."""

    def __init__(self, tier: Tier, metrics: Metrics) -> None:
        self._tier = tier
        self._tasks = tier.runtime.new_tasks("remote log readers")
        self._places = Pool(lambda: tier.get("remote.log.reader.threads"))
        self._readings: dict[Hashable, _Reading] = {}
        self._stopped = False
        metrics.gauge(f"{_POOL}_remotelogreadertaskqueuesize", lambda: self.waiting, "Reads that wait for a reader.")
        metrics.gauge(
            f"{_POOL}_remotelogreaderavgidlepercent",
            lambda: self._places.idle_share,
            "Share of the tier's readers that are free, 0 to 1.",
        )

    @property
    def waiting(self) -> int:
        return sum(not one.started for one in self._readings.values())

    def submit(self, key: Hashable, work: Callable[[], Awaitable[Any]], reader: RemoteReadWaiter) -> None:
        """Do ``work``, unless the same ``key`` is being worked on, and tell ``reader`` what came of it, never at once.

        Raises KafkaError UNKNOWN_SERVER_ERROR where too much waits already, REPLICA_NOT_AVAILABLE after ``stop``.
        """
        if self._stopped:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
        reading = self._readings.get(key)
        if reading is None:
            tier = self._tier
            if len(self._readings) >= tier.get("remote.log.reader.threads") + tier.get(
                "remote.log.reader.max.pending.tasks"
            ):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "too many reads wait for the remote storage")
            reading = self._readings[key] = _Reading()
            reading.task = self._tasks.spawn(self._run(key, reading, work), name="remote read")
        reading.readers[reader] = None

    def leave(self, key: Hashable, reader: RemoteReadWaiter) -> None:
        """``reader`` waits no more. A read that nobody waits for is not begun; one that was goes on."""
        reading = self._readings.get(key)
        if reading is None or reading.readers.pop(reader, self) is self or reading.readers or reading.started:
            return
        assert reading.task is not None
        reading.task.cancel()
        del self._readings[key]

    async def stop(self) -> None:
        """End all reads; nobody is told."""
        self._stopped = True
        await self._tasks.stop()
        self._readings.clear()

    async def _run(self, key: Hashable, reading: _Reading, work: Callable[[], Awaitable[Any]]) -> None:
        result: Any = None
        failure: Exception | None = None
        async with self._places:
            reading.started = True
            try:
                with cancelled_calls():
                    result = await work()
            except FAILURES as error:
                failure = error
            except Exception as error:
                self._tier.runtime.contained.note("a read of the remote tier", error)
                failure = error
        del self._readings[key]
        for reader in list(reading.readers):
            reader.read_done(key, result, failure)
