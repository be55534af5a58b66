"""Compaction of the tier across a change of leader (the table of the draft KIP-1272): every broker serves the same
segments, whichever of two cleanings comes first in the metadata topic.

A (epoch 0) has cleaned up to 100, and B (epoch 1) has read that. B cleans up to 155. A resumes and publishes a pending
segment, cleaned up to 123: it lacks records before 100 in favour of later ones, which B does not assume.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentMetadata
from tests.simulation.metadata_managers import FINISHED, P0, Tier, beside_brokers
from tests.simulation.steps import until
from tests.unit.tiered.segments import epochs, fence, offsets, segment, update

A, B, LATE, RESTORED = range(1, 5)
LINEAGE = epochs({0: 0, 1: 200})
SOURCES = [segment(1, 0, 99, {0: 0}, partition=P0), segment(2, 100, 199, {0: 100}, partition=P0)]
SEG_0, SEG_1, SEG_2 = 10, 11, 12


def cleaned(
    number: int, source: int, entries: Mapping[int, int | None], *replaced: int, epoch: int
) -> RemoteLogSegmentMetadata:
    return replace(
        segment(number, SOURCES[source].start_offset, SOURCES[source].end_offset, {0: 100 * source}, partition=P0),
        cleaned=offsets(entries),
        replaces=tuple(UUID(int=one) for one in replaced),
        leader_epoch=LeaderEpoch(epoch),
    )


def published_segments(*, fences: bool) -> dict[int, RemoteLogSegmentMetadata]:
    """The segments that the leaders publish; without ``fences`` these do not carry leader epochs."""
    every = {
        SEG_0: cleaned(SEG_0, 0, {0: 100}, 1, epoch=0),
        SEG_1: cleaned(SEG_1, 0, {0: 123}, 1, SEG_0, epoch=0),
        SEG_2: cleaned(SEG_2, 1, {0: 100, 1: 155}, 2, epoch=1),
    }
    return every if fences else {number: replace(one, leader_epoch=UNFENCED) for number, one in every.items()}


async def publish(manager: TopicMetadataManager, one: RemoteLogSegmentMetadata) -> None:
    await manager.add(one)
    await manager.update(replace(update(one, FINISHED), leader_epoch=one.leader_epoch))


def served(manager: TopicMetadataManager) -> list[int]:
    found = manager.cache(P0).served(Offset(0), leader_epochs=LINEAGE, log_end=Offset(300))
    return [one.segment.id.int for one in found]


def play(first: int, *, fences: bool, expected: list[int]) -> None:
    async def scenario(tier: Tier) -> None:
        segments = published_segments(fences=fences)
        former, present, restored = await tier.ready(A), await tier.ready(B), await tier.ready(RESTORED)
        for one in (*SOURCES, segments[SEG_0]):
            await publish(former, one)
        await until(lambda: served(restored) == served(present) == [SEG_0, 2])
        await tier.end(restored, RESTORED)
        assert tier.files(RESTORED), "a snapshot"
        if first == SEG_1:
            await publish(former, segments[SEG_1])
        if fences:
            await present.update(fence(1, P0))
        await publish(present, segments[SEG_2])
        if first == SEG_2:
            await publish(former, segments[SEG_1])
        await present.update(update(SOURCES[1], FINISHED))  # the last update in the log
        everyone = [former, present, await tier.ready(LATE), await tier.ready(RESTORED)]
        await until(lambda: all(served(one) == expected for one in everyone), 30)
        for manager in everyone:
            await manager.stop()

    beside_brokers(scenario)


@pytest.mark.parametrize("fences", [True, False])
@pytest.mark.parametrize("first", [SEG_1, SEG_2])
def test_no_broker_serves_the_stale_cleaning(first: int, fences: bool) -> None:
    play(first, fences=fences, expected=[SEG_0, SEG_2])


@pytest.mark.parametrize("first", [SEG_1, SEG_2])
def test_without_the_fence_brokers_serve_the_stale_cleaning_in_place_of_needed_records(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control experiment."""
    monkeypatch.setattr(Cleanings, "count", lambda *_: True)
    play(first, fences=False, expected=[SEG_1, SEG_2])


def test_a_stale_cleaning_behind_the_fence_is_not_in_the_cache() -> None:
    async def scenario(tier: Tier) -> None:
        segments = published_segments(fences=True)
        former, present = await tier.ready(A), await tier.ready(B)
        await publish(former, segments[SEG_0])
        await present.update(fence(1, P0))
        await publish(former, segments[SEG_1])
        await until(lambda: former.cache(P0).fence_epoch == present.cache(P0).fence_epoch == 1)
        for one in (former, present):
            assert one.cache(P0).get(UUID(int=SEG_1)) is None
        for one in (former, present):
            await one.stop()

    beside_brokers(scenario)
