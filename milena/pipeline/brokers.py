"""Reads from the brokers of a cluster: offsets, the metadata topic of the tier, and records."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple, TypeVar

from milena.client.cluster import Cluster, TopicView
from milena.client.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, find_offset
from milena.client.raw_reads import MadeAnew, RawRecords, epoch_ends, read_raw, retried
from milena.pipeline.errors import DataLoss, PipelineError, TopicGone, loss, recreated
from milena.pipeline.loops import LoopThread
from milena.pipeline.metadata_cache import PLAN_CACHE, TierMetadata, wants
from milena.pipeline.options import SourceOptions
from milena.pipeline.planning import Stretch
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import BatchView, CorruptBatch, iter_batches
from milena.protocol.records.control_records import ControlType, decode_control_type
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.records.remote_log_records import UnreadableRemoteLogRecord
from milena.protocol.types import ZERO_UUID, LeaderEpoch, Offset
from milena.protocol.uuids import to_text
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.event_decoder import EventDecoder
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.segments.segment_metadata import TopicIdPartition

T = TypeVar("T")

FETCH: Final = 8 << 20
"""Bytes per fetch."""
MOST_EMPTY: Final = 10
"""The number of empty responses, of half a second each, after which existing records count as lost."""


class _Read(NamedTuple):
    """How far a log was read: up to offset ``end`` (exclusive). ``epoch``: the leader epoch of the last batch read."""

    end: int
    epoch: int


class Brokers:
    """Blocking calls to a cluster. All methods raise PipelineError if the cluster does not answer or returns an
    error."""

    def __init__(self, loop: LoopThread, options: SourceOptions) -> None:
        self._loop = loop
        self._committed = options.committed
        self._strict = options.fail_on_data_loss
        self._bootstrap = options.bootstrap
        self._chosen = options.chosen
        self._cluster = Cluster(loop.runtime, options.bootstrap, "milena-spark")
        loop.at_end(self._close)

    async def _close(self) -> None:
        self._cluster.close()

    def topics(self) -> Mapping[str, TopicView]:
        return self._ask(self._cluster.metadata).topics

    def bounds(self, topic: str, number: int) -> tuple[int, int]:
        """Return the log start offset, and the offset after the last record that a consumer may read."""
        level = int(self._committed)
        first = self._of_topic(topic, partial(find_offset, self._cluster, topic, number, EARLIEST))
        last = self._of_topic(topic, partial(find_offset, self._cluster, topic, number, LATEST, isolation=level))
        return first.offset, max(first.offset, last.offset)

    def offset_at(self, topic: str, number: int, timestamp: int) -> int | None:
        """Return the first offset with this timestamp (ms) or a later one; None if there is none."""
        level = int(self._committed)
        found = self._of_topic(
            topic, partial(find_offset, self._cluster, topic, number, timestamp, isolation=level)
        ).offset
        return None if found < 0 else found

    def tier_metadata(self, partitions: Iterable[TopicIdPartition]) -> TierMetadata:
        """Return the metadata of at least these partitions from the metadata topic. Records that an earlier plan in
        this process has read are not read again if the topic still has them."""
        view = self.topics().get(REMOTE_LOG_METADATA_TOPIC)
        if view is None or view.error:
            raise PipelineError(
                f"option tier: the cluster has no topic {REMOTE_LOG_METADATA_TOPIC}, so nothing is in a tier"
            )
        key = "brokers", self._bootstrap, view.id, self._chosen
        tier_metadata, read = PLAN_CACHE.take(key, self._unread)
        numbers = sorted({metadata_partition(one, len(view.partitions)) for one in partitions})
        bounds = {number: self.bounds(REMOTE_LOG_METADATA_TOPIC, number) for number in numbers}
        # After an unclean election of the metadata topic's leader, the records that were read may not exist any more.
        if not all(self._is_there(number, read[number]) for number in numbers if number in read):
            tier_metadata, read = self._unread()
        for number, (first, end) in bounds.items():
            at = read[number].end if number in read else 0
            for batch in self._between(REMOTE_LOG_METADATA_TOPIC, number, max(first, at), end):
                for record in () if batch.is_control else iter_records(batch):
                    try:
                        tier_metadata.decoder.take(record.value, offset_of(batch, record))
                    except UnreadableRemoteLogRecord as error:
                        where = f"{REMOTE_LOG_METADATA_TOPIC}-{number}, at offset {offset_of(batch, record)}"
                        raise PipelineError(f"{where}: {error}") from None
                read[number] = _Read(batch.next_offset, batch.leader_epoch)

        async def give_back() -> None:
            PLAN_CACHE.put(key, (tier_metadata, read))

        self._loop.at_end(give_back)
        return tier_metadata

    def _is_there(self, number: int, read: _Read) -> bool:
        """Whether a partition of the metadata topic still has all records that were read. After an unclean election the
        leader may lack some of them, and may have other records at their offsets."""
        ends = self._ask(partial(epoch_ends, self._cluster, REMOTE_LOG_METADATA_TOPIC, number, [read.epoch]))
        return ends.get(read.epoch, 0) >= read.end

    def _unread(self) -> tuple[TierMetadata, dict[int, _Read]]:
        """Return empty metadata, and an empty dict for how far each partition of the metadata topic was read."""
        return TierMetadata(EventDecoder(partial(wants, self._chosen))), {}

    def epochs(self, topic: str, number: int, known: Iterable[LeaderEpoch]) -> list[EpochEntry]:
        """Return the leader epochs of the leader's log with their start offsets, for the epochs ``known`` and the
        epochs directly before them, whose end offsets are these start offsets."""
        asked = sorted({epoch for one in known for epoch in (one - 1, one) if epoch >= 0})
        ends = self._ask(partial(epoch_ends, self._cluster, topic, number, asked))
        return entries_of(ends)

    def batches(self, stretch: Stretch) -> Iterator[BatchView]:
        """Yield the batches of ``stretch`` except those of aborted transactions, in order. The first and the last batch
        may contain other offsets, too.

        Raises DataLoss, also if the topic was deleted and created again."""
        aborting: set[int] = set()
        at = stretch.first
        for read in self._reads(stretch.partition, at, stretch.last):
            started = sorted(read.aborted or (), key=lambda one: one.first_offset, reverse=True)
            for batch in iter_batches(memoryview(read.data)):
                if batch.base_offset > stretch.last:
                    return
                if batch.last_offset < at:
                    continue
                at = batch.last_offset + 1
                try:
                    batch.verify_crc()
                except CorruptBatch as error:
                    where = f"{stretch.partition.topic}-{stretch.partition.partition} of the brokers"
                    loss(f"{where}, the batch at offset {batch.base_offset}: {error}", self._strict)
                    continue
                while started and started[-1].first_offset <= batch.last_offset:
                    aborting.add(started.pop().producer_id)
                if batch.is_control:
                    if batch.producer_id in aborting and _aborts(batch):
                        aborting.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in aborting):
                    yield batch

    def _reads(self, partition: TopicIdPartition, at: int, last: int) -> Iterator[RawRecords]:
        """Yield the responses to fetches from offset ``at`` on. The next response is requested while the caller uses
        one. Raises DataLoss."""
        pending, empty, local = self._read(partition, at), 0, at + 1
        while True:
            read = self._answer(partial(pending.result), partition, at)
            after = at
            for batch in iter_batches(memoryview(read.data)):
                after = max(after, batch.next_offset)
            if after > last:
                yield read
                return
            if after == at:
                if read.end > last and not read.data and at >= local:
                    return  # a cleaner has removed the last records of the log
                local = self._local_start(partition)  # this response may be from another leader
                empty += 1
                if empty >= MOST_EMPTY:
                    raise DataLoss(
                        f"{partition.topic}-{partition.partition}: offset {at} existed, but the log now ends at "
                        f"{read.high_watermark}"
                    )
            else:
                empty, local = 0, after + 1
            at = after
            pending = self._read(partition, at)
            yield read

    def _local_start(self, partition: TopicIdPartition) -> int:
        """Return the local log start. For an offset below it, an empty response may mean that the tier did not answer
        in time."""
        topic, number = partition.topic, partition.partition
        return self._of_topic(topic, partial(find_offset, self._cluster, topic, number, EARLIEST_LOCAL)).offset

    def _read(self, partition: TopicIdPartition, at: int) -> Future[RawRecords]:
        work = read_raw(
            self._cluster,
            partition.topic,
            partition.partition,
            at,
            committed=self._committed,
            max_bytes=FETCH,
            topic_id=None if partition.topic_id == ZERO_UUID else partition.topic_id,
        )
        return self._loop.start(work)

    def _answer(self, result: Callable[[], RawRecords], partition: TopicIdPartition, at: int) -> RawRecords:
        topic = partition.topic
        try:
            return result()
        except MadeAnew as error:
            raise TopicGone(recreated(topic, to_text(partition.topic_id), to_text(error.id))) from None
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise DataLoss(f"{topic}-{partition.partition}: the brokers do not have offset {at} any more") from None
            if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise TopicGone(f"topic {topic} is not there any more") from None
            raise _pipeline_error(error) from None
        except (CorruptBatch, OSError) as error:
            raise _pipeline_error(error) from None

    def _between(self, topic: str, number: int, first: int, end: int) -> Iterator[BatchView]:
        """Yield the batches that have the offsets ``first`` to ``end`` (exclusive)."""
        if end > first:
            for read in self._reads(TopicIdPartition(ZERO_UUID, topic, number), first, end - 1):
                for batch in iter_batches(memoryview(read.data)):
                    if batch.last_offset >= first:
                        yield batch
                        first = batch.last_offset + 1

    def _of_topic(self, topic: str, work: Callable[[], Coroutine[object, object, T]]) -> T:
        return self._ask(partial(retried, self._cluster, topic, work))

    def _ask(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        try:
            return self._loop.run(work())
        except (KafkaError, OSError) as error:
            raise _pipeline_error(error) from None


def entries_of(ends: Mapping[int, int]) -> list[EpochEntry]:
    """Return the leader epochs of a log, given their end offsets: each epoch starts where the epoch before it ends. If
    the log has other epochs between two of ``ends``, their offsets are attributed to the later one of the two; this has
    no effect, since no segment has records of the epochs in between.
    """
    found, start = [], 0
    for epoch, end in sorted(ends.items()):
        found.append(EpochEntry(LeaderEpoch(epoch), Offset(start)))
        start = end
    return found


def _aborts(batch: BatchView) -> bool:
    key = next(iter_records(batch)).key
    return key is not None and decode_control_type(key) == ControlType.ABORT


def _pipeline_error(error: Exception) -> PipelineError:
    return PipelineError(f"option kafka.bootstrap.servers: {error}")
