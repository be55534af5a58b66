"""A partition's cache as a file: read as it was written, or not at all."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.snapshot import CorruptRemoteLogSnapshot, Snapshot, decode_snapshot, encode_snapshot
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState, TopicIdPartition
from tests.unit.tiered.segments import KIP405_5, PARTITION, segment, update

METADATA_TOPIC = UUID(int=5)


def snapshot() -> Snapshot:
    cache = RemoteLogMetadataCache()
    for one in (*KIP405_5, replace(segment(7, 6, 9, {2: 6, 3: 8}, txn_index_empty=False), custom_metadata=b"at")):
        cache.apply(one)
        cache.apply(update(one, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    cache.apply(replace(segment(8, 10, 12, {3: 10}), custom_metadata=b""))
    return Snapshot(METADATA_TOPIC, Offset(42), cache.segments(), cache.highest_offsets())


def test_a_snapshot_is_read_as_it_was_written() -> None:
    written = snapshot()
    read = decode_snapshot(encode_snapshot(PARTITION, written), PARTITION)
    assert read == written
    assert [one.id.int for one in read.cache().find(LeaderEpoch(0), Offset(1))] == [1, 2]


def test_an_empty_cache_has_a_snapshot_too() -> None:
    empty = Snapshot(None, Offset(0), [], {})
    assert decode_snapshot(encode_snapshot(PARTITION, empty), PARTITION) == empty


def test_all_segments_share_one_partition() -> None:
    read = decode_snapshot(encode_snapshot(PARTITION, snapshot()), PARTITION)
    assert all(one.partition is PARTITION for one in read.segments)


@pytest.mark.parametrize("other", [TopicIdPartition(UUID(int=78), "t", 0), TopicIdPartition(UUID(int=77), "t", 1)])
def test_the_snapshot_of_another_partition_is_refused(other: TopicIdPartition) -> None:
    with pytest.raises(CorruptRemoteLogSnapshot, match="it belongs to partition 0"):
        decode_snapshot(encode_snapshot(PARTITION, snapshot()), other)


def test_a_damaged_snapshot_is_refused_wherever_the_damage_is() -> None:
    whole = encode_snapshot(PARTITION, snapshot())
    for position in range(len(whole)):
        with pytest.raises(CorruptRemoteLogSnapshot):
            decode_snapshot(whole[:position], PARTITION)
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptRemoteLogSnapshot):
            decode_snapshot(bytes(damaged), PARTITION)
