"""The producers of a restored log are those of its own lineage, at its end."""

from __future__ import annotations

from dataclasses import replace

from milena.protocol.records.batch import BatchView
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from milena.storage.files.producer_snapshot import decode_snapshot, encode_snapshot
from milena.storage.state.producer_state import ProducerState
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from tests.unit.tiered.restored_logs import restored
from tests.unit.tiered.segments import PARTITION
from tests.unit.tiered.whole_tier import FIRST_TIME, WholeTier, lineage, on_a_tier


def put(tier: WholeTier, number: int, start: int, starts: dict[int, int], *producers: int) -> RemoteLogSegmentMetadata:
    """A segment with a record of each of ``producers``, and their snapshot."""
    end = start + len(producers) - 1
    segment = tier.put(number, start, end, starts, listed=False)
    data, state = b"", ProducerState()
    for offset, producer in enumerate(producers, start):
        epoch = max(epoch for epoch, first in starts.items() if first <= offset)
        builder = BatchBuilder()
        builder.append(timestamp=FIRST_TIME + offset, value=b"v")
        batch = builder.build(
            base_offset=Offset(offset),
            leader_epoch=LeaderEpoch(epoch),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
        )
        data += batch
        state.add_batch(BatchView(memoryview(batch)))
    tier.write(segment, ".log", data)
    tier.write(segment, ".snapshot", encode_snapshot(state))
    tier.tell(*events_of(replace(segment, size=len(data))))
    return segment


async def producers(
    tier: WholeTier, *, with_metadata: bool = True, replicas: Lineage | None = None
) -> tuple[list[int], list[str]]:
    """Those that the restored log knows, and the notes."""
    result = await restored(
        tier, with_metadata=with_metadata, replicas={PARTITION: replicas} if replicas is not None else None
    )
    return sorted(one for one, _ in decode_snapshot(result.topics[0].logs[0].producers)), result.notes


@on_a_tier
async def test_kip405_5_of_two_segments_with_one_end_the_lineage_decides(tier: WholeTier) -> None:
    put(tier, 9, 0, {0: 0}, 1, 1, 7, 7)
    put(tier, 2, 0, {0: 0, 1: 2}, 1, 1, 8, 8)
    assert await producers(tier) == ([1, 8], [])
    assert await producers(tier, with_metadata=False) == ([1, 8], [])
    assert await producers(tier, replicas=lineage({0: 0, 2: 4}, 5)) == ([1, 7], [])


@on_a_tier
async def test_kip405_3_where_the_log_parts_within_a_segment_its_batches_are_read_up_to_there(tier: WholeTier) -> None:
    put(tier, 1, 0, {0: 0}, 1, 2)
    put(tier, 3, 2, {0: 2}, 3, 4, 5)
    assert await producers(tier, replicas=lineage({0: 0, 1: 4}, 6)) == ([1, 2, 3, 4], [])
    assert await producers(tier, replicas=lineage({0: 0, 1: 1}, 6)) == ([1], [])
    assert await producers(tier) == ([3, 4, 5], []), "the snapshot at the end says it all"


@on_a_tier
async def test_unknown_producers_are_left_out_with_a_note(tier: WholeTier) -> None:
    first = put(tier, 1, 0, {0: 0}, 1, 2)
    last = put(tier, 2, 2, {0: 2}, 3, 4)
    tier.write(last, ".leader_epoch_checkpoint", tier.read(first, ".leader_epoch_checkpoint"))
    tier.write(last, ".snapshot", b"?")
    found, notes = await producers(tier)
    assert found == []
    assert notes == [
        "t-0: the state of its producers is lost: producer snapshot of the segment at 2: 1 bytes are not a snapshot"
    ]
    tier.remove(first, ".snapshot")
    found, notes = await producers(tier, replicas=lineage({0: 0, 1: 3}, 6))
    assert found == [] and [note for note in notes if note.startswith("t-0: the state of its producers is lost")]
    tier.write(first, ".snapshot", tier.read(last, ".snapshot"))
    data = bytearray(tier.read(last, ".log"))
    data[65] ^= 1
    tier.write(last, ".log", bytes(data))
    tier.remove(first, ".snapshot")
    found, notes = await producers(tier, replicas=lineage({0: 0, 1: 3}, 6, log_start=2))
    assert found == [] and "the batch at offset 2 in the tier has a wrong checksum" in notes[-1]
