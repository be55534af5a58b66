"""Fetches that need the remote tier (kafka-behaviour A12; KIP-405).

All of a request's partitions in the tier are read at the same time, while it waits in the purgatory for at most
``remote.fetch.max.wait.ms``. What was not read by then is answered with nothing, and no error. The partitions that are
here are read when the answer is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.fetch_sessions import Wanted
from broker.fetching import Fetch, FetchLimits, Found, InTier
from broker.partition import Partition
from broker.purgatory import Purgatory, Ticket
from node.metrics import Metrics
from protocol.errors import ErrorCode, KafkaError
from protocol.types import LeaderEpoch, Offset
from runtime.network import Part
from storage.partition_log import PartitionLog
from tiered.metadata_manager import MetadataNotReady
from tiered.reader_pool import ReaderPool
from tiered.remote_reader import RemoteLogReader, RemoteRead, RemoteRecords
from tiered.segment_metadata import TopicIdPartition
from tiered.tier import FAILURES

if TYPE_CHECKING:
    from tiered.tier import Tier

MAX_WAIT: Final = "remote.fetch.max.wait.ms"


class RemoteSlice(NamedTuple):
    """Records that were read from the tier, in the place of a ``LogSlice``."""

    records: Part
    length: int

    def part(self) -> Part:
        return self.records


class RemoteReads:
    """What one broker reads of its tier."""

    def __init__(self, tier: Tier, purgatory: Purgatory, metrics: Metrics) -> None:
        self.tier = tier
        self.purgatory = purgatory
        self.pool = ReaderPool(tier, metrics)
        self.reader = RemoteLogReader(tier)
        self.expired = metrics.counter(
            "kafka_server_delayedremotefetchmetrics_expirespersec_total", "Fetches that the tier did not serve in time."
        )
        self._timing = metrics.timing(
            "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",
            "Reads from the tier, and their time.",
        )

    def throttles(self) -> bool:
        """Whether ``remote.log.manager.fetch.max.bytes.per.second`` is exceeded."""
        return self.tier.fetch_quota.throttle_ms(self.tier.runtime.clock.time_ms()) > 0

    def read(self, fetch: Fetch, limits: FetchLimits, found: list[Found], done: Callable[[list[Found]], None]) -> bool:
        """Read what is in the tier, and call ``done``; False, doing nothing, where ``found`` has nothing there."""
        wanted = [one for one in found if isinstance(one, InTier)]
        if not wanted:
            return False
        _RemoteFetch(self, fetch, limits, done).begin(wanted)
        return True

    async def read_one(self, partition: TopicIdPartition, log: PartitionLog, read: RemoteRead) -> RemoteRecords | None:
        """See ``RemoteLogReader.read``, with metrics and quota."""
        tier, clock = self.tier, self.tier.runtime.clock
        began = clock.monotonic()
        meters = tier.meters.of(partition.topic)
        try:
            records = await self.reader.read(partition, log, read)
        except FAILURES as error:
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
        self._timing.record((clock.monotonic() - began) * 1000)
        return records

    async def stop(self) -> None:
        await self.pool.stop()


def tier_name(partition: Partition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic_id, partition.topic, partition.index)


def is_out_of_range(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE


def code_of(error: Exception) -> ErrorCode:
    """What a client is told."""
    if isinstance(error, KafkaError):
        return error.code
    return ErrorCode.REPLICA_NOT_AVAILABLE if isinstance(error, MetadataNotReady) else ErrorCode.UNKNOWN_SERVER_ERROR


class _Key(NamedTuple):
    """One read. As the partition's role changes it becomes another one."""

    partition: Partition
    leader_epoch: LeaderEpoch
    term: int
    read: RemoteRead


class _RemoteFetch:
    """A request that waits for the tier."""

    def __init__(
        self, reads: RemoteReads, fetch: Fetch, limits: FetchLimits, done: Callable[[list[Found]], None]
    ) -> None:
        self._reads = reads
        self._fetch = fetch
        self._limits = limits
        self._done = done
        self._wanted: dict[_Key, InTier] = {}
        self._logs: dict[Partition, PartitionLog] = {}
        self._results: dict[Wanted, Found] = {}
        self._open: dict[_Key, None] = {}
        self._ticket: Ticket | None = None

    def begin(self, wanted: list[InTier]) -> None:
        for one in wanted:
            self._submit(one)
        if not self._open:
            self._finish()
            return
        seconds = self._reads.tier.get(MAX_WAIT) / 1000
        self._ticket = self._reads.purgatory.wait(self, self._logs, seconds)

    def _submit(self, one: InTier) -> None:
        partition, result = one.partition, one.result
        assert partition is not None
        assert result is not None
        log = partition.online_log
        self._logs[partition] = log
        committed = self._limits.committed
        read = RemoteRead(Offset(one.wanted.offset), one.max_bytes, one.min_one, result.upper, committed)
        key = _Key(partition, partition.leader_epoch, partition.term, read)
        reads, name = self._reads, tier_name(partition)
        reads.tier.meters.of(partition.topic).fetch_requests.add()
        self._wanted[key] = one
        try:
            reads.pool.submit(key, lambda: reads.read_one(name, log, read), self)
        except KafkaError as error:
            self._results[one.wanted] = Found(one.wanted, partition, None, error.code)
        else:
            self._open[key] = None

    def read_done(self, key: Hashable, result: Any, error: Exception | None) -> None:
        assert isinstance(key, _Key)
        self._open.pop(key, None)
        one = self._wanted[key]
        if error is not None:
            self._results[one.wanted] = Found(one.wanted, one.partition, None, code_of(error))
        else:
            self._results[one.wanted] = self._found(one, result) if self._holds(key) else self._unread(one)
        if not self._open and self._ticket is not None:
            self._reads.purgatory.leave(self._ticket)
            self._finish()

    # -- the purgatory's side

    def ready(self, key: Hashable) -> bool:
        return not all(self._holds(one) for one in self._open if one.partition is key)

    def complete(self) -> None:
        self._finish()

    def expire(self) -> None:
        self._reads.expired.add()
        self._finish()

    def abandon(self) -> None:
        """The connections are closed next."""
        for key in self._open:
            self._reads.pool.leave(key, self)

    def _finish(self) -> None:
        for key in self._open:
            self._reads.pool.leave(key, self)
            one = self._wanted[key]
            self._results[one.wanted] = self._unread(one)
        self._done(self._fetch.read_around(self._results))

    # -- results

    def _holds(self, key: _Key) -> bool:
        """Whether the partition is what it was when the read began."""
        partition = key.partition
        return (partition.leader_epoch, partition.term) == key[1:3] and partition.log is self._logs[partition]

    def _found(self, one: InTier, records: RemoteRecords | None) -> Found:
        result = one.result
        assert result is not None
        if records is None:
            return self._local(one)
        if not records.length:
            return Found(one.wanted, one.partition, result)
        slice_ = RemoteSlice(records.records, records.length)
        return Found(one.wanted, one.partition, result._replace(slice=slice_, aborted=records.aborted))

    def _local(self, one: InTier) -> Found:
        """The tier has nothing more before the first local record: that is the next one."""
        partition = one.partition
        assert partition is not None
        try:
            found = partition.read(
                partition.online_log.local_log_start_offset,
                one.max_bytes,
                min_one=one.min_one,
                current_leader_epoch=one.wanted.current_leader_epoch,
                last_fetched_epoch=None,
                committed=self._limits.committed,
                follower=False,
                only_leader=self._limits.only_leader,
            )
        except KafkaError as error:
            return Found(one.wanted, partition, None, error.code)
        return Found(one.wanted, partition, found)

    def _unread(self, one: InTier) -> Found:
        """Nothing; an error where the partition is no longer to be read here."""
        partition = one.partition
        assert partition is not None
        try:
            partition.require(one.wanted.current_leader_epoch, leader=self._limits.only_leader)
        except KafkaError as error:
            code = error.code
            if partition.leader is None and code is ErrorCode.KAFKA_STORAGE_ERROR:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # it is not here any more
            return Found(one.wanted, partition, None, code)
        return Found(one.wanted, partition, one.result)
