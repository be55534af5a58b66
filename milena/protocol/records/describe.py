"""Batches and records as lines of text, like Kafka's DumpLogSegments.

Each batch is one line, and each of its records one line that begins with ``|``. Records of the metadata log, of
``__consumer_offsets``, of ``__transaction_state`` and of control batches are shown as JSON with Kafka's field names,
ids in Kafka's text form, and bytes in base64. Keys and values that cannot be decoded are shown as hex with the reason.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import Enum
from typing import Final
from uuid import UUID

from milena.protocol.metadata_records import decode_versioned_record
from milena.protocol.records.batch import NO_SEQUENCE, BatchView, CorruptBatch, TimestampType
from milena.protocol.records.control_records import ControlType, UnknownControl, control_of
from milena.protocol.records.coordinator_records import CoordinatorValue, UnknownKey, decode_key, decode_value
from milena.protocol.records.record_cursor import DEFAULT_LIMIT
from milena.protocol.records.records import Record, iter_records, offset_of, timestamp_of
from milena.protocol.records.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
    decode_transaction_key,
    decode_transaction_value,
)
from milena.protocol.schemas.primitives import Reader
from milena.protocol.schemas.schema import Entity
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTION_TOPIC
from milena.protocol.uuids import to_text


class Content(Enum):
    """The kind of records in a log."""

    DATA = "data"
    METADATA = "metadata"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"

    @classmethod
    def of_topic(cls, topic: str) -> Content:
        return {
            METADATA_TOPIC: cls.METADATA,
            OFFSETS_TOPIC: cls.OFFSETS,
            TRANSACTION_TOPIC: cls.TRANSACTIONS,
        }.get(topic, cls.DATA)


def describe_batch(
    batch: BatchView,
    position: int,
    content: Content = Content.DATA,
    *,
    records: bool = True,
    limit: int = DEFAULT_LIMIT,
) -> Iterator[str]:
    """Yield the lines of the batch at ``position`` in its file; ``records``: with its records.

    ``limit``: maximum decompressed bytes. A damaged batch ends with a line that gives the reason; no error is raised.
    """
    yield _batch_line(batch, position)
    if not records:
        return
    damage = None
    try:
        for record in iter_records(batch, limit):
            yield _record_line(batch, record, content)
    except CorruptBatch as error:
        damage = f"| the records cannot be read: {error}"
    if damage is not None:
        yield damage


def describe_entity(entity: Entity, version: int) -> dict[str, object]:
    """Return the fields of the version by Kafka's names, as JSON values; tagged fields with their default are
    omitted."""
    fields_shown = {}
    for spec in fields(entity):
        value = getattr(entity, spec.name)
        since, until = spec.metadata.get("since", 0), spec.metadata.get("until", version)
        if since <= version <= until and not ("tag" in spec.metadata and value == spec.default):
            fields_shown[_camel_case(spec.name)] = _plain(value, version)
    return fields_shown


def _batch_line(batch: BatchView, position: int) -> str:
    fields_shown = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        **({"deleteHorizonMs": batch.base_timestamp} if batch.has_delete_horizon else {}),
        "position": position,
        _timestamp_name(batch): batch.max_timestamp,
        "size": batch.size_in_bytes,
        "magic": batch.magic,
        "compresscodec": _codec_name(batch),
        "crc": batch.crc,
        "isvalid": batch.is_valid,
    }
    return _line(fields_shown)


def _record_line(batch: BatchView, record: Record, content: Content) -> str:
    fields_shown: dict[str, object] = {
        "offset": offset_of(batch, record),
        _timestamp_name(batch): timestamp_of(batch, record),
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if batch.base_sequence != NO_SEQUENCE:
        fields_shown["sequence"] = (batch.base_sequence + record.offset_delta) & 0x7FFF_FFFF
    if record.headers:
        fields_shown["headers"] = (
            "{" + ", ".join(f"{_text(key)}: {_show(value)}" for key, value in record.headers) + "}"
        )
    if batch.is_control:
        fields_shown["control"] = _readable(lambda: _control(record), record.value)
    elif content is Content.METADATA:
        fields_shown["payload"] = _readable(lambda: _metadata(record), record.value)
    elif content is Content.OFFSETS:
        fields_shown["key"] = _readable(lambda: _coordinator_key(record), record.key)
        fields_shown["payload"] = _readable(lambda: _coordinator_value(record), record.value)
    elif content is Content.TRANSACTIONS:
        fields_shown["key"] = _readable(lambda: _transaction_key(record), record.key)
        fields_shown["payload"] = _readable(lambda: _transaction_value(record), record.value)
    else:
        fields_shown["key"], fields_shown["payload"] = _show(record.key), _show(record.value)
    return "| " + _line(fields_shown)


def _readable(describe: Callable[[], object], raw: bytes | None) -> str:
    try:
        return json.dumps(describe(), ensure_ascii=False)
    except ValueError as error:
        return f"{_hex(raw)} ({error})"


def _control(record: Record) -> dict[str, object]:
    control = control_of(record)
    if isinstance(control, UnknownControl):
        return {"type": f"UNKNOWN ({control.type})", "value": control.value.hex()}
    assert record.value is not None
    version = min(Reader(record.value).int16(), control.__version__)
    return {"type": ControlType(control.TYPE).name, "version": version, "data": describe_entity(control, version)}


def _metadata(record: Record) -> dict[str, object]:
    if record.value is None:
        raise DecodeError("a metadata record without a value")
    decoded, version = decode_versioned_record(record.value)
    return {"type": _upper_case(type(decoded).__name__), "version": version, "data": describe_entity(decoded, version)}


def _coordinator_key(record: Record) -> dict[str, object]:
    if record.key is None:
        raise DecodeError("a record of the coordinator without a key")
    key = decode_key(record.key)
    if isinstance(key, UnknownKey):
        return {"type": f"UNKNOWN ({key.type})", "data": key.data.hex()}
    return {"type": _upper_case(type(key).__name__.removesuffix("Key")), "data": describe_entity(key, 0)}


def _coordinator_value(record: Record) -> dict[str, object] | None:
    if record.key is None:
        raise DecodeError("a record of the coordinator without a key")
    value = decode_value(decode_key(record.key), record.value)
    if value is None or record.value is None:
        return None
    version = Reader(record.value).int16()
    if isinstance(value, CoordinatorValue):
        return {"version": version, "data": describe_entity(value, version)}
    return {"version": version, "data": value.data.hex()}


def _transaction_key(record: Record) -> dict[str, object]:
    if record.key is None:
        raise DecodeError("a record of the coordinator without a key")
    key = decode_transaction_key(record.key)
    if isinstance(key, TransactionLogKey):
        return {"type": "TRANSACTION_LOG", "data": describe_entity(key, 0)}
    return {"type": f"UNKNOWN ({key.type})", "data": key.data.hex()}


def _transaction_value(record: Record) -> dict[str, object] | None:
    """Return the value, with the state by its name as in Kafka's tool."""
    value = decode_transaction_value(record.value)
    if value is None or record.value is None:
        return None
    if not isinstance(value, TransactionLogValue):
        return {"version": value.version, "data": value.data.hex()}
    version = Reader(record.value).int16()
    shown = describe_entity(value, version)
    return {"version": version, "data": {**shown, "transactionStatus": _state_name(value.transaction_status)}}


def _state_name(number: int) -> str:
    try:
        return TransactionState(number).label
    except ValueError:
        return f"UNKNOWN ({number})"


def _plain(value: object, version: int) -> object:
    match value:
        case Entity():
            return describe_entity(value, version)
        case tuple():
            return [_plain(element, version) for element in value]
        case UUID():
            return to_text(value)
        case bytes():
            return b64encode(value).decode("ascii")
        case _:
            return value


def _codec_name(batch: BatchView) -> str:
    try:
        return batch.codec.name.lower()
    except CorruptBatch as error:
        return f"({error})"


def _timestamp_name(batch: BatchView) -> str:
    return "LogAppendTime" if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def _line(fields_shown: dict[str, object]) -> str:
    return " ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in fields_shown.items()
    )


def _show(value: bytes | None) -> str:
    """Return printable text as it is, other UTF-8 as a JSON string, and other bytes as hex."""
    if value is None:
        return "null"
    try:
        return _text(value.decode())
    except UnicodeDecodeError:
        return _hex(value)


def _text(value: str) -> str:
    return value if value.isprintable() else json.dumps(value)


def _hex(value: bytes | None) -> str:
    return "null" if value is None else f"0x{value.hex()}"


_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _upper_case(name: str) -> str:
    return _WORD.sub("_", name).upper()


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
