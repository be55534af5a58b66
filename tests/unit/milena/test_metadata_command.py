"""`milena metadata check` and `repair`: findings, repair from copies, and refused calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.__main__ import run
from milena.command_line.errors import UserError
from milena.node.metadata.committed_offset import CommittedOffsetFile
from milena.node.metadata.snapshots import MetadataSnapshotId, snapshot_batches
from milena.protocol.metadata_records import FeatureLevelRecord, encode_record
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import Record, build_batch
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.files import RealDisk
from milena.storage.files.meta_properties import MetaProperties, encode_meta_properties

COUNT = 10


def batch(offset: int, *, name: str = "feature") -> bytes:
    record = FeatureLevelRecord(name=f"{name}-{offset}", feature_level=1)
    return build_batch(
        [Record(0, 0, None, encode_record(record))], base_offset=Offset(offset), leader_epoch=LeaderEpoch(1)
    )


def folder_of(path: Path, node: int = 1, cluster: str = "some") -> Path:
    folder = path / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (path / "meta.properties").write_bytes(encode_meta_properties(MetaProperties(cluster, NodeId(node), None)))
    return folder


def write(folder: Path, offsets: range, *, damaged: tuple[int, ...] = (), name: str = "feature") -> Path:
    """A segment with one batch for each offset."""
    path = folder / f"{offsets[0]:020d}.log"
    with path.open("wb") as file:
        for offset in offsets:
            data = bytearray(batch(offset, name=name))
            data[-3] ^= 1 if offset in damaged else 0
            file.write(data)
    return path


def offsets_in(folder: Path) -> list[int]:
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    found: list[int] = []
    for one in iter_batches(memoryview(bytearray(data))):
        one.verify_crc()
        found.append(one.base_offset)
    return found


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "controller")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "broker", 2)


def test_check_reports_intact_and_lost_offsets(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(ours, range(COUNT), damaged=(4,))
    before = path.read_bytes()
    assert run(["metadata", "check", str(ours.parent)]) == 1
    said = capsys.readouterr().out
    assert f"damaged: {path} at byte {4 * len(batch(0))}, from offset 4 on: wrong checksum" in said
    assert "intact: offsets 0 to 3\nintact: offsets 5 to 9\n" in said
    assert "the offsets 4 to 4 are lost" in said
    assert path.read_bytes() == before
    write(ours, range(COUNT))
    assert run(["metadata", "check", str(ours)]) == 0


@pytest.mark.parametrize("damaged", [(0,), (4,), (4, 7), (9,), (3, 4, 5)], ids=str)
def test_damaged_batches_are_replaced_from_a_copy(ours: Path, copy: Path, damaged: tuple[int, ...]) -> None:
    path = write(ours, range(COUNT), damaged=damaged)
    before = path.read_bytes()
    CommittedOffsetFile(RealDisk(), str(ours)).write(Offset(COUNT))
    write(copy, range(COUNT + 2))
    assert run(["metadata", "repair", str(ours), "--from", str(copy.parent)]) == 0
    assert offsets_in(ours) == list(range(COUNT + 2))
    assert (ours / f"{path.name}.damaged").read_bytes() == before
    assert run(["metadata", "check", str(ours)]) == 0


def test_two_copies_complement_each_other_over_several_segments(ours: Path, tmp_path: Path) -> None:
    write(ours, range(4), damaged=(2,))
    write(ours, range(4, 8), damaged=(4, 7))
    first, second = folder_of(tmp_path / "b1", 2), folder_of(tmp_path / "b2", 3)
    write(first, range(5), damaged=(1,))
    write(second, range(4, 9))
    assert run(["metadata", "repair", str(ours), "--from", str(first), "--from", str(second)]) == 0
    assert offsets_in(ours) == list(range(9))


def test_offsets_that_no_copy_has_are_dropped_only_with_the_option_cut(ours: Path, copy: Path) -> None:
    path = write(ours, range(COUNT), damaged=(3, 6))
    write(copy, range(5))
    before = path.read_bytes()
    arguments = ["metadata", "repair", str(ours), "--from", str(copy)]
    with pytest.raises(UserError, match="the offsets 6 to 6 are in no copy"):
        run(arguments)
    assert path.read_bytes() == before
    assert run([*arguments, "--cut"]) == 0
    assert offsets_in(ours) == list(range(6))
    assert run(["metadata", "check", str(ours)]) == 0


def test_a_log_that_ends_below_the_committed_offset_is_damaged(ours: Path, copy: Path) -> None:
    write(ours, range(5))
    CommittedOffsetFile(RealDisk(), str(ours)).write(Offset(COUNT))
    assert run(["metadata", "check", str(ours)]) == 1
    write(copy, range(7))
    with pytest.raises(UserError, match="the offsets 7 to 9 are in no copy"):
        run(["metadata", "repair", str(ours), "--from", str(copy)])
    write(copy, range(COUNT))
    assert run(["metadata", "repair", str(ours), "--from", str(copy)]) == 0
    assert offsets_in(ours) == list(range(COUNT))


def test_a_missing_snapshot_is_copied_from_a_copy(ours: Path, copy: Path) -> None:
    write(ours, range(4, COUNT))
    write(copy, range(6, COUNT))
    with pytest.raises(UserError, match="begins at offset 4 and has no snapshot of the records before that"):
        run(["metadata", "repair", str(ours), "--from", str(copy)])
    name = MetadataSnapshotId(Offset(6), LeaderEpoch(1)).file_name
    data = b"".join(snapshot_batches((), LeaderEpoch(1), metadata_version=30, last_timestamp=7, now_ms=8))
    (copy / name).write_bytes(data)
    assert run(["metadata", "repair", str(ours), "--from", str(copy)]) == 0
    assert (ours / name).read_bytes() == data


def test_a_copy_of_another_log_or_cluster_is_refused(ours: Path, copy: Path, tmp_path: Path) -> None:
    path = write(ours, range(COUNT), damaged=(4,))
    write(copy, range(COUNT), name="other")
    before = path.read_bytes()
    with pytest.raises(UserError, match="holds another record at offset 0: it is no copy of this log"):
        run(["metadata", "repair", str(ours), "--from", str(copy)])
    foreign = folder_of(tmp_path / "foreign", cluster="another")
    with pytest.raises(UserError, match="is of cluster another, not some"):
        run(["metadata", "repair", str(ours), "--from", str(foreign)])
    assert path.read_bytes() == before


def test_a_log_in_use_is_refused(ours: Path) -> None:
    write(ours, range(COUNT), damaged=(4,))
    unlock = RealDisk().lock(str(ours.parent / ".lock"))
    with pytest.raises(UserError, match="is in use: stop the node first"):
        run(["metadata", "repair", str(ours), "--cut"])
    unlock()
    assert run(["metadata", "repair", str(ours), "--cut"]) == 0
    with pytest.raises(UserError, match="no such folder"):
        run(["metadata", "check", str(ours.parent / "elsewhere")])


def test_a_missing_end_is_no_finding_after_a_repair_with_the_option_cut(ours: Path) -> None:
    write(ours, range(5))
    CommittedOffsetFile(RealDisk(), str(ours)).write(Offset(COUNT))
    assert run(["metadata", "repair", str(ours), "--cut"]) == 0
    assert offsets_in(ours) == list(range(5))
    assert run(["metadata", "check", str(ours)]) == 0


def test_a_damaged_snapshot_is_no_finding_after_a_repair_with_the_option_cut(
    ours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the repair, check reports the records that the controller would lack."""
    write(ours, range(5))
    snapshot = ours / MetadataSnapshotId(Offset(8), LeaderEpoch(1)).file_name
    snapshot.write_bytes(b"rubbish")
    assert run(["metadata", "check", str(ours)]) == 1
    assert "it ends at offset 5" in capsys.readouterr().out
    assert run(["metadata", "repair", str(ours), "--cut"]) == 0
    assert run(["metadata", "check", str(ours)]) == 0


@pytest.mark.parametrize("bit", [0, 1, 2, 3, 4, 30, 62])
@pytest.mark.parametrize("at", [0, 4, COUNT - 1])
def test_a_batch_with_a_flipped_bit_in_its_base_offset_is_replaced_from_a_copy(
    ours: Path, copy: Path, bit: int, at: int
) -> None:
    """No checksum covers the base offset, so the batch looks like one at another offset."""
    path = write(ours, range(COUNT))
    data = bytearray(path.read_bytes())
    data[at * len(batch(0)) + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    write(copy, range(20))
    assert run(["metadata", "check", str(ours)]) == 1, "though nothing says how far it was committed"
    assert run(["metadata", "repair", str(ours), "--from", str(copy)]) == 0
    assert offsets_in(ours) == list(range(20))
    assert run(["metadata", "check", str(ours)]) == 0


def test_a_missing_first_segment_is_copied_from_a_copy(ours: Path, copy: Path) -> None:
    write(ours, range(4, COUNT))
    write(copy, range(COUNT))
    assert run(["metadata", "repair", str(ours), "--from", str(copy)]) == 0
    assert offsets_in(ours) == list(range(COUNT))


def test_records_after_a_missing_segment_are_dropped_with_the_option_cut(ours: Path) -> None:
    write(ours, range(6, COUNT))
    data = b"".join(snapshot_batches((), LeaderEpoch(1), metadata_version=30, last_timestamp=7, now_ms=8))
    (ours / MetadataSnapshotId(Offset(3), LeaderEpoch(1)).file_name).write_bytes(data)
    assert run(["metadata", "check", str(ours)]) == 1
    assert run(["metadata", "repair", str(ours), "--cut"]) == 0
    assert offsets_in(ours) == []
    assert run(["metadata", "check", str(ours)]) == 0


def test_a_flipped_bit_in_a_leader_epoch_does_not_make_it_another_log(ours: Path, copy: Path) -> None:
    path = write(ours, range(COUNT), damaged=(4,))
    data = bytearray(path.read_bytes())
    data[15] ^= 4
    path.write_bytes(data)
    write(copy, range(COUNT))
    assert run(["metadata", "repair", str(ours), "--from", str(copy)]) == 0
    assert offsets_in(ours) == list(range(COUNT))
