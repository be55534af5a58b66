"""The output of `milena tier` for a partition whose tier two leaders have cleaned (the table of the draft KIP-1272)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from milena.commands.tier.command import main
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.runtime.files import RealDisk
from milena.tiered.metadata.serialization import MetadataEvent, serialize
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from tests.unit.tiered.segments import fence
from tests.unit.tiered.whole_tier import Cleaned, write_segment

SOURCE, OTHER, STALE, CLEANED = 1, 2, 11, 12
IDS = {number: to_text(UUID(int=number)) for number in (SOURCE, OTHER, STALE, CLEANED)}


def write_metadata(folder: Path, events: Iterable[MetadataEvent]) -> None:
    builder = BatchBuilder()
    for event in events:
        builder.append(timestamp=1, value=serialize(event))
    (folder / "__remote_log_metadata-0").mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    (folder / "__remote_log_metadata-0" / f"{0:020d}.log").write_bytes(builder.build())


@pytest.fixture
def place(tmp_path: Path) -> list[str]:
    """The source of a cleaning, its stale and its valid replacement, and a segment that was not cleaned."""
    disk, tier = RealDisk(), tmp_path / "tier"

    def put(number: int, start: int, *, cleaned: Cleaned | None = None) -> RemoteLogSegmentMetadata:
        made = cleaned or Cleaned({})
        return write_segment(disk, str(tier), number, start, start + 9, {0: start}, checkpoint={0: 0}, cleaned=made)

    segments = [
        put(SOURCE, 0),
        put(OTHER, 10),
        put(STALE, 0, cleaned=Cleaned({0: 18}, [SOURCE], [3])),
        put(CLEANED, 0, cleaned=Cleaned({0: 10, 1: 20}, [SOURCE], [3, 5])),
    ]
    disk.close()
    end = replace(fence(1), first_dirty=Offset(20))
    write_metadata(tmp_path / "data", [*(event for one in segments for event in events_of(one)), end])
    return ["--tier", str(tier), "--dir", str(tmp_path / "data")]


def test_ls_shows_replaced_and_rejected_segments_and_their_replacements(
    place: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ls", *place, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["fence_epoch"], plain["first_dirty_offset"]) == (1, 20)
    cleanings = {one["id"]: one["cleaning"] for one in plain["segments"]}
    nothing = {
        "cleaner_offsets": [],
        "replaces": [],
        "counts": True,
        "replaced_by": [],
        "rejected_by": [],
        "contradicted": None,
    }
    source = [IDS[SOURCE]]
    assert cleanings == {
        IDS[OTHER]: nothing,
        IDS[SOURCE]: nothing | {"counts": False, "replaced_by": [IDS[CLEANED]]},
        IDS[CLEANED]: nothing | {"cleaner_offsets": [[0, 10], [1, 20]], "replaces": source},
        IDS[STALE]: nothing
        | {
            "cleaner_offsets": [[0, 18]],
            "replaces": source,
            "counts": False,
            "rejected_by": [IDS[CLEANED]],
            "contradicted": [[0, 10], [1, 20]],
        },
    }
    assert main(["ls", *place]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "  fenced in leader epoch 1, clean before 20" in rows
    ends = [next(row for row in rows if IDS[number] in row.split()[5:7]) for number in (SOURCE, OTHER, STALE, CLEANED)]
    assert [row.partition("0 from ")[2].partition("  ")[2] for row in ends] == [
        f"replaced by {IDS[CLEANED]}",
        "",
        f"cleaned {{0: 18}}, rejected by {{0: 10, 1: 20}} of {IDS[CLEANED]}",
        "cleaned {0: 10, 1: 20}",
    ]


def test_show_has_the_cleaning_of_a_segment(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", IDS[STALE], *place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"  cleaning: cleaned {{0: 18}}, rejected by {{0: 10, 1: 20}} of {IDS[CLEANED]}" in lines
    assert f"  replaces: {IDS[SOURCE]}" in lines
    assert main(["show", IDS[OTHER], *place]) == 0
    assert "cleaning:" not in capsys.readouterr().out


def test_fetch_reads_the_segments_that_consumers_read_and_warns_of_others(
    place: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "t:0", "--json", *place]) == 0
    found = capsys.readouterr()
    assert [json.loads(line)["offset"] for line in found.out.splitlines()] == [3, 5, *range(10, 20)]
    assert found.err == ""
    assert main(["fetch", IDS[SOURCE], "--json", *place]) == 0
    found = capsys.readouterr()
    assert len(found.out.splitlines()) == 10
    assert found.err == f"milena: segment {IDS[SOURCE]} is not read by consumers: replaced by {IDS[CLEANED]}\n"
