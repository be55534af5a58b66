"""What a restoration takes from the files where the old metadata does not tell all, and what it leaves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.offline.cluster_restore import CannotRestore, RestoredLog, Wishes
from milena.tiered.offline.epoch_history import furthest
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.unit.tiered.restored_logs import log_of, restored
from tests.unit.tiered.segments import PARTITION, epochs, update
from tests.unit.tiered.whole_tier import WholeTier, lineage, on_a_tier

COPYING = RemoteLogSegmentState.COPY_SEGMENT_STARTED
COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
SECOND = replace(PARTITION, partition=1)


def bounds(log: RestoredLog) -> tuple[int, int]:
    return log.log_start, log.lineage.log_end


def ids(log: RestoredLog) -> list[int]:
    return [one.id.int for one in log.segments]


def begun(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
    tier.tell(replace(segment, state=COPYING))


@on_a_tier
async def test_a_partition_without_metadata_is_restored_from_its_files(tier: WholeTier) -> None:
    """As where a partition of the metadata topic is lost."""
    tier.put(1, 0, 3, {0: 0})
    lost = [
        tier.put(
            number, 10 * number, 10 * number + 9, {0: 10 * number}, checkpoint={0: 0}, partition=SECOND, listed=False
        )
        for number in range(2, 5)
    ]
    result = await restored(tier, with_metadata=True)
    assert [bounds(log) for log in result.topics[0].logs.values()] == [(0, 4), (20, 50)]
    assert ids(result.topics[0].logs[1]) == [2, 3, 4]
    assert result.notes == [
        f"t-1: the metadata does not list segment {to_text(lost[0].id)} and 2 more: taken from the files, "
        "offsets 20 to 49"
    ]


@on_a_tier
async def test_metadata_older_than_the_tier_is_completed_from_the_files(tier: WholeTier) -> None:
    """The replicas beside it are as old."""
    tier.put(1, 0, 3, {0: 0})
    tier.put(2, 4, 7, {0: 4}, checkpoint={0: 0}, listed=False)
    tier.put(3, 8, 11, {2: 8}, checkpoint={0: 0, 2: 8}, listed=False)
    for old in (None, lineage({0: 0}, 4, 0), lineage({0: 0, 1: 4}, 4, 0)):
        log = await log_of(tier, with_metadata=True, replicas={PARTITION: old} if old else None)
        assert (bounds(log), log.leader_epoch, ids(log)) == ((0, 12), 3, [1, 2, 3])
        assert log.lineage.epochs == epochs({0: 0, 2: 8})
    result = await restored(tier, with_metadata=True, replicas={PARTITION: lineage({0: 0}, 4, 0)})
    assert [note for note in result.notes if "log ended at 3 in leader epoch 0, the tier's at 11 in 2" in note]


@on_a_tier
async def test_a_copy_without_a_finished_record_counts_if_it_is_whole(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    whole = tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, listed=False)
    begun(tier, whole)
    part = tier.put(3, 20, 29, {0: 20}, checkpoint={0: 0}, listed=False)
    begun(tier, part)
    tier.remove(part, ".log")
    result = await restored(tier, with_metadata=True)
    log = result.topics[0].logs[0]
    assert bounds(log) == (0, 20)
    assert [one.state for one in log.segments] == [COPIED, COPIED, COPYING]
    assert log.segments[1] == replace(whole, event_timestamp_ms=log.segments[1].event_timestamp_ms)
    [note] = result.notes
    assert "has only the start of the copy of segment" in note and note.endswith("offsets 10 to 19")


@on_a_tier
async def test_a_copy_that_contradicts_its_announcement_is_left_out(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    other = tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, listed=False)
    begun(tier, replace(other, end_offset=Offset(24), size=other.size + 500))
    result = await restored(tier, with_metadata=True)
    assert bounds(result.topics[0].logs[0]) == (0, 10)
    [note] = result.notes
    assert (
        f"is left out: its log has offsets 10 to 19 in {other.size} bytes, its metadata says offsets 10 to 24" in note
    )


@pytest.mark.parametrize("lost", ["beginning", "all"])
def test_a_gap_in_the_metadata_is_filled(lost: str) -> None:
    @on_a_tier
    async def scenario(tier: WholeTier) -> None:
        tier.put(1, 0, 9, {0: 0})
        middle = tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, listed=False)
        if lost == "beginning":
            tier.tell(update(middle, COPIED))
        tier.put(3, 20, 29, {0: 20}, checkpoint={0: 0})
        log = await log_of(tier, with_metadata=True)
        assert (bounds(log), ids(log)) == ((0, 30), [1, 2, 3])

    scenario()


@pytest.mark.parametrize(
    "listed",
    [
        [COPYING, COPIED, DELETING],
        [COPYING, COPIED, DELETING, DELETED],
        [COPYING, DELETING],
        [COPYING, COPIED, DELETED],
        [COPYING, DELETED],
        [DELETED],
    ],
)
def test_what_was_deleted_does_not_come_back(listed: Sequence[RemoteLogSegmentState]) -> None:
    @on_a_tier
    async def scenario(tier: WholeTier) -> None:
        deleted = tier.put(1, 0, 9, {0: 0}, listed=False)
        for state in listed:
            tier.tell(replace(deleted, state=COPYING) if state is COPYING else update(deleted, state))
        tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0})
        assert bounds(await log_of(tier, with_metadata=True)) == (10, 20)
        tier.put(3, 0, 4, {0: 0})
        reason = f"the metadata says that segment {to_text(deleted.id)} with files here was deleted"
        with pytest.raises(CannotRestore, match=rf"offsets 5 to 9 are in no segment \(.*{re.escape(reason)}\); with"):
            await restored(tier, with_metadata=True)
        result = await restored(tier, Wishes(skip_gaps=True), with_metadata=True)
        assert bounds(result.topics[0].logs[0]) == (10, 20)

    scenario()


@on_a_tier
async def test_files_that_add_nothing_are_left_in_the_tier(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    again = tier.put(2, 0, 9, {0: 0}, listed=False)
    dead = tier.put(3, 5, 9, {0: 5, 1: 7}, checkpoint={0: 0, 1: 7}, listed=False)
    tier.put(4, 10, 19, {0: 10, 2: 12}, checkpoint={0: 0, 2: 12})
    result = await restored(tier, with_metadata=True)
    log = result.topics[0].logs[0]
    assert (bounds(log), ids(log)) == ((0, 20), [1, 4])
    [note] = result.notes
    assert (
        f"does not list segment {to_text(again.id)} and 1 more, which has no offsets that other segments lack" in note
    )
    assert dead.id not in {one.id for one in log.segments}


@pytest.mark.parametrize("listed", [(), (1,), (2,), (1, 4)])
def test_of_several_sets_as_few_are_taken_as_it_needs_those_of_the_lineage_as_a_whole_first(
    listed: Sequence[int],
) -> None:
    @on_a_tier
    async def scenario(tier: WholeTier) -> None:
        tier.put(1, 0, 4, {0: 0}, listed=1 in listed)
        tier.put(2, 5, 9, {0: 5}, checkpoint={0: 0}, listed=2 in listed)
        tier.put(3, 0, 11, {0: 0, 1: 10}, listed=False)
        tier.put(4, 10, 19, {2: 10}, checkpoint={0: 0, 2: 10}, listed=4 in listed)
        tier.put(5, 10, 14, {2: 10}, checkpoint={0: 0, 2: 10}, listed=False)
        tier.put(6, 15, 19, {2: 15}, checkpoint={0: 0, 2: 10}, listed=False)
        tier.put(7, 0, 9, {0: 0}, partition=SECOND)
        log = await log_of_first(tier)
        assert (bounds(log), ids(log)) == ((0, 20), [1, 2, 4])

    scenario()


async def log_of_first(tier: WholeTier) -> RestoredLog:
    return (await restored(tier, with_metadata=True)).topics[0].logs[0]


@on_a_tier
async def test_a_second_copy_of_all_there_is_is_not_taken(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    tier.put(2, 0, 9, {0: 0}, listed=False)
    assert ids(await log_of(tier, with_metadata=True)) == [1]


@on_a_tier
async def test_files_below_the_old_log_start_are_left_in_the_tier(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0}, listed=False)
    tier.put(2, 20, 29, {0: 20}, checkpoint={0: 0})
    for log_start in (15, 20):
        log = await log_of(tier, with_metadata=True, replicas={PARTITION: lineage({0: 0}, 30, log_start)})
        assert (bounds(log), ids(log)) == ((20, 30), [2])


@on_a_tier
async def test_gaps_below_the_log_start_are_ignored_and_a_lost_beginning_is_reported(tier: WholeTier) -> None:
    tier.put(1, 0, 4, {0: 0})
    tier.put(2, 20, 29, {0: 20}, checkpoint={0: 0})
    log = await log_of(tier, with_metadata=True, replicas={PARTITION: lineage({0: 0}, 30, 20)})
    assert bounds(log) == (20, 30)
    tier.put(3, 0, 4, {0: 0}, partition=SECOND)
    result = await restored(
        tier,
        with_metadata=True,
        replicas={PARTITION: lineage({0: 0}, 30, 10), SECOND: lineage({0: 0}, 9, 0)},
    )
    assert result.notes == [
        "t-0: offsets 10 to 19, with which the old replicas' log began, are in no segment, the log begins at 20"
    ]


@on_a_tier
async def test_damaged_files_without_metadata_are_named_with_the_gap(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    middle = tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0}, listed=False)
    tier.put(3, 20, 29, {0: 20}, checkpoint={0: 0})
    data = bytearray(tier.read(middle, ".log"))
    data[70] ^= 1
    tier.write(middle, ".log", bytes(data))
    sentence = rf"offsets 10 to 19 are in no segment \(segment {to_text(middle.id)} is left out: .* wrong checksum\)"
    with pytest.raises(CannotRestore, match=sentence):
        await restored(tier, with_metadata=True)


@on_a_tier
async def test_unreadable_metadata_is_reported(tier: WholeTier) -> None:
    tier.values += [b"\x01\x09\x00", b"\x01\x00\x00\xff"]
    tier.put(1, 0, 9, {0: 0})
    [note] = (await restored(tier, with_metadata=True)).notes
    assert note.startswith("partition 0 of the metadata topic cannot be read completely: ")
    assert note.endswith(", and 1 more there")


def test_of_replicas_and_tier_the_newer_log_goes_on_and_in_one_epoch_the_longer() -> None:
    old, tier = lineage({0: 0, 2: 5}, 8, 3), lineage({0: 0, 2: 5}, 12)
    assert furthest(None, None) is None and furthest(old, None) is old and furthest(None, tier) is tier
    assert furthest(old, tier) == replace(old, log_end=Offset(12))
    assert furthest(old, lineage({0: 0, 2: 5}, 6)) is old
    assert furthest(old, lineage({0: 0, 1: 4}, 20)) is old
    assert furthest(old, lineage({0: 0, 3: 4}, 6)) == replace(lineage({0: 0, 3: 4}, 6), log_start=Offset(3))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_metadata_has_lost_the_log_is_the_same(seed: int) -> None:
    """A log in segments that two leaders have cut, of which records are lost at random."""

    @on_a_tier
    async def scenario(tier: WholeTier) -> None:
        random, number = Random(seed), 0
        for _ in range(2):
            cuts = sorted({0, *random.sample(range(1, 60), 6), 60})
            for first, after in pairwise(cuts):
                number += 1
                starts = {first // 20: first} | {one: one * 20 for one in range(3) if first < one * 20 < after}
                known = {one: one * 20 for one in range(3) if one * 20 < after}
                segment = tier.put(number, first, after - 1, starts, checkpoint=known, listed=False)
                events = list(events_of(segment))
                tier.tell(*random.choice([events, events, events[:1], events[1:], []]))
        result = await restored(tier, with_metadata=True)
        log = result.topics[0].logs[0]
        assert (bounds(log), log.lineage.epochs) == ((0, 60), epochs({0: 0, 1: 20, 2: 40}))

    scenario()
