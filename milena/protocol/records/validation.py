"""The checks of a leader before an append, like Kafka's ``LogValidator`` (docs/kafka-semantics.md: Produce).

Every record of every batch is checked, compressed or not, and the largest timestamp of the batch is taken from its
records. The check is done in steps with bounded memory, since a batch may expand to any size when it is decompressed.
Records are read a second time only to report refused ones, or to recompress them.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIME_OF_APPEND,
    BatchView,
    Codec,
    CorruptBatch,
    TimestampType,
)
from milena.protocol.records.compression import compressed
from milena.protocol.records.record_cursor import UNLIMITED_RECORD, too_large
from milena.protocol.records.record_scan import (
    STEP,
    RecordFacts,
    RecordHead,
    heads_of,
    pieces_of,
    renumbered,
    scan_few_records,
    scan_records,
)
from milena.protocol.types import LeaderEpoch, Offset, TopicPartition

LOG_APPEND_TIME: Final = "LogAppendTime"
MAX_RECORD_ERRORS: Final = 1000
"""The maximum number of record errors in a response. Kafka reports all, which may be millions for a compressed
batch."""
Steps: TypeAlias = Generator[int, None, None]
"""A check in progress. Yields the estimated work since the last step, in records."""
_CODEC_MASK: Final = 0x07
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Origin(Enum):
    """The source of a batch that is appended to a leader's log (Kafka's ``AppendOrigin``). It determines the checks."""

    CLIENT = "client"
    """A producer: all of Kafka's checks."""
    COORDINATOR = "coordinator"
    """The broker itself, for groups and transactions: it may write control batches, and its batches have no
    sequences."""
    RAFT = "raft"
    """The controller, for the metadata log: any number of batches, whose records are not checked."""


class RecordError(NamedTuple):
    """The error of one record: its index in the batch, and the reason."""

    record: int
    message: str


class InvalidRecords(KafkaError):
    """A batch was refused because of some of its records (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = errors


class TopicRules(Protocol):
    """The part of a topic's configuration that the checks use (``config.topic_config.TopicConfig``)."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def max_decompressed_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def compacted(self) -> bool: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...


class LogValidator:
    """Checks one batch of a client or coordinator, and assigns its offsets and timestamp when it is appended.

    The constructor checks a batch with few uncompressed records completely. Others are checked in steps by ``advance``.
    After that ``batch`` is the batch to append, once ``assign`` was called. ``config`` is the topic's configuration at
    the start. If it has changed at the end, the batch must be checked again.

    The constructor and ``advance`` raise KafkaError with Kafka's code if the batch is refused, InvalidRecords if single
    records are.
    """

    __slots__ = (
        "_by_broker",
        "_largest",
        "_newest",
        "_oldest",
        "_other_codec",
        "_partition",
        "_steps",
        "batch",
        "config",
        "origin",
    )

    def __init__(
        self, batch: BatchView, config: TopicRules, origin: Origin, *, now: int, partition: TopicPartition
    ) -> None:
        """``now``: the time (ms) for the limits of timestamps. ``partition`` is named in error messages."""
        self.batch = batch
        self.config = config
        self.origin = origin
        self._partition = partition
        self._by_broker = config.message_timestamp_type == LOG_APPEND_TIME
        self._oldest = now - config.message_timestamp_before_max_ms
        self._newest = now + config.message_timestamp_after_max_ms
        self._check_header()
        self._other_codec = _codec_to_change_to(batch, config.compression_type)
        self._largest = NO_TIMESTAMP
        """The largest timestamp of the records (ms), known after the scan."""
        self._steps: Steps | None = None
        try:
            facts = scan_few_records(batch)
            if facts is not None:
                self._largest = _largest_timestamp(batch, facts)
            if facts is None or self._other_codec is not None or self._may_refuse(facts):
                self._steps = self._check_in_steps(facts)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error

    @property
    def is_finished(self) -> bool:
        """Whether the check is complete, so that ``batch`` may be appended."""
        return self._steps is None

    @property
    def log_append_time(self) -> int:
        """The time (ms) that ``assign`` wrote into the batch of a topic with LogAppendTime, else -1."""
        return self.batch.max_timestamp if self._by_broker else NO_TIMESTAMP

    def advance(self) -> int | None:
        """Do one step of the check. Returns the estimated work, in records; None if the check is complete."""
        if self._steps is None:
            return None
        try:
            return next(self._steps)
        except StopIteration:
            self._steps = None
            return None

    def finish(self) -> None:
        """Run the check to its end, without pauses."""
        while self.advance() is not None:
            pass

    def assign(self, offset: Offset, leader_epoch: LeaderEpoch, now: int) -> None:
        """Write into the batch the offset of its first record, the leader epoch, and its largest timestamp, which is
        ``now`` (ms) for topics with LogAppendTime."""
        if self._by_broker:
            self.batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, now)
        else:
            self.batch.set_max_timestamp(TimestampType.CREATE_TIME, self._largest)
        self.batch.assign(offset, leader_epoch)

    def _check_header(self) -> None:
        """Refuse a batch that is damaged or too large, or with a header that the origin may not send."""
        batch, of_client = self.batch, self.origin is Origin.CLIENT
        if of_client and batch.base_offset != 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"the base offset of the batch should be 0, it is {batch.base_offset}"
            )
        # A marker that is too large for its topic would leave a transaction open for ever.
        if len(batch.memory) > self.config.max_message_bytes and (of_client or not batch.is_control):
            raise _too_large(len(batch.memory), self.config.max_message_bytes)
        if not batch.is_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch is not {batch.crc}")
        problem = None
        if not of_client:
            pass  # the broker's own batches may be control batches, and have no sequences
        elif batch.last_offset_delta < 0:
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
        codec = batch.attributes & _CODEC_MASK
        if codec > Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is unknown")

    def _check_in_steps(self, facts: RecordFacts | None) -> Steps:
        """Check the records, and replace the batch if the topic needs another codec. ``facts``: the result of the scan,
        None if it is not done yet."""
        batch, codec, limit = self.batch, self._other_codec, self.config.max_message_bytes
        try:
            if facts is None:
                facts = yield from scan_records(pieces_of(batch), batch.count, batch.codec)
                self._largest = _largest_timestamp(batch, facts)
            if self._may_refuse(facts):
                yield from self._report_refused()
            if codec is None:
                if batch.is_compressed and not facts.in_order:
                    raise CorruptBatch("the offsets of the records in a compressed batch are not 0, 1, 2...")
                return
            pieces = pieces_of(batch) if facts.in_order else renumbered(batch)
            records = bytearray()
            for piece in compressed(codec, pieces, _level(self.config, codec)):
                records += piece
                # Checked at each piece, so that a batch that grows cannot use more memory.
                if HEADER_SIZE + len(records) > limit:
                    raise _too_large(HEADER_SIZE + len(records), limit)
                yield STEP
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        self.batch = batch.with_records(records, codec, max_timestamp=self._largest)

    def _may_refuse(self, facts: RecordFacts) -> bool:
        """Whether records may have to be refused, so that each must be checked. A missing timestamp counts as old."""
        batch, largest = self.batch, self._largest
        if batch.is_compressed and self.config.max_decompressed_message_bytes < UNLIMITED_RECORD:
            return True
        if facts.keyless and self.config.compacted and not batch.is_control:
            return True
        if batch.attributes & TIME_OF_APPEND:
            return self._by_broker or not self._oldest <= largest <= self._newest or largest == NO_TIMESTAMP
        smallest = batch.base_timestamp + facts.smallest_delta
        return not self._by_broker and (largest > self._newest or smallest < self._oldest)

    def _report_refused(self) -> Steps:
        """Read each record again, and raise InvalidRecords with the refused ones, if there are any. Raises KafkaError
        (INVALID_RECORD) for a compressed record above ``max.decompressed.message.bytes``."""
        errors: list[RecordError] = []
        code = ErrorCode.INVALID_RECORD
        count = index = 0
        for head in heads_of(self.batch):
            if isinstance(head, int):
                yield head
                continue
            if self.batch.is_compressed and head.size > (limit := self.config.max_decompressed_message_bytes):
                raise KafkaError(ErrorCode.INVALID_RECORD, too_large(head.size, limit))
            if (problem := self._problem(head)) is not None:
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

    def _problem(self, head: RecordHead) -> tuple[ErrorCode, str] | None:
        """Return the error of a record, None if it is valid."""
        batch = self.batch
        if self.config.compacted and not head.has_key and not batch.is_control:
            topic, partition = self._partition
            return (
                ErrorCode.INVALID_RECORD,
                f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}",
            )
        claimed = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        timestamp = batch.max_timestamp if claimed else batch.base_timestamp + head.timestamp_delta
        if not self._by_broker and timestamp != NO_TIMESTAMP:
            if not self._oldest <= timestamp <= self._newest:
                message = f"Timestamp {timestamp} of message with offset {batch.base_offset + head.offset_delta}"
                within = f"[{self._oldest}, {self._newest}]"
                return (
                    ErrorCode.INVALID_TIMESTAMP,
                    f"{message} is out of range. The timestamp should be within {within}",
                )
        elif claimed:
            return ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime."
        return None


def _largest_timestamp(batch: BatchView, facts: RecordFacts) -> int:
    """Return the largest timestamp of the records (ms). Raises CorruptBatch if one does not fit into 64 bits."""
    if batch.attributes & TIME_OF_APPEND:
        return max(NO_TIMESTAMP, batch.max_timestamp)
    smallest, largest = batch.base_timestamp + facts.smallest_delta, batch.base_timestamp + facts.largest_delta
    if smallest < -1 << 63 or largest >= 1 << 63:
        raise CorruptBatch("a timestamp of more than 64 bits")
    return largest if largest > NO_TIMESTAMP else NO_TIMESTAMP


def _codec_to_change_to(batch: BatchView, compression: str) -> Codec | None:
    """Return the codec of ``compression.type``, None if the batch may keep its own."""
    if compression == "producer" or (batch.is_control and not batch.is_compressed):
        return None
    codec = _CODECS[compression]
    return None if codec is batch.codec else codec


def _level(config: TopicRules, codec: Codec) -> int | None:
    """Return the configured level of ``codec``, None if it has none."""
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def _too_large(size: int, limit: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {limit}")


def _first_three(errors: list[RecordError], count: int) -> str:
    """Return Kafka's error message, for older clients, which do not read the errors of single records."""
    named = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in errors[:3])
    return f"{count} record errors in total, and only showing the first three errors at most: [{named}]"
