"""The checks of a leader before an append, like Kafka's ``LogValidator`` (docs/kafka-semantics.md: Produce).

Every record of every batch is checked, compressed or not, and the largest timestamp of the batch is taken from its
records. The check is done in steps with bounded memory, since a batch may expand to any size when it is decompressed.
Records are read a second time only to report refused ones, or to recompress them.
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
    RecordFacts,
    RecordHead,
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
"""The maximum number of record errors in a response. Kafka reports all, which may be millions for a compressed
batch."""
Steps: TypeAlias = Generator[int, None, None]
"""A check in progress. Yields the estimated work since the last step, in records."""
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
    """The part of a log that the checks need."""

    @property
    def config(self) -> TopicConfig: ...


def split_batches(records: memoryview) -> list[BatchView]:
    """Return the complete batches in ``records``.

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


def check_crc(batch: BatchView) -> None:
    """Raise KafkaError CORRUPT_MESSAGE if the checksum of ``batch`` is wrong."""
    if not batch.is_valid:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch at {batch.base_offset} is not {batch.crc}"
        )


class LogValidator:
    """Checks one batch of a client or coordinator before it is appended.

    The constructor checks a batch with few uncompressed records completely. Others are checked in steps by ``advance``.
    After that, ``batch`` is the batch to append, with the largest timestamp of its records; with LogAppendTime the
    append sets the timestamp. ``config`` is the configuration of the log at the start. If it has changed at the end,
    the batch must be checked again.

    The constructor and ``advance`` raise KafkaError with Kafka's code if the batch is refused, InvalidRecords if single
    records are.
    """

    __slots__ = ("_by_broker", "_log", "_newest", "_oldest", "_steps", "batch", "config", "origin")

    def __init__(self, log: ConfiguredLog, records: memoryview, origin: Origin, now: int) -> None:
        """``records``: one batch. ``now``: the time (ms) for the limits of timestamps."""
        batches = split_batches(records)
        if len(batches) != 1:
            raise MalformedRecords(
                ErrorCode.INVALID_RECORD, f"exactly one record batch is expected, there are {len(batches)}"
            )
        self.batch = batches[0]
        self.origin = origin
        config = self.config = log.config
        self._log = log
        self._by_broker = config.message_timestamp_type == LOG_APPEND_TIME
        self._oldest = now - config.message_timestamp_before_max_ms
        self._newest = now + config.message_timestamp_after_max_ms
        self._steps: Steps | None = None
        self._check_header()
        self._check_few_records()

    @property
    def is_finished(self) -> bool:
        """Whether the check is complete, so that ``batch`` may be appended."""
        return self._steps is None

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

    def _check_header(self) -> None:
        """Refuse a batch that is damaged or too large, or with a header that the origin may not send."""
        batch, of_client = self.batch, self.origin is Origin.CLIENT
        if of_client and batch.base_offset != 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"the base offset of the batch should be 0, it is {batch.base_offset}"
            )
        if len(batch.memory) > self.config.max_message_bytes:
            raise self._too_large(len(batch.memory))
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

    def _check_few_records(self) -> None:
        """Check few uncompressed records at once; leave others to ``advance``."""
        try:
            facts = scan_few_records(self.batch)
            if facts is not None:
                largest = self._largest_timestamp(facts)
                if not self._may_refuse(facts, largest) and self._other_codec() is None:
                    self._set_timestamp(largest)
                    return
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        self._steps = self._check_in_steps(facts)

    def _check_in_steps(self, facts: RecordFacts | None) -> Steps:
        """Check the records. ``facts``: the result of the scan, None if it is not done yet."""
        batch = self.batch
        try:
            if facts is None:
                facts = yield from scan_records(pieces_of(batch), batch.count, batch.codec)
            largest = self._largest_timestamp(facts)
            if self._may_refuse(facts, largest):
                yield from self._report_refused()
            codec = self._other_codec()
            if codec is not None:
                yield from self._recompress(codec, facts, largest)
            elif batch.is_compressed and not facts.in_order:
                raise CorruptBatch("the offsets of the records in a compressed batch are not 0, 1, 2...")
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        self._set_timestamp(largest)

    def _set_timestamp(self, largest: int) -> None:
        if not self._by_broker:
            self.batch.set_max_timestamp(TimestampType.CREATE_TIME, largest)

    def _largest_timestamp(self, facts: RecordFacts) -> int:
        """Return the largest timestamp of the records (ms). Raises CorruptBatch if one does not fit into 64 bits."""
        batch = self.batch
        if batch.attributes & TIME_OF_APPEND:
            return max(NO_TIMESTAMP, batch.max_timestamp)
        smallest, largest = batch.base_timestamp + facts.smallest_delta, batch.base_timestamp + facts.largest_delta
        if smallest < -1 << 63 or largest >= 1 << 63:
            raise CorruptBatch("a timestamp of more than 64 bits")
        return largest if largest > NO_TIMESTAMP else NO_TIMESTAMP

    def _may_refuse(self, facts: RecordFacts, largest: int) -> bool:
        """Whether records may have to be refused, so that each must be checked. A missing timestamp counts as old."""
        batch = self.batch
        if facts.keyless and self.config.compacted and not batch.is_control:
            return True
        if batch.attributes & TIME_OF_APPEND:
            return self._by_broker or not self._oldest <= largest <= self._newest or largest == NO_TIMESTAMP
        smallest = batch.base_timestamp + facts.smallest_delta
        return not self._by_broker and (largest > self._newest or smallest < self._oldest)

    def _report_refused(self) -> Steps:
        """Read each record again, and raise InvalidRecords with the refused ones, if there are any."""
        errors: list[RecordError] = []
        code = ErrorCode.INVALID_RECORD
        count = index = 0
        for head in heads_of(self.batch):
            if isinstance(head, int):
                yield head
                continue
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
            where = f"{self._log.topic}-{self._log.partition}"
            return (
                ErrorCode.INVALID_RECORD,
                f"Compacted topic cannot accept message without key in topic partition {where}",
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

    def _other_codec(self) -> Codec | None:
        """Return the codec for recompression, None if the batch has the right one."""
        batch, compression = self.batch, self.config.compression_type
        if compression == "producer" or (batch.is_control and not batch.is_compressed):
            return None
        codec = _CODECS[compression]
        return None if codec is batch.codec else codec

    def _recompress(self, codec: Codec, facts: RecordFacts, largest: int) -> Steps:
        """Replace the batch by one with the same records, compressed with ``codec``, with consecutive offsets. Raises
        KafkaError if it becomes too large."""
        batch, config = self.batch, self.config
        level = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }.get(codec)
        out = bytearray()
        for piece in compressed(codec, pieces_of(batch) if facts.in_order else renumbered(batch), level):
            out += piece
            # Checked at each piece, so that a batch that grows cannot use more memory.
            if HEADER_SIZE + len(out) > config.max_message_bytes:
                raise self._too_large(HEADER_SIZE + len(out))
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
        self.batch = BatchView(memoryview(packed))

    def _too_large(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, max.message.bytes is {self.config.max_message_bytes}",
        )


def _first_three(errors: list[RecordError], count: int) -> str:
    """Return Kafka's error message, for older clients, which do not read the errors of single records."""
    named = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in errors[:3])
    return f"{count} record errors in total, and only showing the first three errors at most: [{named}]"
