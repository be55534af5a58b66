"""With ``failOnDataLoss=false``, damage in a log costs the damaged batch and nothing after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest

from milena.pipeline import open_tier
from milena.pipeline.errors import DataLoss, PipelineError
from milena.pipeline.locations import storage_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.open_tier import Damaged, OpenTier
from milena.pipeline.options import source_options
from milena.pipeline.planning import Stretch
from milena.pipeline.plans import TierPlan
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from tests.pipeline.made_tiers import Batch, MadeTier, run

BATCH = len(Batch(0, 10, size=20).bytes())
LENGTH, CRC_COVERED = 8, 30
"""Positions in a batch: its length, which the checksum does not cover, and a byte that it covers."""


@pytest.fixture
def made(tmp_path: Path) -> MadeTier:
    return MadeTier(tmp_path / "tier")


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as found:
        yield found


def read(
    loop: LoopThread, made: MadeTier, segment: RemoteLogSegmentMetadata, first: int = 0, last: int = 99, url: str = ""
) -> tuple[list[int], list[str]]:
    """Return the offsets that are read, and the messages about losses."""
    losses: list[str] = []
    storage = storage_of(loop.runtime, url or str(made.folder), "")
    loop.at_end(storage.close)
    found: list[int] = []
    try:
        for batch in OpenTier(loop, storage).batches(
            Stretch(segment.segment_id.partition, first, last, 1, segment), skip=losses.append
        ):
            found += range(batch.base_offset, batch.last_offset + 1)
    except Damaged as error:
        losses.append(str(error))
    return found, [one.partition(".log, ")[2] for one in losses]


def harm(made: MadeTier, segment: RemoteLogSegmentMetadata, *batches: int, at: int = CRC_COVERED) -> None:
    log = made.log(segment)
    data = bytearray(log.read_bytes())
    for number in batches:
        data[number * BATCH + at] ^= 0x11
    log.write_bytes(data)


@pytest.mark.parametrize(
    ("damaged", "lost", "sentences"),
    [
        ((0,), [range(10)], ["offsets 0 to 9: "]),
        ((4,), [range(40, 50)], ["offsets 40 to 49: "]),
        ((4, 5), [range(40, 60)], ["offsets 40 to 59: "]),
        ((2, 7), [range(20, 30), range(70, 80)], ["offsets 20 to 29: ", "offsets 70 to 79: "]),
        ((9,), [range(90, 100)], ["at offset 90: "]),
    ],
)
@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_a_batch_with_a_wrong_checksum_costs_its_own_records(
    made: MadeTier,
    loop: LoopThread,
    monkeypatch: pytest.MonkeyPatch,
    damaged: tuple[int, ...],
    lost: list[range],
    sentences: list[str],
    piece: int,
) -> None:
    monkeypatch.setattr(open_tier, "PIECE", piece)
    segment = made.add(run(0, 100, size=20))
    harm(made, segment, *damaged)
    found, losses = read(loop, made, segment)
    assert found == [one for one in range(100) if not any(one in part for part in lost)]
    assert [one.partition("a batch")[0][: len(sentence)] for one, sentence in zip(losses, sentences, strict=True)] == (
        sentences
    )
    assert all("checksum" in one for one in losses)


def test_a_damaged_length_costs_the_records_up_to_the_next_index_entry(made: MadeTier, loop: LoopThread) -> None:
    segment = made.add(run(0, 100, size=20))
    harm(made, segment, 4, at=LENGTH)
    found, losses = read(loop, made, segment)
    assert found == [*range(40), *range(50, 100)] and len(losses) == 1
    made.log(segment).with_suffix(".index").write_bytes(b"")
    found, losses = read(loop, made, segment)
    assert found == list(range(40)) and losses[0].startswith("at offset 40: ")


def test_damage_outside_of_the_stretch_is_no_loss(made: MadeTier, loop: LoopThread) -> None:
    segment = made.add(run(0, 100, size=20))
    made.log(segment).with_suffix(".index").write_bytes(b"")  # so that reading begins with the first batch
    harm(made, segment, 1, 6)
    assert read(loop, made, segment, 25, 59) == (list(range(20, 60)), [])


@pytest.mark.parametrize(("size", "left"), [(5 * BATCH, 50), (5 * BATCH + 7, 50), (0, 0)])
@pytest.mark.parametrize("place", ["folder", "store"])
def test_a_log_that_is_shorter_than_its_metadata_yields_what_it_has(
    made: MadeTier, loop: LoopThread, size: int, left: int, place: str
) -> None:
    segment = made.add(run(0, 100, size=20))
    made.log(segment).write_bytes(made.log(segment).read_bytes()[:size])
    url = "memory://short-logs" if place == "store" else ""
    if url:
        fsspec.filesystem("memory").put(str(made.folder), "/short-logs", recursive=True)
    found, losses = read(loop, made, segment, url=url)
    assert found == list(range(left)) and len(losses) == 1 and losses[0].startswith(f"at offset {left}: ")
    if url:
        fsspec.filesystem("memory").rm("/short-logs", recursive=True)


def known(loop: LoopThread, made: MadeTier, *, strict: bool, tier: str = "") -> tuple[int, int]:
    options = source_options(
        {"tier": tier or str(made.folder), "subscribe": "orders", "failOnDataLoss": str(strict).lower()}
    )
    plan = TierPlan(loop, options)
    (partition,) = plan.partitions()
    return plan.bounds(partition)


@pytest.mark.parametrize(("lost", "left"), [(0, (100, 200)), (1, (0, 100))])
def test_indexes_without_their_log_are_a_loss_without_metadata(
    made: MadeTier, loop: LoopThread, lost: int, left: tuple[int, int]
) -> None:
    segments = [made.add(run(0, 100, size=20)), made.add(run(100, 200))]
    made.log(segments[lost]).unlink()
    with pytest.raises(DataLoss, match=rf"0{{15}}{lost}00-.*\.log is missing, and its indexes are there .*failOnData"):
        known(loop, made, strict=True)
    assert known(loop, made, strict=False) == left


def test_the_indexes_of_an_interrupted_copy_are_no_loss_if_the_copy_was_repeated(
    made: MadeTier, loop: LoopThread
) -> None:
    made.log(made.add(run(0, 100, size=20))).unlink()
    made.add(run(0, 150))
    assert known(loop, made, strict=True) == (0, 150)


def test_new_indexes_at_the_end_of_a_log_in_a_store_may_belong_to_a_copy_that_is_under_way(
    made: MadeTier, loop: LoopThread
) -> None:
    made.add(run(0, 100, size=20))
    made.log(made.add(run(100, 200))).unlink()
    store = fsspec.filesystem("memory")
    store.put(str(made.folder), "/under-way", recursive=True)
    assert known(loop, made, strict=True, tier="memory://under-way") == (0, 100)
    for one in store.find("/under-way"):
        store.store[one].modified = store.store[one].created = datetime(2020, 1, 1, tzinfo=UTC)
    with pytest.raises(PipelineError, match="is missing, and its indexes are there"):
        known(loop, made, strict=True, tier="memory://under-way")
    store.rm("/under-way", recursive=True)
