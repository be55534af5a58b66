"""What is verified of a tier in which leaders have cleaned, and what is restored from it (KIP-1272, a draft)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from milena.protocol.records.batch import BatchView
from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.storage.cleaning.rebuilt_batch import emptied
from milena.tiered.metadata.descriptions import description_of
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.offline.cluster_restore import CannotRestore, RestoredLog
from milena.tiered.offline.verification import Verification
from milena.tiered.reading.log_contents import LogContents
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.restored_logs import restored
from tests.unit.tiered.segments import offsets, update
from tests.unit.tiered.whole_tier import Cleaned, WholeTier, lineage, on_a_tier

STALE = Cleaned({0: 35}, replaces=[1], kept=[3])


def said(found: Verification) -> list[tuple[str, int | None, str]]:
    """Findings, then notes: kind, number of the segment, and what."""
    every = [*found.findings, *found.notes]
    return [(one.kind, None if one.segment is None else one.segment.int, one.what) for one in every]


def lost(offsets: str) -> str:
    return f"offsets 0 to 19 were cleaned because of offsets {offsets}, which this log has lost in an unclean election"


def cleaned(tier: WholeTier) -> None:
    """Three segments, the first two cleaned into one, of which little is left."""
    tier.put(1, 0, 9, {0: 0})
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0})
    tier.put(3, 20, 29, {0: 20, 1: 25}, checkpoint={0: 0, 1: 25})
    tier.put(4, 0, 19, {0: 0}, cleaned=Cleaned({0: 20, 1: 30}, replaces=[1, 2], kept=[4, 12]))


@on_a_tier
async def test_replaced_segments_and_gaps_of_a_cleaning_are_in_order(tier: WholeTier) -> None:
    cleaned(tier)
    found = await tier.verified(lineage({0: 0, 1: 25}, 30, log_start=0))
    assert found.findings == []
    replaced = "a segment with the cleaner offsets {0: 20, 1: 30} has replaced it: it is not read"
    assert said(found) == [("replaced", 1, replaced), ("replaced", 2, replaced)]


@on_a_tier
async def test_a_cleaning_may_leave_nothing(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0}, cleaned=Cleaned({0: 20}, kept=[]))
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0})
    assert said(await tier.verified(lineage({0: 0}, 20, log_start=0))) == []


@on_a_tier
async def test_a_segment_that_was_not_cleaned_must_not_be_empty_nor_short(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0}, cleaned=Cleaned({}, described=False, kept=[]))
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, cleaned=Cleaned({}, described=False, kept=range(10, 15)))
    tier.put(3, 20, 29, {0: 20}, checkpoint={0: 0}, cleaned=Cleaned({}, described=False, kept=[20, 22]))
    found = await tier.verified(lineage({0: 0}, 30, log_start=0))
    assert [one for one in said(found) if one[0] == "offsets"] == [
        ("offsets", 1, "the log has no batch"),
        ("offsets", 2, "the log ends at 14, its metadata says 19"),
    ], "the third was compacted before it was copied"


@on_a_tier
async def test_a_stale_cleaning_is_named_with_the_map_that_rejects_it(tier: WholeTier) -> None:
    cleaned(tier)
    tier.put(5, 0, 9, {0: 0}, cleaned=STALE)
    found = await tier.verified(lineage({0: 0, 1: 25}, 30, log_start=0))
    assert found.findings == []
    why = "its cleaner offsets {0: 35} are contradicted by {0: 20, 1: 30} of a later leader: it is not read"
    assert [one for one in said(found) if one[0] == "rejected"] == [("rejected", 5, why)]


@on_a_tier
async def test_offsets_that_only_a_rejected_segment_has_are_a_gap(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0}, cleaned=STALE)
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, cleaned=Cleaned({0: 5, 1: 30}))
    found = await tier.verified(lineage({0: 0, 1: 20}, 30, log_start=0))
    assert next(one[::2] for one in said(found)) == ("gap", "offsets 0 to 9 are in no segment")


@on_a_tier
async def test_what_was_cleaned_for_lost_values_is_named(tier: WholeTier) -> None:
    cleaned(tier)
    found = await tier.verified(lineage({0: 0, 1: 25, 2: 27}, 40, log_start=0))
    assert said(found)[0] == ("lost-values", None, lost("27 to 29"))
    assert len(found.findings) == 1


@on_a_tier
async def test_a_deleted_segment_still_shows_where_its_epoch_began(tier: WholeTier) -> None:
    """Epoch 1 has no records in the log; only the deleted segment shows that it began at 25."""
    tier.put(1, 0, 19, {0: 0}, cleaned=Cleaned({0: None, 1: 30}))
    of_epoch = tier.put(2, 20, 29, {0: 20, 1: 25}, checkpoint={0: 0, 1: 25})
    listed = [("lost-values", None, lost("25 to 29"))]
    present = lineage({0: 0, 2: 50}, 60, log_start=0)
    assert [one for one in said(await tier.verified(present)) if one[0] == "lost-values"] == listed
    tier.tell(
        update(of_epoch, RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        update(of_epoch, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED),
    )
    tier.remove(of_epoch)
    assert [one for one in said(await tier.verified(present)) if one[0] == "lost-values"] == listed


@on_a_tier
async def test_what_is_kept_of_a_cleaned_segment_is_compared_with_its_metadata(tier: WholeTier) -> None:
    """A restoration may need it."""
    first = tier.put(1, 0, 9, {0: 0}, cleaned=Cleaned({0: 10}, kept=[1]))
    second = tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, cleaned=Cleaned({0: 10}, kept=[11]))
    third = tier.put(3, 20, 29, {0: 20}, checkpoint={0: 0}, cleaned=Cleaned({0: 10}, kept=[21]))
    tier.disk.remove(tier.description(first))
    tier.disk.write_atomic(tier.description(second), tier.disk.read(tier.description(second))[:-1])
    tier.disk.write_atomic(tier.description(third), description_of(replace(third, cleaned=offsets({0: 9}))))
    expected = [
        ("missing", 1, "nothing is kept of it in milena-segments"),
        ("damaged", 2, "what is kept of it in milena-segments: the checksum is wrong"),
        ("damaged", 3, "what is kept of it in milena-segments differs from its metadata"),
    ]
    assert said(await tier.verified()) == expected
    by_files = {one[:2] for one in said(await tier.verified(with_metadata=False))}
    assert by_files == {("missing", 1), ("missing", 2), ("gap", None)}, "where these two end is not known either"


def test_the_times_of_batches_without_records_are_in_no_index() -> None:
    contents = LogContents()
    batch = batch_of(b"value", timestamp=7)
    contents.take(0, BatchView(memoryview(emptied(BatchView(batch)))))
    assert (contents.batches, contents.max_timestamp_ms) == (1, -1)
    contents.take(contents.size, BatchView(batch))
    assert (contents.batches, contents.max_timestamp_ms) == (2, 7)


# -- restored


def served(log: RestoredLog) -> list[tuple[int, int, int]]:
    """By the brokers of the new cluster: (segment, first, last)."""
    cache = RemoteLogMetadataCache()
    for segment in (*log.segments, *log.bounds):
        for event in events_of(segment):
            assert cache.apply(event)
    found = cache.served(Offset(0), leader_epochs=log.lineage.epochs, log_end=log.lineage.log_end)
    return [(one.segment.id.int, one.first, one.last) for one in found]


@pytest.mark.parametrize("with_metadata", [False, True])
def test_fenced_replaced_and_original_files_are_distinguished(with_metadata: bool) -> None:
    @on_a_tier
    async def scenario(tier: WholeTier) -> None:
        cleaned(tier)
        tier.put(5, 0, 9, {0: 0}, cleaned=STALE)
        result = await restored(tier, with_metadata=with_metadata)
        log = result.topics[0].logs[0]
        assert served(log) == [(4, 0, 19), (3, 20, 29)]
        assert (log.log_start, log.lineage.log_end) == (0, 30), "what a cleaning has left nothing of is no gap"
        note = "not read: replaced or rejected by cleanings, and deleted by the leader"
        assert result.notes == [f"t-0: segment {to_text(log.segments[0].id)} and 2 more {note}"]

    scenario()


@on_a_tier
async def test_a_compacted_topic_is_refused_where_nothing_distinguishes_them(tier: WholeTier) -> None:
    cleaned(tier)
    tier.put(5, 0, 9, {0: 0}, cleaned=replace(STALE, kept=[3, 5], described=False), listed=False)
    why = "was compacted: no record of offsets 0 to 2, and nothing is kept of it in milena-segments"
    sentence = f"t-0: segment AAAAAAAAAAAAAAAAAAAABQ {why}. Without the old metadata topic (--metadata) it is unknown"
    with pytest.raises(CannotRestore, match=re.escape(sentence)):
        await restored(tier)
    log = (await restored(tier, with_metadata=True)).topics[0].logs[0]
    assert served(log) == [(4, 0, 19), (3, 20, 29)], "the metadata lists all valid segments"


@on_a_tier
async def test_a_damaged_description_of_a_compacted_log_is_none(tier: WholeTier) -> None:
    whole = tier.put(1, 0, 9, {0: 0}, cleaned=Cleaned({0: 10}))
    tier.disk.write_atomic(tier.description(whole), b"????")
    with pytest.raises(CannotRestore, match="it is of a compacted log, and what is kept of it cannot be read"):
        await restored(tier)


@on_a_tier
async def test_a_cut_log_of_a_cleaned_segment_is_left_out(tier: WholeTier) -> None:
    first = tier.put(1, 0, 9, {0: 0}, cleaned=Cleaned({0: 10}, kept=[1, 3]))
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0})
    data = tier.read(first, ".log")
    tier.write(first, ".log", data[: len(data) // 2])
    result = await restored(tier)
    assert result.topics[0].logs[0].log_start == 10
    assert any(f"its log has {len(data) // 2} of {len(data)} bytes" in note for note in result.notes)


@on_a_tier
async def test_what_deleted_segments_have_cleaned_is_remembered_and_new_epochs_are_above_all_maps(
    tier: WholeTier,
) -> None:
    tier.put(1, 0, 9, {0: 0})
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0})
    gone = tier.put(3, 10, 19, {0: 10}, checkpoint={0: 0}, cleaned=Cleaned({0: 20, 7: 25}))
    for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
        tier.tell(update(gone, state))
    tier.remove(gone)
    tier.disk.remove(tier.description(gone))
    tier.put(5, 0, 9, {0: 0}, cleaned=STALE)
    log = (await restored(tier, with_metadata=True)).topics[0].logs[0]
    assert served(log) == [(1, 0, 9), (2, 10, 19)]
    assert log.leader_epoch == 8


@on_a_tier
async def test_of_files_that_the_metadata_does_not_tell_of_only_those_that_count_are_taken(tier: WholeTier) -> None:
    tier.put(3, 20, 29, {0: 20, 1: 25}, checkpoint={0: 0, 1: 25})
    tier.put(1, 0, 9, {0: 0}, listed=False)
    tier.put(4, 0, 19, {0: 0}, cleaned=Cleaned({0: 20, 1: 30}, replaces=[1], kept=[4, 12]), listed=False)
    tier.put(5, 0, 9, {0: 0}, cleaned=STALE, listed=False)
    log = (await restored(tier, with_metadata=True)).topics[0].logs[0]
    assert served(log) == [(4, 0, 19), (3, 20, 29)]
    assert [one.id.int for one in log.segments] == [4, 3]
