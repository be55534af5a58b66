"""The hand codec of Fetch beside kio's, byte by byte."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    SnapshotId,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from milena.protocol.requests.frames import part_length
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.schemas.undecodable import DecodeError
from tests.fixtures.properties import examples
from tests.unit.protocol.kio_samples import kio_bytes, kio_class, sample

VERSIONS = range(4, 19)
DIRECTORY = UUID(int=77)


def joined(parts: Iterable[Any]) -> bytes:
    return b"".join(parts)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_requests_are_read_and_written_as_kio_does(version: int, seed: int) -> None:
    data = kio_bytes(sample(kio_class(ApiKey.FETCH, version, "request"), random.Random(seed)))
    request = decode_fetch_request(version, memoryview(data))
    assert encode_fetch_request(version, request) == data
    reference = messages.decode_request(ApiKey.FETCH, version, data)
    state = messages.get(reference, "replica_state", reference)
    assert request.replica_id == state.replica_id
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (
        reference.max_wait,
        reference.min_bytes,
        reference.max_bytes,
    )
    assert request.session_id == messages.get(reference, "session_id", 0)
    assert request.rack_id == messages.get(reference, "rack_id", "")
    for (name, topic_id, partitions), topic in zip(request.topics, reference.topics, strict=True):
        assert name == messages.get(topic, "topic", None)
        assert topic_id == messages.get(topic, "topic_id", None)
        for ours, theirs in zip(partitions, topic.partitions, strict=True):
            assert (ours.partition, ours.fetch_offset) == (theirs.partition, theirs.fetch_offset)
            assert ours.max_bytes == theirs.partition_max_bytes
            assert ours.current_leader_epoch == messages.get(theirs, "current_leader_epoch", -1)
            assert ours.last_fetched_epoch == messages.get(theirs, "last_fetched_epoch", -1)
            assert ours.log_start_offset == messages.get(theirs, "log_start_offset", -1)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_responses_are_read_and_written_as_kio_does(version: int, seed: int) -> None:
    data = kio_bytes(sample(kio_class(ApiKey.FETCH, version, "response"), random.Random(seed)))
    assert joined(encode_fetch_response(version, *decode_fetch_response(version, data))) == data


class FileRange:
    """Stands for records that are not in memory."""

    def __init__(self, length: int) -> None:
        self.length = length


@pytest.mark.parametrize("version", VERSIONS)
def test_records_in_a_file_are_parts_of_their_own_with_their_length_in_front(version: int) -> None:
    ranges = [FileRange(200_000), FileRange(5)]
    topic = (None, UUID(int=1)) if version >= 13 else ("t", None)
    partitions = [FetchedPartition(0, records=ranges[0]), FetchedPartition(1), FetchedPartition(2, records=ranges[1])]
    parts = encode_fetch_response(version, [(*topic, partitions)])
    assert [part for part in parts if isinstance(part, FileRange)] == ranges
    filled = [bytes(part.length) if isinstance(part, FileRange) else part for part in parts]
    ((_, _, read),) = decode_fetch_response(version, joined(filled)).topics
    assert [None if one.records is None else part_length(one.records) for one in read] == [200_000, 0, 5]


def test_records_read_are_views_of_the_frame() -> None:
    data = joined(encode_fetch_response(12, [("t", None, [FetchedPartition(0, records=b"batch")])]))
    ((_, _, (partition,)),) = decode_fetch_response(12, data).topics
    assert isinstance(partition.records, memoryview)
    assert partition.records.obj is data


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_version_drops_what_it_lacks(version: int) -> None:
    wanted = FetchPartition(1, 10, 1000, 3, 2, 5, DIRECTORY, 9)
    request = FetchRequest(
        500,
        1,
        2000,
        [("t", UUID(int=1), [wanted])],
        isolation_level=1,
        session_id=4,
        session_epoch=5,
        forgotten_topics=[("u", UUID(int=2), [7])],
        rack_id="r",
        replica_id=2,
        replica_epoch=8,
        cluster_id="c",
    )
    read = decode_fetch_request(version, encode_fetch_request(version, request))
    ((name, topic_id, (partition,)),) = read.topics
    assert (name, topic_id) == ((None, UUID(int=1)) if version >= 13 else ("t", None))
    assert partition.log_start_offset == (5 if version >= 5 else -1)
    assert (read.session_id, read.session_epoch) == ((4, 5) if version >= 7 else (0, -1))
    assert len(read.forgotten_topics) == (version >= 7)
    assert partition.current_leader_epoch == (3 if version >= 9 else -1)
    assert read.rack_id == ("r" if version >= 11 else "")
    assert partition.last_fetched_epoch == (2 if version >= 12 else -1)
    assert read.cluster_id == ("c" if version >= 12 else None)
    assert (read.replica_id, read.replica_epoch) == (2, 8 if version >= 15 else -1)
    assert partition.replica_directory_id == (DIRECTORY if version >= 17 else UUID(int=0))
    assert partition.high_watermark == (9 if version >= 18 else 2**63 - 1)


def test_everything_a_raft_leader_says_is_read_back() -> None:
    partition = FetchedPartition(
        0,
        6,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=1,
        records=None,
        aborted=[AbortedTransaction(1, 2)],
        preferred_read_replica=3,
        diverging_epoch=EpochEndOffset(4, 5),
        current_leader=CurrentLeader(6, 7),
        snapshot_id=SnapshotId(8, 9),
    )
    endpoint = NodeEndpoint(6, "host", 9093, "rack")
    data = joined(encode_fetch_response(17, [(None, UUID(int=1), [partition])], 0, 3, 4, [endpoint]))
    read = decode_fetch_response(17, data)
    assert read.topics[0][2] == [partition]
    assert (read.session_id, read.throttle_time_ms, read.node_endpoints) == (3, 4, (endpoint,))


def test_unknown_tags_are_skipped_at_every_level() -> None:
    request = FetchRequest(500, 1, 2000, [("t", None, [FetchPartition(0, 1, 2)])])
    data = encode_fetch_request(12, request)
    # Partition, topic; no forgotten topics, no rack; request.
    assert data.endswith(b"\x00\x00\x01\x01\x00")
    tag = b"\x01\x63\x03abc"
    assert decode_fetch_request(12, data[:-5] + tag + tag + b"\x01\x01" + tag).topics == request.topics
    data = joined(encode_fetch_response(12, [("t", None, [FetchedPartition(0)])]))
    assert data.endswith(b"\x00\x00\x00")
    ((_, _, partitions),) = decode_fetch_response(12, data[:-3] + tag * 3).topics
    assert partitions == [FetchedPartition(0)]


def test_a_tag_of_a_later_version_is_an_unknown_tag() -> None:
    data = encode_fetch_request(17, FetchRequest(1, 1, 1, [(None, UUID(int=1), [FetchPartition(0, 1, 2)])]))
    high_watermark = b"\x01\x01\x08" + (9).to_bytes(8, "big")
    assert data.endswith(b"\x00\x00\x01\x01\x00")
    extended = data[:-5] + high_watermark + data[-4:]
    ((_, _, (wanted,)),) = decode_fetch_request(17, extended).topics
    assert wanted.high_watermark == 2**63 - 1
    ((_, _, (wanted,)),) = decode_fetch_request(18, extended).topics
    assert wanted.high_watermark == 9


@pytest.mark.parametrize("version", [4, 7, 11, 12, 18])
def test_every_truncation_is_refused_and_trailing_bytes_behind_a_response_are_too(version: int) -> None:
    topic = ("topic", None) if version < 13 else (None, UUID(int=7))
    wanted = FetchPartition(0, 1, 2, replica_directory_id=DIRECTORY, high_watermark=3)
    request = FetchRequest(
        1, 1, 1, [(*topic, [wanted])], forgotten_topics=[(*topic, [1, 2])], replica_id=1, cluster_id="c"
    )
    partition = FetchedPartition(
        0, records=b"0123456789", aborted=[AbortedTransaction(1, 2)], diverging_epoch=EpochEndOffset(1, 2)
    )
    for decode, data in (
        (decode_fetch_request, encode_fetch_request(version, request)),
        (decode_fetch_response, joined(encode_fetch_response(version, [(*topic, [partition])]))),
    ):
        decode(version, data)
        for size in range(len(data)):
            with pytest.raises(DecodeError):
                decode(version, data[:size])
    with pytest.raises(DecodeError, match="left over"):
        decode(version, data + b"\x00")


@pytest.mark.parametrize("version", [4, 7, 11, 12, 18])
def test_trailing_bytes_behind_a_request_are_ignored_as_kafka_does(version: int) -> None:
    data = encode_fetch_request(version, FetchRequest(1, 1, 1, []))
    assert decode_fetch_request(version, data + b"more") == decode_fetch_request(version, data)


@settings(max_examples=examples(300))
@given(st.sampled_from(VERSIONS), st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(version: int, data: bytes) -> None:
    for decode in (decode_fetch_request, decode_fetch_response):
        try:
            decode(version, data)
        except DecodeError:
            continue
