"""The cost of the metadata of 10,000 remote segments, and the time until a restarted broker has read that of 100,000.

Milena alone, in one thread of a process of its own: CPU seconds, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from typing import Final
from uuid import UUID

from benchmarks.forms import in_form
from benchmarks.peers import Milena, Peer
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.snapshot import Snapshot, decode_snapshot, encode_snapshot
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)

PARTITION: Final = TopicIdPartition(UUID(int=77), "t", 0)
SEGMENTS: Final = 10_000
SNAPSHOT_SEGMENTS: Final = 100_000
RECORDS: Final = 1000
"""Bytes of a segment."""
PER_EPOCH: Final = 10
"""Segments of a leader epoch."""
LOOK_UPS: Final = 100_000


def segments(peer: Peer, _sizes: Sizes) -> Rounds:
    if isinstance(peer, Milena):
        yield in_form(peer.environment, "benchmarks.segments")


def _measure() -> dict[str, float]:
    tracemalloc.start()
    cache = filled(SEGMENTS)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    chosen = random.Random(1)
    offsets = [Offset(chosen.randrange(SEGMENTS * RECORDS)) for _ in range(LOOK_UPS)]
    places = [(LeaderEpoch(offset // RECORDS // PER_EPOCH), offset) for offset in offsets]
    begin = time.process_time()
    for epoch, offset in places:
        cache.find(epoch, offset)
    look_up = (time.process_time() - begin) / LOOK_UPS
    many = filled(SNAPSHOT_SEGMENTS)
    file = encode_snapshot(PARTITION, Snapshot(None, Offset(0), many.segments(), many.highest_offsets()))
    begin = time.process_time()
    decode_snapshot(file, PARTITION).cache()
    return {
        "remote_segments_mib": size / (1 << 20),
        "remote_look_up_us": look_up * 1e6,
        "remote_snapshot_s": time.process_time() - begin,
    }


def filled(count: int) -> RemoteLogMetadataCache:
    """A cache with the metadata of this many finished segments, in order."""
    chosen, cache = random.Random(2), RemoteLogMetadataCache()
    for number in range(count):
        start = number * RECORDS
        segment = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(PARTITION, UUID(int=chosen.getrandbits(128))),
            Offset(start),
            Offset(start + RECORDS - 1),
            NodeId(1),
            1_700_000_000_000 + number,
            1_700_000_100_000 + number,
            (EpochEntry(LeaderEpoch(number // PER_EPOCH), Offset(start)),),
            100_000_000 + number,
            None,
            RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            True,
        )
        cache.apply(segment)
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        cache.apply(RemoteLogSegmentUpdate(segment.segment_id, NodeId(1), 1_700_000_200_000 + number, None, finished))
    return cache


if __name__ == "__main__":
    print(json.dumps(_measure()))
