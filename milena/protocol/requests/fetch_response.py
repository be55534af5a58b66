"""The hand-written codec of Fetch responses, v4 to v18; ``protocol.requests.fetch`` lists the versions' fields."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from milena.protocol.requests.frames import Part, part_length
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
    expect_end,
    length_at,
    tag_at,
    tags_end,
    uuid_of,
    uvarint_at,
)
from milena.protocol.requests.topics import topic_at, write_topic
from milena.protocol.schemas.primitives import Data, Writer


class AbortedTransaction(NamedTuple):
    """An aborted transaction: read_committed consumers skip this producer's records from this offset to the abort
    marker."""

    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    """The leader's largest epoch that is not above the follower's, and the end offset of that epoch in the leader's
    log."""

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """A snapshot of the metadata log."""

    end_offset: int
    epoch: int


class FetchedPartition(NamedTuple):
    """The response for one partition. ``records`` is bytes, or an object with a ``length`` such as a range of a file.

    ``aborted`` is None for read_uncommitted. Offsets are -1 if absent.
    """

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Part | None = b""
    aborted: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None
    snapshot_id: SnapshotId | None = None


FetchedTopic: TypeAlias = "tuple[str | None, UUID | None, Sequence[FetchedPartition]]"


class FetchResponse(NamedTuple):
    """A Fetch response."""

    topics: Sequence[FetchedTopic]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


_INT32: Final = Struct(">i")
_TOP: Final = Struct(">ihi")
_PAIR: Final = Struct(">qq")
_EPOCH_END: Final = Struct(">iq")
_SNAPSHOT: Final = Struct(">qi")
_STATE_V4: Final = Struct(">ihqq")
_STATE_V5: Final = Struct(">ihqqq")
_STATE_V12: Final = Struct(">ihqqqBi")
"""The fields of a partition up to its log start, a null or empty array of aborted transactions, the preferred read
replica."""
_ONE_V13: Final = Struct(">ihiB16sBihqqqBi")
"""The response up to the records, if it has one topic with one partition and no aborted transactions."""
_ONE: Final = 2
"""The length of a compact array with one element, as encoded (length + 1)."""
_NO_TAGGED_FIELDS: Final = [None, None, None]
"""The tagged fields of a partition without diverging epoch, current leader and snapshot id."""
_NO_TAGS: Final = b"\0\0\0"
"""The empty tagged fields of the partition, its topic, and the response."""


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchedTopic],
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """Return the body of a response in parts; each non-empty ``records`` is a part of its own.

    Fields that a version lacks are omitted. Error codes that an old version does not know are not translated.
    """
    if version >= 13 and len(topics) == 1 and not node_endpoints and len(topics[0][2]) == 1:
        one = _encode_one(topics[0], error_code, session_id, throttle_time_ms)
        if one is not None:
            return one
    if version < 12:
        return _encode_legacy(version, topics, error_code, session_id, throttle_time_ms)
    parts: list[Part] = []
    out = Writer(_TOP.pack(throttle_time_ms, error_code, session_id))
    out.compact_array(len(topics))
    for name, topic_id, partitions in topics:
        write_topic(out, name, topic_id, version >= 13, True)
        out.compact_array(len(partitions))
        for fetched in partitions:
            index, code, watermark, stable, start, records, aborted, preferred, diverging, leader, snapshot = fetched
            if aborted:
                _write_aborted(out, fetched)
            else:
                # An array's length + 1: 0 for null, 1 for empty.
                empty = 0 if aborted is None else 1
                out.data += _STATE_V12.pack(index, code, watermark, stable, start, empty, preferred)
            size = -1 if records is None else part_length(records)
            if size <= 0:
                out.data.append(size + 1)
            else:
                assert records is not None
                out.uvarint(size + 1)
                parts += (out.data, records)
                out = Writer()
            if diverging is None and leader is None and snapshot is None:
                out.data.append(0)
            else:
                _write_tags(out, fetched)
        out.data.append(0)
    if node_endpoints and version >= 16:
        out.data.append(1)
        out.tag(0, encode_node_endpoints(node_endpoints))
    else:
        out.data.append(0)
    parts.append(out.data)
    return parts


def _encode_one(topic: FetchedTopic, error_code: int, session_id: int, throttle_time_ms: int) -> list[Part] | None:
    """Encode a response with records of one partition and no optional fields, the most frequent one with records.
    Returns None for other responses."""
    _, topic_id, ((index, code, watermark, stable, start, records, aborted, preferred, *special),) = topic
    size = 0 if records is None else part_length(records)
    if topic_id is None or not size or aborted or special != _NO_TAGGED_FIELDS:
        return None
    assert records is not None
    head = Writer(
        _ONE_V13.pack(
            throttle_time_ms,
            error_code,
            session_id,
            _ONE,
            topic_id.bytes,
            _ONE,
            index,
            code,
            watermark,
            stable,
            start,
            0 if aborted is None else 1,
            preferred,
        )
    )
    head.uvarint(size + 1)
    return [head.data, records, _NO_TAGS]


def _write_aborted(out: Writer, fetched: FetchedPartition) -> None:
    """Append the fields of a partition up to the preferred read replica, with aborted transactions."""
    aborted = fetched.aborted or ()
    out.data += _STATE_V5.pack(*fetched[:5])
    out.compact_array(len(aborted))
    for transaction in aborted:
        out.data += _PAIR.pack(*transaction)
        out.data.append(0)
    out.int32(fetched.preferred_read_replica)


def _write_tags(out: Writer, fetched: FetchedPartition) -> None:
    diverging, leader, snapshot = fetched[8:]
    out.data.append((diverging is not None) + (leader is not None) + (snapshot is not None))
    if diverging is not None:
        out.tag(0, _EPOCH_END.pack(*diverging) + b"\0")
    if leader is not None:
        out.tag(1, encode_current_leader(leader))
    if snapshot is not None:
        out.tag(2, _SNAPSHOT.pack(*snapshot) + b"\0")


def _encode_legacy(
    version: int, topics: Sequence[FetchedTopic], error_code: int, session_id: int, throttle_time_ms: int
) -> list[Part]:
    parts: list[Part] = []
    out = Writer(_TOP.pack(throttle_time_ms, error_code, session_id) if version >= 7 else _INT32.pack(throttle_time_ms))
    out.array(len(topics))
    for name, topic_id, partitions in topics:
        write_topic(out, name, topic_id, False, False)
        out.array(len(partitions))
        for fetched in partitions:
            out.data += _STATE_V4.pack(*fetched[:4]) if version < 5 else _STATE_V5.pack(*fetched[:5])
            aborted, records = fetched.aborted, fetched.records
            out.array(-1 if aborted is None else len(aborted))
            for transaction in aborted or ():
                out.data += _PAIR.pack(*transaction)
            if version >= 11:
                out.int32(fetched.preferred_read_replica)
            size = -1 if records is None else part_length(records)
            out.int32(size)
            if records is not None and size:
                parts += (out.data, records)
                out = Writer()
    if out:
        parts.append(out.data)
    return parts


@decoding
def decode_fetch_response(version: int, body: Data) -> FetchResponse:
    """Decode the response in ``body``; its records are views of ``body``. Raises DecodeError."""
    data = body if isinstance(body, memoryview) else memoryview(body)
    flexible, by_id = version >= 12, version >= 13
    if version >= 13 and (one := _decode_one(data)) is not None:
        return one
    error_code = session_id = 0
    if version >= 7:
        throttle_time_ms, error_code, session_id = _TOP.unpack_from(data, 0)
        pos = 10
    else:
        throttle_time_ms = _INT32.unpack_from(data, 0)[0]
        pos = 4
    topic_count, pos = count_at(data, pos, flexible)
    topics: list[FetchedTopic] = []
    for _ in range(topic_count):
        name, topic_id, pos = topic_at(data, pos, by_id, flexible)
        count, pos = count_at(data, pos, flexible)
        partitions = []
        for _ in range(count):
            fetched, pos = _read_flexible(data, pos) if flexible else _read_legacy(data, pos, version)
            partitions.append(fetched)
        if flexible:
            pos = tags_end(data, pos)
        topics.append((name, topic_id, partitions))
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tag_count, pos = uvarint_at(data, pos)
        for _ in range(tag_count):
            tag, start, pos = tag_at(data, pos)
            if tag == 0 and version >= 16:
                endpoints = decode_node_endpoints(data[start:pos])
    expect_end(data, pos)
    return FetchResponse(topics, error_code, session_id, throttle_time_ms, endpoints)


def _decode_one(data: memoryview) -> FetchResponse | None:
    """Decode a response in the form of ``_encode_one``; return None for others."""
    if len(data) <= _ONE_V13.size or data[10] != _ONE or data[27] != _ONE or bytes(data[-3:]) != _NO_TAGS:
        return None
    throttle, error, session, _, topic_id, _, index, code, watermark, stable, start, aborted, preferred = (
        _ONE_V13.unpack_from(data)
    )
    if aborted:
        return None
    size, pos = uvarint_at(data, _ONE_V13.size)
    if size < 1 or pos + size + 2 != len(data):
        return None
    records = data[pos : pos + size - 1]
    fetched = FetchedPartition(index, code, watermark, stable, start, records, None, preferred)
    return FetchResponse([(None, uuid_of(topic_id), [fetched])], error, session, throttle)


def _read_flexible(data: memoryview, pos: int) -> tuple[FetchedPartition, int]:
    partition, error_code, high_watermark, last_stable, log_start = _STATE_V5.unpack_from(data, pos)
    count, pos = length_at(data, pos + 30, True)
    aborted: list[AbortedTransaction] | None = None if count < 0 else []
    for _ in range(count):
        assert aborted is not None
        aborted.append(AbortedTransaction(*_PAIR.unpack_from(data, pos)))
        pos = tags_end(data, pos + 16)
    preferred = _INT32.unpack_from(data, pos)[0]
    records, pos = _records_at(data, pos + 4, True)
    plain = FetchedPartition(partition, error_code, high_watermark, last_stable, log_start, records, aborted, preferred)
    if data[pos] == 0:
        return plain, pos + 1
    return _with_tags(plain, data, pos)


def _with_tags(fetched: FetchedPartition, data: memoryview, pos: int) -> tuple[FetchedPartition, int]:
    count, pos = uvarint_at(data, pos)
    for _ in range(count):
        tag, start, pos = tag_at(data, pos)
        content = data[start:pos]
        if tag == 0:
            fetched = fetched._replace(diverging_epoch=EpochEndOffset(*_EPOCH_END.unpack_from(content)))
            expect_end(content, tags_end(content, 12))
        elif tag == 1:
            fetched = fetched._replace(current_leader=decode_current_leader(content))
        elif tag == 2:
            fetched = fetched._replace(snapshot_id=SnapshotId(*_SNAPSHOT.unpack_from(content)))
            expect_end(content, tags_end(content, 12))
    return fetched, pos


def _read_legacy(data: memoryview, pos: int, version: int) -> tuple[FetchedPartition, int]:
    log_start = preferred = -1
    if version < 5:
        partition, error_code, high_watermark, last_stable = _STATE_V4.unpack_from(data, pos)
        pos += 22
    else:
        partition, error_code, high_watermark, last_stable, log_start = _STATE_V5.unpack_from(data, pos)
        pos += 30
    count, pos = length_at(data, pos, False)
    aborted: list[AbortedTransaction] | None = None
    if count >= 0:
        aborted = [AbortedTransaction(*_PAIR.unpack_from(data, pos + 16 * index)) for index in range(count)]
        pos += 16 * count
    if version >= 11:
        preferred = _INT32.unpack_from(data, pos)[0]
        pos += 4
    records, pos = _records_at(data, pos, False)
    fetched = FetchedPartition(
        partition, error_code, high_watermark, last_stable, log_start, records, aborted, preferred
    )
    return fetched, pos


def _records_at(data: memoryview, pos: int, flexible: bool) -> tuple[memoryview | None, int]:
    length, pos = length_at(data, pos, flexible)
    if length < 0:
        return None, pos
    return data[pos : pos + length], pos + length
