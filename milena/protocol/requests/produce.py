"""Produce (0), v3 to v13: hand-written codecs. Decoded records are views of the frame.

v5 log start offset, v8 record errors (KIP-467), v9 flexible, v10 current leader and node endpoints (KIP-951),
v13 topic ids instead of names (KIP-516). Topics are ``(name, topic_id, partitions)``; the name or id that the
version lacks is None. A test compares the codecs with kio's.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from milena.protocol.cooperative import Cooperative, YieldBudget, run_now
from milena.protocol.limits import MAX_PRODUCED
from milena.protocol.requests.leaders import (
    CurrentLeader,
    NodeEndpoint,
    decode_current_leader,
    decode_node_endpoints,
    encode_current_leader,
    encode_node_endpoints,
)
from milena.protocol.requests.scan import (
    count_at,
    decoding,
    decoding_cooperatively,
    expect_within,
    length_at,
    nullable_text_at,
    tags_end,
)
from milena.protocol.requests.topics import topic_at, write_topic
from milena.protocol.schemas.primitives import Data, Reader, Writer, shortened
from milena.protocol.schemas.undecodable import TooManyElements

ProduceTopic: TypeAlias = "tuple[str | None, UUID | None, list[tuple[int, memoryview | None]]]"


class ProduceRequest(NamedTuple):
    """A Produce request. ``acks`` is not validated. Each topic has ``(partition, records)`` pairs."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    """A refused record of a batch. ``batch_index`` is its index in the batch, from 0."""

    batch_index: int
    message: str | None = None


class ProducedPartition(NamedTuple):
    """The response for one partition. Offsets and the time are -1 if absent."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


ProducedTopic: TypeAlias = "tuple[str | None, UUID | None, Sequence[ProducedPartition]]"


class ProduceResponse(NamedTuple):
    """A Produce response."""

    topics: list[ProducedTopic]
    throttle_time_ms: int
    node_endpoints: tuple[NodeEndpoint, ...]


_ACKS_TIMEOUT: Final = Struct(">hi")
_INT32: Final = Struct(">i")


@decoding
def decode_produce_request(version: int, body: Data, limit: int = MAX_PRODUCED) -> ProduceRequest:
    """Decode the request in ``body``; its records are views of ``body``. Bytes after the request are ignored. Raises
    DecodeError, and TooManyElements for more topics and partitions than ``limit``, before they are read."""
    return run_now(_decode_request(version, body if isinstance(body, memoryview) else memoryview(body), limit))


def decode_large_produce_request(version: int, body: memoryview) -> Cooperative[ProduceRequest]:
    """Like ``decode_produce_request``, with yields between elements."""
    return decoding_cooperatively(_decode_request(version, body, MAX_PRODUCED), len(body))


def _decode_request(version: int, data: memoryview, limit: int) -> Cooperative[ProduceRequest]:
    budget = YieldBudget()
    flexible, by_id = version >= 9, version >= 13
    transactional_id, pos = nullable_text_at(data, 0, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, pos)
    elements, pos = count_at(data, pos + 6, flexible)
    if elements > limit:
        raise TooManyElements(limit)
    topics: list[ProduceTopic] = []
    topic_count = elements  # mypyc evaluates the end of a range in each iteration
    for _ in range(topic_count):
        name, topic_id, pos = topic_at(data, pos, by_id, flexible)
        count, pos = count_at(data, pos, flexible)
        elements += count
        if elements > limit:
            raise TooManyElements(limit)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            partition = _INT32.unpack_from(data, pos)[0]
            length, pos = length_at(data, pos + 4, flexible)
            if length < 0:
                partitions.append((partition, None))
            else:
                end = pos + length
                partitions.append((partition, data[pos:end]))
                pos = end
            if flexible:
                pos = pos + 1 if data[pos] == 0 else tags_end(data, pos)
            if budget.spend(1):
                yield
        if flexible:
            pos = tags_end(data, pos)
        topics.append((name, topic_id, partitions))
        if budget.spend(1):
            yield
    if flexible:
        pos = tags_end(data, pos)
    expect_within(data, pos)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_request(version: int, request: ProduceRequest) -> bytes:
    """Return the body of a request. Topics need a name below v13 and an id from v13 on."""
    flexible, by_id = version >= 9, version >= 13
    out = Writer()
    write_array = out.compact_array if flexible else out.array
    write_records = out.compact_nullable_blob if flexible else out.nullable_blob
    (out.compact_nullable_string if flexible else out.nullable_string)(request.transactional_id)
    out.data += _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
    write_array(len(request.topics))
    for name, topic_id, partitions in request.topics:
        write_topic(out, name, topic_id, by_id, flexible)
        write_array(len(partitions))
        for partition, records in partitions:
            out.int32(partition)
            write_records(records)
            if flexible:
                out.data.append(0)
        if flexible:
            out.data.append(0)
    if flexible:
        out.data.append(0)
    return bytes(out)


_V3: Final = Struct(">ihqq")
_V5: Final = Struct(">ihqqq")
_V8: Final = Struct(">ihqqqih")
_V9: Final = Struct(">ihqqqBBB")


def encode_produce_response(
    version: int,
    topics: Sequence[ProducedTopic],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return the body of a response. Fields that a version lacks are omitted. Error codes that an old version does not
    know are not translated."""
    flexible, by_id = version >= 9, version >= 13
    out = Writer()
    (out.compact_array if flexible else out.array)(len(topics))
    for name, topic_id, partitions in topics:
        write_topic(out, name, topic_id, by_id, flexible)
        if flexible:
            out.compact_array(len(partitions))
            for result in partitions:
                partition, error_code, base_offset, append_time, log_start, errors, message, leader = result
                if not errors and message is None and leader is None:
                    # No record errors, no message, no tagged fields.
                    out.data += _V9.pack(partition, error_code, base_offset, append_time, log_start, 1, 0, 0)
                else:
                    _write_flexible(out, version, result)
            out.data.append(0)
        else:
            out.array(len(partitions))
            for result in partitions:
                _write_legacy(out, version, result)
    out.int32(throttle_time_ms)
    if flexible:
        if node_endpoints and version >= 10:
            out.data.append(1)
            out.tag(0, encode_node_endpoints(node_endpoints))
        else:
            out.data.append(0)
    return bytes(out)


def _write_flexible(out: Writer, version: int, result: ProducedPartition) -> None:
    out.data += _V5.pack(*result[:5])
    out.compact_array(len(result.record_errors))
    for index, message in result.record_errors:
        out.int32(index)
        out.compact_nullable_string(shortened(message))
        out.data.append(0)
    out.compact_nullable_string(shortened(result.error_message))
    if result.current_leader is not None and version >= 10:
        out.data.append(1)
        out.tag(0, encode_current_leader(result.current_leader))
    else:
        out.data.append(0)


def _write_legacy(out: Writer, version: int, result: ProducedPartition) -> None:
    if version < 5:
        out.data += _V3.pack(*result[:4])
    elif version < 8:
        out.data += _V5.pack(*result[:5])
    elif not result.record_errors and result.error_message is None:
        out.data += _V8.pack(*result[:5], 0, -1)
    else:
        out.data += _V5.pack(*result[:5])
        out.array(len(result.record_errors))
        for index, message in result.record_errors:
            out.int32(index)
            out.nullable_string(shortened(message))
        out.nullable_string(shortened(result.error_message))


def decode_produce_response(version: int, body: Data) -> ProduceResponse:
    """Decode the response in ``body``. Raises DecodeError."""
    flexible = version >= 9
    reader = Reader(body)
    read_array = reader.compact_array if flexible else reader.array
    topics: list[ProducedTopic] = []
    for _ in range(read_array()):
        name = topic_id = None
        if version >= 13:
            topic_id = reader.uuid()
        else:
            name = reader.compact_string() if flexible else reader.string()
        partitions = [_read_partition(reader, version, flexible) for _ in range(read_array())]
        if flexible:
            reader.skip_tags()
        topics.append((name, topic_id, partitions))
    throttle_time_ms = reader.int32()
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        for tag, content in reader.tags():
            if tag == 0:
                endpoints = decode_node_endpoints(content.data)
    reader.expect_end()
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _read_partition(reader: Reader, version: int, flexible: bool) -> ProducedPartition:
    partition, error_code = reader.int32(), reader.int16()
    base_offset, append_time = reader.int64(), reader.int64()
    log_start = reader.int64() if version >= 5 else -1
    errors: list[RecordError] = []
    message: str | None = None
    leader: CurrentLeader | None = None
    if version >= 8:
        read_text = reader.compact_nullable_string if flexible else reader.nullable_string
        for _ in range(reader.compact_array() if flexible else reader.array()):
            errors.append(RecordError(reader.int32(), read_text()))
            if flexible:
                reader.skip_tags()
        message = read_text()
    if flexible:
        for tag, content in reader.tags():
            if tag == 0:
                leader = decode_current_leader(content.data)
    return ProducedPartition(partition, error_code, base_offset, append_time, log_start, errors, message, leader)
