"""A partition's cache as a file: read as it was written, or not at all."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.snapshot import CorruptRemoteLogSnapshot, Snapshot, decode_snapshot, encode_snapshot
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState, TopicIdPartition
from tests.unit.tiered.segments import KIP405_5, PARTITION, fence, offsets, segment, update

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
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


def cleaned_and_claimed() -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    source = segment(1, 0, 9, {0: 0})
    first = replace(segment(2, 0, 9, {0: 0}), cleaned=offsets({0: 9}), replaces=(source.id,))
    second = replace(segment(3, 0, 9, {0: 0}), cleaned=offsets({0: 9, 1: None}), leader_epoch=LeaderEpoch(1))
    for one in (source, first, second):
        cache.apply(one)
        cache.apply(replace(update(one, FINISHED), leader_epoch=one.leader_epoch))
    cache.apply(update(source, DELETING))
    cache.apply(replace(update(source, FINISHED), republishes=True, leader_epoch=LeaderEpoch(1)))
    for state in (DELETING, DELETED):
        cache.apply(update(first, state))
    cache.apply(replace(fence(4), first_dirty=Offset(7)))
    return cache


def test_a_snapshot_has_claims_maps_and_what_was_replaced() -> None:
    cache = cleaned_and_claimed()
    written = Snapshot.of(cache, METADATA_TOPIC, Offset(42))
    read = decode_snapshot(encode_snapshot(PARTITION, written), PARTITION)
    assert read == written and read.fence_epoch == 4
    again = read.cache()
    assert again.cleaned_to == (4, 7)
    assert Snapshot.of(again, METADATA_TOPIC, Offset(42)) == written
    assert [one.id.int for one in again.find(LeaderEpoch(0), Offset(1))] == [3], "the source stays replaced"
    source = again.get(UUID(int=1))
    assert source is not None and source.at_risk and source.was_copied
    assert not again.apply(replace(update(source, DELETING), leader_epoch=LeaderEpoch(3))), "void"


def test_what_was_replaced_and_deleted_does_not_come_back_with_a_snapshot() -> None:
    """It would never be removed, and grow with each start."""
    cache = RemoteLogMetadataCache()
    source = segment(1, 0, 9, {0: 0})
    cache.apply(source)
    cache.apply(update(source, FINISHED))
    replacement = replace(segment(2, 0, 9, {0: 0}), cleaned=offsets({0: 10}), replaces=(source.id,))
    cache.apply(replacement)
    cache.apply(update(replacement, FINISHED))
    assert Snapshot.of(cache, None, Offset(0)).cache().cleanings.replaced.keys() == {source.id}
    for state in (DELETING, DELETED):
        cache.apply(update(source, state))
    again = Snapshot.of(cache, None, Offset(0)).cache()
    assert not cache.cleanings.replaced and not again.cleanings.replaced
    assert Snapshot.of(again, None, Offset(0)) == Snapshot.of(cache, None, Offset(0))


def test_a_snapshot_of_an_older_version_is_refused_and_so_it_refuses_ours() -> None:
    """Each reads the topic instead: versions may be changed back and forth."""
    ours = encode_snapshot(PARTITION, snapshot())
    assert ours[:2] == b"\x00\x02", "version 1 demands 1"
    with pytest.raises(CorruptRemoteLogSnapshot, match="version 1 is not 2"):
        decode_snapshot(b"\x00\x01" + ours[2:], PARTITION)


def test_segments_of_one_cleaning_share_their_map() -> None:
    cache = RemoteLogMetadataCache()
    wide = {epoch: epoch + 1 for epoch in range(1000)}
    for number in range(1, 51):
        cache.apply(replace(segment(number, number, number, {0: 0}), cleaned=offsets(wide)))
    found = cache.segments()
    assert all(one.cleaned is found[0].cleaned for one in found)
    written = encode_snapshot(PARTITION, Snapshot.of(cache, None, Offset(0)))
    assert len(written) < 2 * 12 * 1000, "not once for each segment"
    read = decode_snapshot(written, PARTITION).segments
    assert all(one.cleaned is read[0].cleaned for one in read)


def test_maps_that_continue_each_other_share_their_entries() -> None:
    """Those of deleted segments, too: there is one for each leader that has cleaned, with all before it."""
    cache = RemoteLogMetadataCache()
    for number in range(1, 6):
        one = replace(segment(number, 0, 9, {0: 0}), cleaned=offsets({epoch: epoch + 5 for epoch in range(number)}))
        for event in (one, update(one, FINISHED), update(one, DELETING), update(one, DELETED)):
            cache.apply(event)
    again = decode_snapshot(encode_snapshot(PARTITION, Snapshot.of(cache, None, Offset(0))), PARTITION).cache()
    for known in (cache, again):
        entries = [entry for offsets in known.cleanings.deleted for entry in offsets[:-1]]
        assert len(entries) == 10 and len({id(entry) for entry in entries}) == 4
