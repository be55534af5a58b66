"""`milena log dump`: every kind of file, and files that are damaged."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import pytest

from milena.__main__ import run
from milena.command_line.errors import UsageError, UserError
from milena.commands.dump import Damage, Range, dump
from milena.protocol.records.records import Record, build_batch
from milena.protocol.types import Offset
from milena.storage.files.checkpoints import encode_offsets, encode_partition_metadata


def batch(base: int, *values: bytes) -> bytes:
    records = [Record(index, 0, b"key", value) for index, value in enumerate(values)]
    return build_batch(records, base_offset=Offset(base), base_timestamp=1_000)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    path.write_bytes(batch(0, b"one", b"two") + batch(2, b"three"))
    return path


EVERYTHING = Range()


def lines(path: Path, wanted: Range = EVERYTHING) -> list[str]:
    return list(dump(str(path), wanted))


def test_a_segment_is_shown_as_batches_and_records(segment: Path) -> None:
    shown = lines(segment)
    assert [line.split()[:2] for line in shown if not line.startswith("|")] == [
        ["baseOffset:", "0"],
        ["baseOffset:", "2"],
    ]
    assert sum(line.startswith("|") for line in shown) == 3
    assert "three" in shown[-1]


def test_options_omit_records_and_select_batches(segment: Path) -> None:
    assert len(lines(segment, Range(records=False))) == 2
    assert lines(segment, Range(records=False, from_offset=2))[0].startswith("baseOffset: 2 ")
    assert len(lines(segment, Range(records=False, max_batches=1))) == 1


def test_a_torn_end_is_reported_after_the_complete_batches(segment: Path) -> None:
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:30])
    reading = dump(str(segment), Range(records=False))
    assert len([next(reading), next(reading)]) == 2
    with pytest.raises(Damage, match=f"30 bytes at position {len(whole)}"):
        next(reading)


def test_a_wrong_checksum_is_reported(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(Damage, match="wrong CRC"):
        lines(segment)


def test_indexes_are_shown_with_absolute_offsets(tmp_path: Path) -> None:
    offsets = tmp_path / "00000000000000000100.index"
    offsets.write_bytes(struct.pack(">iiii", 5, 4096, 9, 8192))
    times = tmp_path / "00000000000000000100.timeindex"
    times.write_bytes(struct.pack(">qi", 1_000, 5))
    assert lines(offsets) == ["offset: 105 position: 4096", "offset: 109 position: 8192"]
    assert lines(times) == ["timestamp: 1000 offset: 105"]


def test_an_index_with_decreasing_offsets_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(struct.pack(">iiii", 9, 4096, 5, 8192))
    with pytest.raises(Damage, match="offset 5 follows 9"):
        lines(path)


def test_checkpoints_are_shown(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(encode_offsets({("orders", 3): Offset(7)}))
    (tmp_path / "partition.metadata").write_bytes(encode_partition_metadata(UUID(int=1)))
    assert lines(tmp_path / "recovery-point-offset-checkpoint") == ["orders-3: 7"]
    assert lines(tmp_path / "partition.metadata") == ["topicId: AAAAAAAAAAAAAAAAAAAAAQ"]


def test_the_command_exits_with_1_for_a_damaged_file_and_reports_a_missing_one(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "dump", str(segment)]) == 0
    segment.write_bytes(b"short")
    assert run(["log", "dump", str(segment)]) == 1
    assert "damaged: 5 bytes at position 0" in capsys.readouterr().out
    with pytest.raises(UserError, match="No such file"):
        run(["log", "dump", str(segment) + "x.log"])
    with pytest.raises(UsageError, match="did you mean dump"):
        run(["log", "dmp"])
