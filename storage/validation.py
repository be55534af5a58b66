"""A leader's checks of what it is asked to append, and what it writes into a batch (kafka-behaviour F3).

As far as it can be told from the header, nothing else is read. In an uncompressed batch the records' lengths must fill
it; keys and timestamps of single records are looked at only where the topic is compacted, where it limits how old a
record may be, or to name the records that are refused. A compressed batch is opened only for that, or to be
recompressed. So a batch's largest timestamp is believed, where Kafka computes it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.batch import (
    MAGIC,
    NO_TIMESTAMP,
    BatchView,
    Codec,
    CorruptBatch,
    TimestampType,
    UnsupportedMagic,
    iter_batches,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.records import DEFAULT_LIMIT, Record, build_batch, iter_records, timestamp_of, validate_lengths
from storage.append_info import InvalidRecords, MalformedRecords, Origin, RecordError

if TYPE_CHECKING:
    from runtime.config.topic_config import TopicConfig

_NO_LIMIT: Final = (1 << 63) - 1
_LOG_APPEND_TIME: Final = "LogAppendTime"
_MAGIC_AT: Final = 16
_CODEC_MASK: Final = 0x07
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def split_batches(records: memoryview) -> list[BatchView]:
    """The whole batches in ``records``.

    Raises MalformedRecords: CORRUPT_MESSAGE, or INVALID_RECORD for the older formats.
    """
    try:
        return list(iter_batches(records))
    except UnsupportedMagic as error:
        old = records[_MAGIC_AT] < MAGIC
        raise MalformedRecords(ErrorCode.INVALID_RECORD if old else ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except CorruptBatch as error:
        raise MalformedRecords(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def validate(batch: BatchView, config: TopicConfig, origin: Origin, now: int) -> BatchView:
    """Check one batch of a client or coordinator at ``now`` (ms); returns it, or what is to be stored in its place.

    Timestamp type and largest timestamp are written into it where the topic says so. Raises KafkaError with Kafka's
    code, InvalidRecords where single records are at fault.
    """
    if origin is Origin.CLIENT and batch.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the base offset of the batch should be 0, it is {batch.base_offset}"
        )
    _check_size(batch, config)
    if not batch.is_valid:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch is not {batch.crc}")
    if origin is Origin.CLIENT:
        _check_header(batch)
    if batch.attributes & _CODEC_MASK > Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {batch.attributes & _CODEC_MASK} is unknown")
    try:
        if not batch.is_compressed:
            validate_lengths(batch)
        _check_records(batch, config, now)
        batch = _in_codec_of_topic(batch, config)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    if config.message_timestamp_type == _LOG_APPEND_TIME:
        batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, now)
    elif batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        batch.set_max_timestamp(TimestampType.CREATE_TIME, batch.max_timestamp)
    return batch


def _check_size(batch: BatchView, config: TopicConfig) -> None:
    if batch.size_in_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {batch.size_in_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )


def _check_header(batch: BatchView) -> None:
    """What a client may not claim."""
    problem = None
    if batch.last_offset_delta < 0:
        problem = f"the batch ends before it begins (last offset delta {batch.last_offset_delta})"
    elif batch.count <= 0:
        problem = f"the batch counts {batch.count} records"
    elif batch.count != batch.last_offset_delta + 1:
        problem = f"the batch counts {batch.count} records and has {batch.last_offset_delta + 1} offsets"
    elif batch.is_control:
        problem = "clients are not allowed to write control records"
    elif batch.has_producer_id and batch.base_sequence < 0:
        problem = f"producer {batch.producer_id} sends sequence {batch.base_sequence}"
    if problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, problem)


def _check_records(batch: BatchView, config: TopicConfig, now: int) -> None:
    """Keys and timestamps; the records are read only where the header leaves a doubt."""
    by_broker = config.message_timestamp_type == _LOG_APPEND_TIME
    claims_broker_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    oldest = now - config.message_timestamp_before_max_ms
    newest = now + config.message_timestamp_after_max_ms
    if (
        batch.max_timestamp > newest
        or (by_broker and claims_broker_time)
        or (claims_broker_time and batch.max_timestamp == NO_TIMESTAMP)
        or config.compacted
        or (config.message_timestamp_before_max_ms != _NO_LIMIT and not by_broker)
    ):
        _read_records(batch, config.compacted, by_broker, oldest, newest)


def _read_records(batch: BatchView, compacted: bool, by_broker: bool, oldest: int, newest: int) -> None:
    errors = []
    code = ErrorCode.INVALID_RECORD
    for index, record in enumerate(iter_records(batch, DEFAULT_LIMIT)):
        if record.offset_delta != index:
            errors.append(RecordError(index, f"the record has offset {record.offset_delta} in the batch"))
        elif compacted and record.key is None and not batch.is_control:
            errors.append(RecordError(index, "Compacted topic cannot accept message without key"))
        elif problem := _timestamp_problem(batch, record, by_broker, oldest, newest):
            errors.append(RecordError(index, problem))
            code = ErrorCode.INVALID_TIMESTAMP
    if errors:
        what = "invalid timestamp" if code is ErrorCode.INVALID_TIMESTAMP else f"{len(errors)} record errors"
        raise InvalidRecords(code, f"One or more records have been rejected due to {what}", tuple(errors))


def _timestamp_problem(batch: BatchView, record: Record, by_broker: bool, oldest: int, newest: int) -> str | None:
    timestamp = timestamp_of(batch, record)
    if not by_broker and timestamp != NO_TIMESTAMP:
        if not oldest <= timestamp <= newest:
            return f"Timestamp {timestamp} is out of range. The timestamp should be within [{oldest}, {newest}]"
    elif batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return "Producer should not set timestamp type to LogAppendTime."
    return None


def _in_codec_of_topic(batch: BatchView, config: TopicConfig) -> BatchView:
    if config.compression_type == "producer" or batch.is_control:
        return batch
    codec = _CODECS[config.compression_type]
    if codec is not batch.codec:
        batch = _recompressed(batch, codec, config)
        _check_size(batch, config)
    return batch


def _recompressed(batch: BatchView, codec: Codec, config: TopicConfig) -> BatchView:
    """The same records in another codec."""
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    return BatchView(
        memoryview(
            bytearray(
                build_batch(
                    iter_records(batch, DEFAULT_LIMIT),
                    base_timestamp=batch.base_timestamp,
                    codec=codec,
                    level=level,
                    timestamp_type=batch.timestamp_type,
                    max_timestamp=batch.max_timestamp,
                    last_offset_delta=batch.last_offset_delta,
                    transactional=batch.is_transactional,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    base_sequence=batch.base_sequence,
                )
            )
        )
    )
