"""The pool of readers of a broker's tier: it bounds the concurrent reads and the queued ones (docs/kafka-semantics.md:
Tasks of the tier, Remote fetches).

Requests for the same data share one read: a client that retries after a time-out does not occupy a second reader, and
gets a slow store's answer in the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Protocol, TypeVar

from milena.node.metrics import Metrics
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.tasks import TaskHandle
from milena.tiered.shared.pool import Pool
from milena.tiered.shared.tier import FAILURES, Tier
from milena.tiered.store.remote_storage import cancellation_errors

R = TypeVar("R", contravariant=True)

_POOL: Final = "kafka_log_remote_remotestoragethreadpool"


class RemoteReadWaiter(Protocol[R]):
    """A caller that waits for a read."""

    def read_done(self, key: Hashable, result: R | None, error: Exception | None) -> None:
        """Called with the result or the error. Must not raise."""
        ...


class _Reading:
    __slots__ = ("readers", "started", "task")

    def __init__(self) -> None:
        # What is read under a key has one type, which its readers know.
        self.readers: dict[RemoteReadWaiter[Any], None] = {}
        self.started = False
        self.task: TaskHandle | None = None


class ReaderPool:
    """To be used on the loop only."""

    def __init__(self, tier: Tier, metrics: Metrics) -> None:
        self._tier = tier
        self._tasks = tier.runtime.new_tasks("remote log readers")
        self._places = Pool(lambda: tier.config().get_int("remote.log.reader.threads"))
        self._readings: dict[Hashable, _Reading] = {}
        self._stopped = False
        metrics.gauge(
            f"{_POOL}_remotelogreadertaskqueuesize", lambda: self.waiting, "Reads that wait for a free reader."
        )
        metrics.gauge(
            f"{_POOL}_remotelogreaderavgidlepercent",
            lambda: self._places.idle_share,
            "Share of the tier's readers that are idle, 0 to 1.",
        )

    @property
    def waiting(self) -> int:
        return sum(not reading.started for reading in self._readings.values())

    def submit(self, key: Hashable, work: Callable[[], Awaitable[R]], reader: RemoteReadWaiter[R]) -> None:
        """Run ``work``, or join a running read with the same ``key``, and call ``reader`` with the result, never before
        this returns.

        Raises KafkaError UNKNOWN_SERVER_ERROR if too many reads are queued, REPLICA_NOT_AVAILABLE after ``stop``.
        """
        if self._stopped:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
        reading = self._readings.get(key)
        if reading is None:
            tier = self._tier
            if len(self._readings) >= tier.config().get_int("remote.log.reader.threads") + tier.config().get_int(
                "remote.log.reader.max.pending.tasks"
            ):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "too many reads of the remote storage are queued")
            reading = self._readings[key] = _Reading()
            reading.task = self._tasks.spawn(self._run(key, reading, work), name="remote read")
        reading.readers[reader] = None

    def leave(self, key: Hashable, reader: RemoteReadWaiter[Any]) -> None:
        """Record that ``reader`` does not wait for the read any more. A queued read without waiters is dropped; a
        started one continues."""
        reading = self._readings.get(key)
        if reading is None or reading.readers.pop(reader, self) is self or reading.readers or reading.started:
            return
        assert reading.task is not None
        reading.task.cancel()
        del self._readings[key]

    async def stop(self) -> None:
        """Cancel all reads, without calling their waiters."""
        self._stopped = True
        await self._tasks.stop()
        self._readings.clear()

    async def _run(self, key: Hashable, reading: _Reading, work: Callable[[], Awaitable[object]]) -> None:
        result: object = None
        failure: Exception | None = None
        async with self._places:
            reading.started = True
            try:
                with cancellation_errors():
                    result = await work()
            except FAILURES as error:
                failure = error
            except Exception as error:
                self._tier.runtime.contained.note("a read of the remote tier", error)
                failure = error
        del self._readings[key]
        for reader in list(reading.readers):
            reader.read_done(key, result, failure)
