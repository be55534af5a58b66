"""Tasks of the tier that contradict the log or themselves, corrupted on purpose: the step ends, and the next round
starts again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import Offset
from milena.tiered.segments.eligibility import candidates
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentState
from milena.tiered.shared.pool import Pool
from milena.tiered.work.copying import copy_round, prepare
from milena.tiered.work.deletion import announce_deletion
from tests.unit.tiered.chunks import Bench as ChunkBench
from tests.unit.tiered.chunks import in_simulation
from tests.unit.tiered.tiered_log import Bench, on_bench


def test_a_segment_above_the_last_stable_offset_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(2)
        found = candidates(
            [segment.base_offset for segment in bench.log.segments],
            copied=Offset(-1),
            log_start=Offset(0),
            stable=Offset(4),
        )
        bench.log.set_high_watermark(Offset(3))
        monkeypatch.setattr("milena.tiered.work.copying.candidates", lambda *_, **__: found)
        with pytest.raises(BrokenInvariant, match="which is stable up to 3"):
            await copy_round(bench.tier, bench.role())
        assert bench.stored() == [0], "the segment before it was copied"

    on_bench(scenario)


def test_a_segment_of_another_log_is_not_announced() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(2)
        role, log = bench.role(), bench.log
        with pytest.raises(BrokenInvariant, match="segment 0 to 3 is not of"):
            prepare(bench.tier, role, log, log.segments[0], Offset(3))
        assert bench.states() == []

    on_bench(scenario)


def test_a_segment_that_was_deleted_is_not_deleted_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        [segment] = bench.published_segments()
        gone = replace(segment, state=RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
        with pytest.raises(BrokenInvariant, match="is deleted after DELETE_SEGMENT_FINISHED"):
            await announce_deletion(bench.tier, gone, UNFENCED)
        assert bench.states()[-1] == "COPY_SEGMENT_FINISHED 0"

    on_bench(scenario)


def test_no_more_indexes_go_than_are_cached() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        [segment] = bench.published_segments()
        await bench.tier.indexes.get(segment)
        bench.tier.indexes.size = 1
        with pytest.raises(BrokenInvariant, match="go where 1 are cached"):
            bench.tier.indexes.remove([segment.id])

    on_bench(scenario)


@in_simulation
async def test_no_more_chunks_go_than_are_cached(bench: ChunkBench) -> None:
    cache = bench.cache(chunk=100)
    await cache.read("a", 100, 0, 100)
    cache.used = 1
    with pytest.raises(BrokenInvariant, match="goes where 1 are cached"):
        cache.forget("a")


def test_no_more_places_are_given_back_than_were_taken() -> None:
    async def scenario() -> None:
        pool = Pool(lambda: 1)
        async with pool:
            pass
        with pytest.raises(BrokenInvariant, match="0 are in use"):
            await pool.__aexit__(None, None, None)
        assert pool.busy == 0

    asyncio.run(scenario())
