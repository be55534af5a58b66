"""Metadata of a segment are rebuilt from the ends of its files, or from whole files if the ends are not sufficient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milena.pipeline.locations import storage_of
from milena.pipeline.loops import LoopThread
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, rebuilt, surveyed
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from tests.pipeline.made_tiers import MadeTier, run


def both(made: MadeTier) -> tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadata]:
    with LoopThread() as loop:
        storage = storage_of(loop.runtime, str(made.folder), "")
        loop.at_end(storage.close)
        [stored] = loop.run(storage.segments())
        return loop.run(surveyed(storage, stored)).metadata, loop.run(rebuilt(storage, stored)).metadata


def test_the_ends_of_the_files_give_the_same_metadata_as_whole_files(made: MadeTier) -> None:
    made.add(run(50, 150, epoch=4), epochs={1: 0, 4: 20, 5: 150})
    quick, whole = both(made)
    assert quick == whole
    assert (quick.start_offset, quick.end_offset, [*quick.epochs]) == (50, 149, [(4, 50)])


@pytest.mark.parametrize(
    "harm",
    [
        lambda log: log.with_suffix(".index").unlink(),
        lambda log: log.with_suffix(".index").write_bytes(b"\0\0\0\5\0\0\0\3"),
        lambda log: log.with_suffix(".timeindex").unlink(),
        lambda log: log.with_suffix(".leader_epoch_checkpoint").write_bytes(b"none"),
    ],
)
def test_whole_files_are_read_if_their_ends_are_not_sufficient(made: MadeTier, harm: Callable[[Path], object]) -> None:
    segment = made.add(run(50, 150))
    harm(made.log(segment))
    quick, whole = both(made)
    assert quick == whole and quick.end_offset == 149


def test_a_log_file_without_batches_is_no_segment(made: MadeTier) -> None:
    made.log(made.add(run(0, 10))).write_bytes(b"PAR1" * 100)
    with pytest.raises(NotASegment, match="the log has no batch"):
        both(made)
