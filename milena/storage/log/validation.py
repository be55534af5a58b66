"""A leader's checks before an append, and what it writes into a batch (docs/kafka-semantics.md: Produce).

Like Kafka's ``LogValidator``: every record of every batch is checked, compressed or not, and the batch's largest
timestamp is that of its records. The work is done in steps, since a batch may expand to any size when it is
decompressed; memory is bounded. Records are read a second time only to name refused ones, or to recompress them.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TIME_OF_APPEND,
    BatchView,
    Codec,
    CorruptBatch,
    TimestampType,
    UnsupportedMagic,
    iter_batches,
    pack_batch,
)
from milena.protocol.records.compression import compressed
from milena.protocol.records.record_scan import (
    STEP,
    Head,
    RecordFacts,
    heads_of,
    pieces_of,
    renumbered,
    scan_few_records,
    scan_records,
)
from milena.storage.log.append_info import InvalidRecords, MalformedRecords, Origin, RecordError
from milena.storage.log.context import NamedLog

if TYPE_CHECKING:
    from milena.config.topic_config import TopicConfig

LOG_APPEND_TIME: Final = "LogAppendTime"
MAX_RECORD_ERRORS: Final = 1000
"""The number of record errors reported for one batch. Kafka reports all, which may be millions in a compressed
batch."""
Steps: TypeAlias = Generator[int, None, BatchView]
"""A check in progress. Yields roughly how many records were checked; returns the batch to store."""
_INT32: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_CODEC_MASK: Final = 0x07
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class ConfiguredLog(NamedLog, Protocol):
    """The part of a log that its checks need."""

    @property
    def config(self) -> TopicConfig: ...


def split_batches(records: memoryview) -> list[BatchView]:
    """The whole batches in ``records``.

    Raises MalformedRecords: CORRUPT_MESSAGE, or INVALID_RECORD for the older formats.
    """
    size = len(records)
    try:
        if size >= HEADER_SIZE and _INT32.unpack_from(records, _LENGTH_AT)[0] == size - LOG_OVERHEAD:
            return [BatchView(records)]
        return list(iter_batches(records))
    except UnsupportedMagic as magic:
        old = records[_MAGIC_AT] < MAGIC
        raise MalformedRecords(ErrorCode.INVALID_RECORD if old else ErrorCode.CORRUPT_MESSAGE, str(magic)) from magic
    except CorruptBatch as error:
        raise MalformedRecords(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def validation(log: ConfiguredLog, batch: BatchView, origin: Origin, now: int) -> BatchView | Steps:
    """Check one batch of a client or coordinator for ``log`` at ``now`` (ms). Returns it, or the batch to store in its
    place, with the largest timestamp of its records; with LogAppendTime the append sets the timestamp. If there are
    more than a few plain records, the rest is done by the steps that are returned instead.

    Both raise KafkaError with Kafka's code, InvalidRecords if single records are at fault.
    """
    config = log.config
    if origin is Origin.CLIENT and batch.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the base offset of the batch should be 0, it is {batch.base_offset}"
        )
    if len(batch.memory) > config.max_message_bytes:
        raise _too_large(len(batch.memory), config)
    if not batch.is_valid:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch is not {batch.crc}")
    if origin is Origin.CLIENT:
        _check_header(batch)
    if batch.attributes & _CODEC_MASK > Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {batch.attributes & _CODEC_MASK} is unknown")
    rules = _Rules(log, config, now)
    try:
        facts = scan_few_records(batch)
        if facts is not None:
            largest = _largest_timestamp(batch, facts)
            if not rules.may_refuse(batch, facts, largest) and _other_codec(batch, config) is None:
                return rules.accepted(batch, largest)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    return _in_steps(batch, config, rules, facts)


def _in_steps(batch: BatchView, config: TopicConfig, rules: _Rules, facts: RecordFacts | None) -> Steps:
    """The rest of ``validation``. ``facts``: those of the records, if they are already known."""
    try:
        if facts is None:
            facts = yield from scan_records(pieces_of(batch), batch.count, batch.codec)
        largest = _largest_timestamp(batch, facts)
        if rules.may_refuse(batch, facts, largest):
            yield from _name_the_refused(batch, rules)
        codec = _other_codec(batch, config)
        if codec is not None:
            batch = yield from _recompressed(batch, codec, config, facts, largest)
        elif batch.is_compressed and not facts.in_order:
            raise CorruptBatch("the offsets of the records in a compressed batch are not 0, 1, 2...")
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    return rules.accepted(batch, largest)


def _too_large(size: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}"
    )


def _check_header(batch: BatchView) -> None:
    """Refuse headers that a client may not send."""
    problem = None
    if batch.last_offset_delta < 0:
        problem = f"the batch ends before it begins (last offset delta {batch.last_offset_delta})"
    elif batch.count <= 0:
        problem = f"the batch counts {batch.count} records"
    elif batch.count != batch.last_offset_delta + 1:
        problem = f"the batch counts {batch.count} records and has {batch.last_offset_delta + 1} offsets"
    elif batch.attributes & CONTROL:
        problem = "clients are not allowed to write control records"
    elif batch.base_sequence < 0 and batch.has_producer_id:
        problem = f"producer {batch.producer_id} sends sequence {batch.base_sequence}"
    if problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, problem)


class _Rules:
    """A topic's requirements for single records. ``by_broker``: timestamps are the broker's. Timestamps are ms."""

    __slots__ = ("by_broker", "compacted", "log", "newest", "oldest")

    def __init__(self, log: NamedLog, config: TopicConfig, now: int) -> None:
        self.log = log
        self.compacted = config.compacted
        self.by_broker = config.message_timestamp_type == LOG_APPEND_TIME
        self.oldest = now - config.message_timestamp_before_max_ms
        self.newest = now + config.message_timestamp_after_max_ms

    def accepted(self, batch: BatchView, largest: int) -> BatchView:
        """The batch with its known largest timestamp."""
        if not self.by_broker:
            batch.set_max_timestamp(TimestampType.CREATE_TIME, largest)
        return batch

    def may_refuse(self, batch: BatchView, facts: RecordFacts, largest: int) -> bool:
        """Whether some records may be refused; a record without a timestamp counts as older than all others."""
        if self.compacted and facts.keyless and not batch.is_control:
            return True
        if batch.attributes & TIME_OF_APPEND:
            return self.by_broker or not self.oldest <= largest <= self.newest or largest == NO_TIMESTAMP
        smallest = batch.base_timestamp + facts.smallest_delta
        return not self.by_broker and (largest > self.newest or smallest < self.oldest)

    def problem(self, batch: BatchView, head: Head) -> tuple[ErrorCode, str] | None:
        """Why a record is refused, None if it is not."""
        if self.compacted and not head.has_key and not batch.is_control:
            where = f"{self.log.topic}-{self.log.partition}"
            return (
                ErrorCode.INVALID_RECORD,
                f"Compacted topic cannot accept message without key in topic partition {where}",
            )
        claimed = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        timestamp = batch.max_timestamp if claimed else batch.base_timestamp + head.timestamp_delta
        if not self.by_broker and timestamp != NO_TIMESTAMP:
            if not self.oldest <= timestamp <= self.newest:
                message = f"Timestamp {timestamp} of message with offset {batch.base_offset + head.offset_delta}"
                within = f"[{self.oldest}, {self.newest}]"
                return (
                    ErrorCode.INVALID_TIMESTAMP,
                    f"{message} is out of range. The timestamp should be within {within}",
                )
        elif claimed:
            return ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime."
        return None


def _largest_timestamp(batch: BatchView, facts: RecordFacts) -> int:
    """The largest timestamp of the batch's records (ms). Raises CorruptBatch if one does not fit into 64 bits."""
    if batch.attributes & TIME_OF_APPEND:
        return max(NO_TIMESTAMP, batch.max_timestamp)
    smallest, largest = batch.base_timestamp + facts.smallest_delta, batch.base_timestamp + facts.largest_delta
    if smallest < -1 << 63 or largest >= 1 << 63:
        raise CorruptBatch("a timestamp of more than 64 bits")
    return largest if largest > NO_TIMESTAMP else NO_TIMESTAMP


def _name_the_refused(batch: BatchView, rules: _Rules) -> Generator[int, None, None]:
    """Read each record again. Raises InvalidRecords with the refused records, if there are any."""
    errors: list[RecordError] = []
    code = ErrorCode.INVALID_RECORD
    count = index = 0
    for head in heads_of(batch):
        if isinstance(head, int):
            yield head
            continue
        if (problem := rules.problem(batch, head)) is not None:
            count += 1
            if count <= MAX_RECORD_ERRORS:
                errors.append(RecordError(index, problem[1]))
            if problem[0] is ErrorCode.INVALID_TIMESTAMP:
                code = problem[0]
        index += 1
        if index % STEP == 0:
            yield STEP
    if errors:
        what = "invalid timestamp" if code is ErrorCode.INVALID_TIMESTAMP else _first_three(errors, count)
        raise InvalidRecords(code, f"One or more records have been rejected due to {what}", tuple(errors))


def _first_three(errors: list[RecordError], count: int) -> str:
    """As Kafka names them, where older clients look: they know no errors of single records."""
    named = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in errors[:3])
    return f"{count} record errors in total, and only showing the first three errors at most: [{named}]"


def _other_codec(batch: BatchView, config: TopicConfig) -> Codec | None:
    """The topic's codec, None if the batch may stay as it is."""
    if config.compression_type == "producer" or (batch.is_control and not batch.is_compressed):
        return None
    codec = _CODECS[config.compression_type]
    return None if codec is batch.codec else codec


def _recompressed(
    batch: BatchView, codec: Codec, config: TopicConfig, facts: RecordFacts, largest: int
) -> Generator[int, None, BatchView]:
    """The same records in another codec, with consecutive offsets. Raises KafkaError if they become too large."""
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    out = bytearray()
    for piece in compressed(codec, pieces_of(batch) if facts.in_order else renumbered(batch), level):
        out += piece
        if HEADER_SIZE + len(out) > config.max_message_bytes:
            raise _too_large(HEADER_SIZE + len(out), config)
        yield STEP
    packed = pack_batch(
        out,
        codec=codec,
        count=batch.count,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=largest,
        transactional=batch.is_transactional,
        control=batch.is_control,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    return BatchView(memoryview(packed))
