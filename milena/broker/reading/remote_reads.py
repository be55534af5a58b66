"""Fetches that read from the remote tier, like Kafka's DelayedRemoteFetch (docs/kafka-semantics.md: Remote fetches;
KIP-405).

All remote reads of a request run concurrently, while the request waits in the purgatory for at most
``remote.fetch.max.wait.ms``. A partition that was not read in time has an empty result without an error. Partitions on
the local disk are read when the response is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from milena.broker.reading.fetching import Fetch, FetchLimits
from milena.broker.reading.partition_read import PartitionRead, RemotePartitionRead
from milena.broker.reading.remote_offsets import RemoteListOffsets
from milena.broker.reading.remote_waits import ReadKey, RemoteWait, code_of
from milena.broker.replica.fetch_sessions import RequestedPartition
from milena.broker.replica.offset_search import TimeSearch
from milena.broker.waiting.purgatory import Purgatory, Requester
from milena.node.metrics import Metrics
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.runtime.network import Part
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.reading.reader_pool import ReaderPool
from milena.tiered.reading.remote_reader import RemoteLogReader, RemoteRead, RemoteRecords
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.tiered.shared.tier import FAILURES

if TYPE_CHECKING:
    from milena.tiered.shared.tier import Tier

MAX_WAIT: Final = "remote.fetch.max.wait.ms"
LIST_OFFSETS_TIMEOUT: Final = "remote.list.offsets.request.timeout.ms"


class RemoteSlice(NamedTuple):
    """Records that were read from the tier."""

    records: Part
    length: int

    def part(self) -> Part:
        return self.records


class RemoteReads:
    """The reads from the tier of one broker."""

    def __init__(self, tier: Tier, purgatory: Purgatory, metrics: Metrics) -> None:
        self.tier = tier
        self.purgatory = purgatory
        self.pool = ReaderPool(tier, metrics)
        self.reader = RemoteLogReader(tier)
        self.expired = metrics.counter(
            "kafka_server_delayedremotefetchmetrics_expirespersec_total", "Fetches that the tier did not serve in time."
        )
        self._expired_searches = metrics.counter(
            "kafka_server_delayedremotelistoffsetsmetrics_expirespersec_total",
            "Searches for an offset that the tier did not answer in time.",
        )
        self._timing = metrics.timing(
            "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",
            "Reads from the tier, and their time.",
        )

    def throttles(self) -> bool:
        """Whether ``remote.log.manager.fetch.max.bytes.per.second`` is exceeded."""
        excess = self.tier.fetch_quota.throttle_ms(self.tier.runtime.clock.time_ms())
        if excess > 0:
            self.tier.meters.fetch_throttle_time.record(excess)
        return excess > 0

    def read(
        self,
        fetch: Fetch,
        limits: FetchLimits,
        results: list[PartitionRead],
        done: Callable[[list[PartitionRead]], None],
        requester: Requester,
    ) -> bool:
        """Read the records of each RemotePartitionRead in ``results``, then call ``done``. Returns False, and does
        nothing, if there is none."""
        remote = [entry for entry in results if isinstance(entry, RemotePartitionRead)]
        if not remote:
            return False
        waiting = _RemoteFetch(self, fetch, limits, done)
        for entry in remote:
            waiting.add(entry)
        waiting.wait(self.tier.config().get_int(MAX_WAIT) / 1000, requester)
        return True

    def search(
        self, searches: Sequence[TimeSearch], timeout_ms: int, done: Callable[[], object], requester: Requester
    ) -> None:
        """Search for offsets by timestamp locally and in the tier, then call ``done``. ``timeout_ms``: of the request,
        0 for the configured one."""
        seconds = (timeout_ms if timeout_ms > 0 else self.tier.config().get_int(LIST_OFFSETS_TIMEOUT)) / 1000
        waiting = RemoteListOffsets(self.pool, self.purgatory, self.reader, self._expired_searches, done)
        waiting.start(searches, seconds, requester)

    async def read_one(self, partition: TopicIdPartition, log: UnifiedLog, read: RemoteRead) -> RemoteRecords | None:
        """``RemoteLogReader.read``, with metrics and quota. Raises KafkaError, or another of ``FAILURES``."""
        tier, clock = self.tier, self.tier.runtime.clock
        started = clock.monotonic()
        meters = tier.meters.of(partition.topic)
        try:
            records = await self.reader.read(partition, log, read)
        except FAILURES as error:
            # The failure is that of a segment which was deleted during the read.
            if read.offset < log.log_start_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "records deleted during the read") from error
            if not is_out_of_range(error):
                meters.fetch_errors.add()
                self.tier.events.warning(
                    "remote read failed",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=read.offset,
                    reason=str(error),
                )
            raise
        if records is not None:
            meters.fetched_bytes.add(records.length)
            tier.fetch_quota.record(records.length, clock.time_ms())
        self._timing.record((clock.monotonic() - started) * 1000)
        return records

    async def stop(self) -> None:
        await self.pool.stop()


def is_out_of_range(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE


class _RemoteFetch(RemoteWait["RemoteRecords | None"]):
    """One fetch that waits for records of the tier."""

    def __init__(
        self, reads: RemoteReads, fetch: Fetch, limits: FetchLimits, done: Callable[[list[PartitionRead]], None]
    ) -> None:
        super().__init__(reads.pool, reads.purgatory)
        self._reads = reads
        self._fetch = fetch
        self._limits = limits
        self._done = done
        self._entries: dict[ReadKey, RemotePartitionRead] = {}
        self._results: dict[RequestedPartition, PartitionRead] = {}

    def add(self, entry: RemotePartitionRead) -> None:
        """Submit one read. To be called before ``wait``."""
        partition, result = entry.partition, entry.result
        assert partition is not None
        assert result is not None
        committed = self._limits.committed
        read = RemoteRead(Offset(entry.requested.offset), entry.max_bytes, entry.min_one, result.upper, committed)
        reads = self._reads
        reads.tier.meters.of(partition.topic).fetch_requests.add()
        try:
            key = self.submit(partition, read, lambda name, log: reads.read_one(name, log, read))
        except KafkaError as error:
            self._results[entry.requested] = PartitionRead(entry.requested, partition, None, error.code)
        else:
            self._entries[key] = entry

    def expire(self) -> None:
        self._reads.expired.add()
        super().expire()

    def abandon(self) -> None:
        super().abandon()
        self._fetch.abandon()

    def _on_read(self, key: ReadKey, result: RemoteRecords | None, error: Exception | None) -> None:
        entry = self._entries[key]
        if error is not None:
            self._results[entry.requested] = PartitionRead(entry.requested, entry.partition, None, code_of(error))
        elif self.is_current(key):
            self._results[entry.requested] = self._result_of(entry, result)
        else:
            self._on_unread(key)

    def _on_unread(self, key: ReadKey) -> None:
        """Store an empty result, or the error if the client may no longer read the partition on this broker."""
        entry, partition = self._entries[key], key.partition
        result = PartitionRead(entry.requested, partition, entry.result)
        try:
            self._fetch.find(entry.requested).require(
                entry.requested.current_leader_epoch, leader=self._limits.only_leader
            )
        except KafkaError as error:
            result = PartitionRead(entry.requested, partition, None, error.code)
        self._results[entry.requested] = result

    def _finish(self) -> None:
        self._done(self._fetch.read_others(self._results))

    def _result_of(self, entry: RemotePartitionRead, records: RemoteRecords | None) -> PartitionRead:
        result = entry.result
        assert result is not None
        if records is None:
            return self._read_local(entry)
        if not records.length:
            return PartitionRead(entry.requested, entry.partition, result)
        slice_ = RemoteSlice(records.records, records.length)
        return PartitionRead(entry.requested, entry.partition, result.with_slice(slice_, records.aborted))

    def _read_local(self, entry: RemotePartitionRead) -> PartitionRead:
        """Read from the local log start: the tier has no records between the offset and it."""
        partition = entry.partition
        assert partition is not None
        try:
            result = partition.read(
                partition.online_log.local_log_start_offset,
                entry.max_bytes,
                min_one=entry.min_one,
                current_leader_epoch=entry.requested.current_leader_epoch,
                last_fetched_epoch=None,
                committed=self._limits.committed,
                follower=False,
                only_leader=self._limits.only_leader,
            )
        except KafkaError as error:
            return PartitionRead(entry.requested, partition, None, error.code)
        return PartitionRead(entry.requested, partition, result)
