"""What a verification says of a tier in which leaders have cleaned (KIP-1272, a draft)."""

from __future__ import annotations

from milena.tiered.rescue.verification import Verification
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from tests.unit.tiered.segments import update
from tests.unit.tiered.whole_tier import Cleaned, WholeTier, lineage, on_a_tier

STALE = Cleaned({0: 35}, replaces=[1], kept=[3])


def said(found: Verification) -> list[tuple[str, int | None, str]]:
    """Findings, then notes: kind, number of the segment, and what."""
    every = [*found.findings, *found.notes]
    return [(one.kind, None if one.segment is None else one.segment.int, one.what) for one in every]


def lost(offsets: str) -> str:
    return (
        f"offsets 0 to 19 were cleaned in favour of offsets {offsets}, which this log has lost in an unclean election"
    )


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
    replaced = "a segment with the cleaner offsets {0: 20, 1: 30} has replaced it: nobody reads it"
    assert said(found) == [("replaced", 1, replaced), ("replaced", 2, replaced)]


@on_a_tier
async def test_a_cleaning_may_leave_nothing(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0}, cleaned=Cleaned({0: 20}, kept=[]))
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0})
    assert said(await tier.verified(lineage({0: 0}, 20, log_start=0))) == []


@on_a_tier
async def test_a_segment_that_was_not_cleaned_must_not_be_empty_nor_short(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0}, cleaned=Cleaned({}, kept=[]))
    tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, cleaned=Cleaned({}, kept=range(10, 15)))
    tier.put(3, 20, 29, {0: 20}, checkpoint={0: 0}, cleaned=Cleaned({}, kept=[20, 22]))
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
    why = "its cleaner offsets {0: 35} are contradicted by {0: 20, 1: 30} of a later leader: nobody reads it"
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
async def test_a_deleted_segment_still_tells_where_its_epoch_began(tier: WholeTier) -> None:
    """Epoch 1 has no records in the log; only what was deleted tells that it began at 25."""
    tier.put(1, 0, 19, {0: 0}, cleaned=Cleaned({0: None, 1: 30}))
    of_epoch = tier.put(2, 20, 29, {0: 20, 1: 25}, checkpoint={0: 0, 1: 25})
    told = [("lost-values", None, lost("25 to 29"))]
    present = lineage({0: 0, 2: 50}, 60, log_start=0)
    assert [one for one in said(await tier.verified(present)) if one[0] == "lost-values"] == told
    tier.tell(
        update(of_epoch, RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        update(of_epoch, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED),
    )
    tier.remove(of_epoch)
    assert [one for one in said(await tier.verified(present)) if one[0] == "lost-values"] == told
