"""Fetch responses, v4 to v18, by hand; ``protocol.fetch`` says what the versions have."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from protocol.frames import Part, part_length
from protocol.leaders import (
    CurrentLeader,
    NodeEndpoint,
    decode_current_leader,
    decode_node_endpoints,
    encode_current_leader,
    encode_node_endpoints,
)
from protocol.primitives import Data, Writer
from protocol.scan import count_at, decoding, expect_end, length_at, tag_at, tags_end, uvarint_at
from protocol.topics import topic_at, write_topic


class AbortedTransaction(NamedTuple):
    """A reader of committed records skips this producer's records from this offset to the abort marker."""

    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    """The largest epoch that is not above the follower's, and where it ends at the leader."""

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """A snapshot of the metadata log."""

    end_offset: int
    epoch: int


class FetchedPartition(NamedTuple):
    """The answer for one partition. ``records`` is bytes, or anything else with a ``length``, such as a file's range.

    ``aborted`` is None where uncommitted records are read. Offsets are -1 where there is none.
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
"""The state, no aborted transactions, the preferred read replica."""


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchedTopic],
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """The body of a response: bytes, with each non-empty ``records`` as a part of its own between them.

    Old versions drop what they lack: codes are not translated here.
    """
    flexible, by_id = version >= 12, version >= 13
    parts: list[Part] = []
    out = Writer()
    if version >= 7:
        out += _TOP.pack(throttle_time_ms, error_code, session_id)
    else:
        out += _INT32.pack(throttle_time_ms)
    write_array = Writer.compact_array if flexible else Writer.array
    write_array(out, len(topics))
    for name, topic_id, partitions in topics:
        write_topic(out, name, topic_id, by_id, flexible)
        write_array(out, len(partitions))
        for fetched in partitions:
            if flexible:
                _write_flexible(out, fetched)
            else:
                _write_legacy(out, version, fetched)
            records = fetched.records
            size = -1 if records is None else part_length(records)
            write_array(out, size)
            if records is not None and size:
                parts += (out, records)
                out = Writer()
            if flexible:
                _write_tags(out, fetched)
        if flexible:
            out.append(0)
    if flexible:
        if node_endpoints and version >= 16:
            out.append(1)
            out.tag(0, encode_node_endpoints(node_endpoints))
        else:
            out.append(0)
    if out:
        parts.append(out)
    return parts


def _write_flexible(out: Writer, fetched: FetchedPartition) -> None:
    partition, error_code, high_watermark, last_stable, log_start, _, aborted, preferred, _, _, _ = fetched
    if not aborted:
        # An array's length + 1: none for null, 1 for empty.
        empty = 0 if aborted is None else 1
        out += _STATE_V12.pack(partition, error_code, high_watermark, last_stable, log_start, empty, preferred)
        return
    out += _STATE_V5.pack(partition, error_code, high_watermark, last_stable, log_start)
    out.compact_array(len(aborted))
    for transaction in aborted:
        out += _PAIR.pack(*transaction)
        out.append(0)
    out += _INT32.pack(preferred)


def _write_tags(out: Writer, fetched: FetchedPartition) -> None:
    _, _, _, _, _, _, _, _, diverging, leader, snapshot = fetched
    out.append((diverging is not None) + (leader is not None) + (snapshot is not None))
    if diverging is not None:
        out.tag(0, _EPOCH_END.pack(*diverging) + b"\0")
    if leader is not None:
        out.tag(1, encode_current_leader(leader))
    if snapshot is not None:
        out.tag(2, _SNAPSHOT.pack(*snapshot) + b"\0")


def _write_legacy(out: Writer, version: int, fetched: FetchedPartition) -> None:
    partition, error_code, high_watermark, last_stable, log_start, _, aborted, preferred, _, _, _ = fetched
    if version < 5:
        out += _STATE_V4.pack(partition, error_code, high_watermark, last_stable)
    else:
        out += _STATE_V5.pack(partition, error_code, high_watermark, last_stable, log_start)
    out.array(-1 if aborted is None else len(aborted))
    for transaction in aborted or ():
        out += _PAIR.pack(*transaction)
    if version >= 11:
        out += _INT32.pack(preferred)


@decoding
def decode_fetch_response(version: int, body: Data) -> FetchResponse:
    """The response in ``body``; its records are views of ``body``. Raises DecodeError."""
    data = body if isinstance(body, memoryview) else memoryview(body)
    flexible, by_id = version >= 12, version >= 13
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
