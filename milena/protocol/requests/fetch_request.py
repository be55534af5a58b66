"""The hand-written codec of Fetch requests, v4 to v18; ``protocol.requests.fetch`` lists the versions' fields."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from milena.protocol.cooperative import Cooperative, YieldBudget, run_now
from milena.protocol.limits import MAX_FETCHED
from milena.protocol.requests.scan import (
    count_at,
    decoding,
    decoding_cooperatively,
    expect_end,
    expect_within,
    nullable_text_at,
    tag_at,
    tag_count_at,
    tags_end,
    text_at,
    uuid_at,
    uuid_of,
)
from milena.protocol.requests.topics import topic_at, write_topic
from milena.protocol.schemas.primitives import Data, Writer
from milena.protocol.schemas.undecodable import TooManyElements
from milena.protocol.types import ZERO_UUID

NO_HIGH_WATERMARK: Final = 2**63 - 1
"""The default in v18: the response must not be sent early because the high watermark has changed (KIP-1166)."""


class FetchPartition(NamedTuple):
    """The request for one partition. Epochs and the log start are -1 if absent."""

    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: UUID = ZERO_UUID
    high_watermark: int = NO_HIGH_WATERMARK


FetchTopic: TypeAlias = "tuple[str | None, UUID | None, Sequence[FetchPartition]]"
ForgottenTopic: TypeAlias = "tuple[str | None, UUID | None, Sequence[int]]"


class FetchRequest(NamedTuple):
    """A Fetch request. ``replica_id`` is -1 for a consumer. A fetch outside of sessions has session id 0 and epoch
    -1."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: Sequence[FetchTopic]
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None


_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_LIMITS_V4: Final = Struct(">iiib")
_LIMITS_V7: Final = Struct(">iiibii")
_REPLICA_STATE: Final = Struct(">iq")
_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqi")
_ONE_PARTITION: Final = Struct(">iiibiiB16sBiiqiqi7siqB")
"""The whole request from v15 on of a follower that requests one partition: the most frequent request with
partitions."""
_ONE_ELEMENT: Final = 2
"""The length of a compact array with one element, as encoded (length + 1)."""
_NO_OPTIONS: Final = bytes((0, 0, 1, 1, 1, 1, 13))
"""The bytes between the partition and the replica state: no tags of the partition, no tags of the topic, no forgotten
topics, no rack; one tag, number 1, 13 bytes."""


@decoding
def decode_fetch_request(version: int, body: Data, limit: int = MAX_FETCHED) -> FetchRequest:
    """Decode the request in ``body``. Bytes after the request are ignored. Raises DecodeError, and TooManyElements for
    more topics and partitions than ``limit``, before they are read."""
    data = body if isinstance(body, memoryview) else memoryview(body)
    if len(data) == _ONE_PARTITION.size and version >= 15 and (fast := _read_one_partition(data)) is not None:
        return fast
    return run_now(_decode_request(version, data, limit))


def decode_large_fetch_request(version: int, body: bytes) -> Cooperative[FetchRequest]:
    """Like ``decode_fetch_request``, with yields between elements."""
    return decoding_cooperatively(_decode_request(version, memoryview(body), MAX_FETCHED), len(body))


def _decode_request(version: int, data: memoryview, limit: int) -> Cooperative[FetchRequest]:
    flexible = version >= 12
    pos = 0
    replica_id, replica_epoch = -1, -1
    if version < 15:
        replica_id = _INT32.unpack_from(data, 0)[0]
        pos = 4
    session_id, session_epoch = 0, -1
    if version >= 7:
        max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch = _LIMITS_V7.unpack_from(data, pos)
        pos += 21
    else:
        max_wait, min_bytes, max_bytes, isolation = _LIMITS_V4.unpack_from(data, pos)
        pos += 13
    budget = YieldBudget()
    topics, elements, pos = yield from _read_topics(data, pos, version, limit, budget)
    forgotten: list[ForgottenTopic] = []
    rack_id = ""
    if version >= 7:
        forgotten, pos = yield from _read_forgotten(data, pos, version, elements, limit, budget)
    if version >= 11:
        rack_id, pos = text_at(data, pos, flexible)
    cluster_id: str | None = None
    if flexible:
        cluster_id, state, pos = _read_tags(data, pos, version)
        if state is not None:
            replica_id, replica_epoch = state
    expect_within(data, pos)
    return FetchRequest(
        max_wait,
        min_bytes,
        max_bytes,
        topics,
        isolation,
        session_id,
        session_epoch,
        forgotten,
        rack_id,
        replica_id,
        replica_epoch,
        cluster_id,
    )


def _read_one_partition(data: memoryview) -> FetchRequest | None:
    """Decode the request if it has the form of ``_ONE_PARTITION``, else return None. Decoding field by field takes ten
    times as long."""
    (
        max_wait,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        topic_id,
        partitions,
        index,
        epoch,
        offset,
        last_epoch,
        log_start,
        partition_bytes,
        options,
        replica_id,
        replica_epoch,
        tags,
    ) = _ONE_PARTITION.unpack(data)
    if topics != _ONE_ELEMENT or partitions != _ONE_ELEMENT or options != _NO_OPTIONS or tags:
        return None
    partition = FetchPartition(index, offset, partition_bytes, epoch, last_epoch, log_start)
    return FetchRequest(
        max_wait,
        min_bytes,
        max_bytes,
        [(None, uuid_of(topic_id), [partition])],
        isolation,
        session_id,
        session_epoch,
        (),
        "",
        replica_id,
        replica_epoch,
    )


def _read_topics(
    data: memoryview, pos: int, version: int, limit: int, budget: YieldBudget
) -> Cooperative[tuple[list[FetchTopic], int, int]]:
    """Return the topics, the number of their elements, and the position after them."""
    flexible, by_id = version >= 12, version >= 13
    elements, pos = count_at(data, pos, flexible)
    if elements > limit:
        raise TooManyElements(limit)
    topics: list[FetchTopic] = []
    topic_count = elements  # mypyc evaluates the end of a range in each iteration
    for _ in range(topic_count):
        name, topic_id, pos = topic_at(data, pos, by_id, flexible)
        count, pos = count_at(data, pos, flexible)
        elements += count
        if elements > limit:
            raise TooManyElements(limit)
        partitions = []
        for _ in range(count):
            partition, pos = _read_flexible(data, pos, version) if flexible else _read_legacy(data, pos, version)
            partitions.append(partition)
            if budget.spend(1):
                yield
        if flexible:
            pos = tags_end(data, pos)
        topics.append((name, topic_id, partitions))
        if budget.spend(1):
            yield
    return topics, elements, pos


def _read_flexible(data: memoryview, pos: int, version: int) -> tuple[FetchPartition, int]:
    index, epoch, offset, last_epoch, log_start, max_bytes = _PARTITION_V12.unpack_from(data, pos)
    pos += 32
    if data[pos] == 0:
        return FetchPartition(index, offset, max_bytes, epoch, last_epoch, log_start), pos + 1
    directory, high_watermark = ZERO_UUID, NO_HIGH_WATERMARK
    count, pos = tag_count_at(data, pos)
    for _ in range(count):
        tag, start, pos = tag_at(data, pos)
        if tag == 0 and version >= 17:
            directory, end = uuid_at(data, start)
            expect_end(data[:pos], end)
        elif tag == 1 and version >= 18:
            expect_end(data[:pos], start + 8)
            high_watermark = _INT64.unpack_from(data, start)[0]
    partition = FetchPartition(index, offset, max_bytes, epoch, last_epoch, log_start, directory, high_watermark)
    return partition, pos


def _read_legacy(data: memoryview, pos: int, version: int) -> tuple[FetchPartition, int]:
    if version >= 9:
        index, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(data, pos)
        return FetchPartition(index, offset, max_bytes, epoch, -1, log_start), pos + 28
    if version >= 5:
        index, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(data, pos)
        return FetchPartition(index, offset, max_bytes, -1, -1, log_start), pos + 24
    index, offset, max_bytes = _PARTITION_V4.unpack_from(data, pos)
    return FetchPartition(index, offset, max_bytes), pos + 16


def _read_forgotten(
    data: memoryview, pos: int, version: int, elements: int, limit: int, budget: YieldBudget
) -> Cooperative[tuple[list[ForgottenTopic], int]]:
    flexible, by_id = version >= 12, version >= 13
    topic_count, pos = count_at(data, pos, flexible)
    elements += topic_count
    if elements > limit:
        raise TooManyElements(limit)
    forgotten: list[ForgottenTopic] = []
    for _ in range(topic_count):
        name, topic_id, pos = topic_at(data, pos, by_id, flexible)
        count, pos = count_at(data, pos, flexible)
        elements += count
        if elements > limit:
            raise TooManyElements(limit)
        partitions = [_INT32.unpack_from(data, pos + 4 * index)[0] for index in range(count)]
        pos += 4 * count
        if flexible:
            pos = tags_end(data, pos)
        forgotten.append((name, topic_id, partitions))
        if budget.spend(1 + count):
            yield
    return forgotten, pos


def _read_tags(data: memoryview, pos: int, version: int) -> tuple[str | None, tuple[int, int] | None, int]:
    cluster_id: str | None = None
    state: tuple[int, int] | None = None
    count, pos = tag_count_at(data, pos)
    for _ in range(count):
        tag, start, pos = tag_at(data, pos)
        content = data[:pos]
        if tag == 0:
            cluster_id, end = nullable_text_at(content, start, True)
            expect_end(content, end)
        elif tag == 1 and version >= 15:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(content, start)
            state = replica_id, replica_epoch
            expect_end(content, tags_end(content, start + 12))
    return cluster_id, state, pos


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """Return the body of a request. Topics need a name below v13 and an id from v13 on. Fields that a version lacks are
    omitted."""
    if version >= 15 and (fast := _encode_one_partition(version, request)) is not None:
        return fast
    flexible, by_id = version >= 12, version >= 13
    out = Writer()
    if version < 15:
        out.int32(request.replica_id)
    out.raw(_LIMITS_V4.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level))
    if version >= 7:
        out.int32(request.session_id)
        out.int32(request.session_epoch)
    write_array = out.compact_array if flexible else out.array
    write_array(len(request.topics))
    for name, topic_id, partitions in request.topics:
        write_topic(out, name, topic_id, by_id, flexible)
        write_array(len(partitions))
        for partition in partitions:
            _write_partition(out, version, partition)
        if flexible:
            out.append(0)
    if version >= 7:
        write_array(len(request.forgotten_topics))
        for name, topic_id, indexes in request.forgotten_topics:
            write_topic(out, name, topic_id, by_id, flexible)
            write_array(len(indexes))
            for index in indexes:
                out.int32(index)
            if flexible:
                out.append(0)
    if version >= 11:
        (out.compact_string if flexible else out.string)(request.rack_id)
    if flexible:
        _write_tags(out, version, request)
    return bytes(out)


def _encode_one_partition(version: int, request: FetchRequest) -> bytes | None:
    """Return the request in the form of ``_ONE_PARTITION``; None if it has other fields."""
    topics = request.topics
    if len(topics) != 1 or request.forgotten_topics or request.rack_id or request.cluster_id is not None:
        return None
    _, topic_id, partitions = topics[0]
    if topic_id is None or len(partitions) != 1 or request.replica_id < 0:
        return None
    index, offset, partition_bytes, epoch, last_epoch, log_start, directory, high_watermark = partitions[0]
    if version >= 17 and (directory is not ZERO_UUID or high_watermark != NO_HIGH_WATERMARK):
        return None
    return _ONE_PARTITION.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        _ONE_ELEMENT,
        topic_id.bytes,
        _ONE_ELEMENT,
        index,
        epoch,
        offset,
        last_epoch,
        log_start,
        partition_bytes,
        _NO_OPTIONS,
        request.replica_id,
        request.replica_epoch,
        0,
    )


def _write_partition(out: Writer, version: int, partition: FetchPartition) -> None:
    index, offset, max_bytes, epoch, last_epoch, log_start, directory, high_watermark = partition
    if version < 5:
        out.raw(_PARTITION_V4.pack(index, offset, max_bytes))
    elif version < 9:
        out.raw(_PARTITION_V5.pack(index, offset, log_start, max_bytes))
    elif version < 12:
        out.raw(_PARTITION_V9.pack(index, epoch, offset, log_start, max_bytes))
    else:
        out.raw(_PARTITION_V12.pack(index, epoch, offset, last_epoch, log_start, max_bytes))
        with_directory = version >= 17 and directory != ZERO_UUID
        with_watermark = version >= 18 and high_watermark != NO_HIGH_WATERMARK
        out.append(with_directory + with_watermark)
        if with_directory:
            out.tag(0, directory.bytes)
        if with_watermark:
            out.tag(1, _INT64.pack(high_watermark))


def _write_tags(out: Writer, version: int, request: FetchRequest) -> None:
    state = (request.replica_id, request.replica_epoch)
    with_state = version >= 15 and state != (-1, -1)
    out.append((request.cluster_id is not None) + with_state)
    if request.cluster_id is not None:
        text = Writer()
        text.compact_string(request.cluster_id)
        out.tag(0, text.data)
    if with_state:
        out.tag(1, _REPLICA_STATE.pack(*state) + b"\0")
