"""A log never changes the files of a snapshot that it shares, whether the snapshot was taken of it or made it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.runtime.faults.power_loss import LossyDisk
from milena.runtime.files import RealDisk
from milena.storage.log.unified_log import UnifiedLog
from milena.up.snapshots import Copier
from tests.unit.storage.logs import LogFolder, append, values_of

VALUES = [b"%03d" % number * 20 for number in range(20)]


def written(path: Path, disk: Disk) -> tuple[LogFolder, UnifiedLog]:
    """An open log of twenty batches in several segments."""
    folder = LogFolder(path, segment_bytes=700, index_interval_bytes=150)
    folder.disk = disk
    log = folder.open()
    for number, value in enumerate(VALUES):
        append(log, value, epoch=number // 7, producer=(5, 0, number), timestamp=1000 + number)
    return folder, log


def digests(folder: str | Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(Path(folder).iterdir())}


def links(folder: str | Path) -> int:
    return sum(path.stat().st_nlink > 1 for path in Path(folder).iterdir())


@pytest.fixture(params=["real", "lossy"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk() if request.param == "real" else LossyDisk(str(tmp_path / "spare"), [str(tmp_path)])


def truncate(offset: int) -> Callable[[UnifiedLog], object]:
    return lambda log: log.truncate_to(Offset(offset))


CHANGES: dict[str, Callable[[UnifiedLog], object]] = {
    "append": lambda log: append(log, b"new"),
    **{f"truncate to {offset}": truncate(offset) for offset in range(0, 20, 3)},
    "start again elsewhere": lambda log: log.truncate_fully_and_start_at(Offset(100)),
    "roll": lambda log: log.roll(),
    "delete records": lambda log: log.increment_log_start(Offset(10)),
    "close": lambda log: log.close(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_log_that_runs_keeps_the_files_of_its_snapshot(tmp_path: Path, disk: Disk, change: str) -> None:
    folder, log = written(tmp_path, disk)
    log.set_high_watermark(Offset(20))
    Copier(of_snapshot=False).tree(folder.path, str(tmp_path / "snapshot"))
    before = digests(tmp_path / "snapshot")
    assert links(tmp_path / "snapshot") > 6, "closed segments are shared"

    CHANGES[change](log)
    if change != "close":
        for number in range(5):
            append(log, b"%d" % number * 60, epoch=9)
        assert values_of(log, log.log_start_offset)[-1] == b"4" * 60

    assert digests(tmp_path / "snapshot") == before


def test_appends_after_a_truncation_to_a_segments_end_leave_the_snapshot_alone(tmp_path: Path, disk: Disk) -> None:
    folder, log = written(tmp_path, disk)
    border = log.segments[2].base_offset
    Copier(of_snapshot=False).tree(folder.path, str(tmp_path / "snapshot"))
    before = digests(tmp_path / "snapshot")
    log.truncate_to(Offset(border))
    append(log, b"new", epoch=9)
    assert values_of(log) == [*VALUES[:border], b"new"]
    assert digests(tmp_path / "snapshot") == before


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("damage", ["none", "no indexes", "torn end", "damaged segment"])
def test_a_log_that_was_made_from_a_snapshot_leaves_it_alone(
    tmp_path: Path, disk: Disk, change: str, damage: str
) -> None:
    folder, _ = written(tmp_path / "first", disk)
    snapshot = tmp_path / "snapshot"
    Copier(of_snapshot=False).tree(folder.path, str(snapshot))
    spoil(snapshot, damage)
    before = digests(snapshot)
    (tmp_path / "fork").mkdir()
    fork = LogFolder(tmp_path / "fork")
    fork.config, fork.disk = replace(folder.config), disk
    Copier(of_snapshot=True).tree(str(snapshot), fork.path)

    log = fork.open(clean=False)
    assert values_of(log) == (VALUES if damage != "damaged segment" else VALUES[: len(values_of(log))])
    log.set_high_watermark(log.log_end_offset)
    CHANGES[change](log)

    assert digests(snapshot) == before


def spoil(snapshot: Path, damage: str) -> None:
    logs = sorted(snapshot.glob("*.log"))
    if damage == "no indexes":
        for path in [*snapshot.glob("*.index"), *snapshot.glob("*.timeindex")]:
            path.write_bytes(b"")
    elif damage == "torn end":
        logs[-1].write_bytes(logs[-1].read_bytes() + bytes(30))
    elif damage == "damaged segment":
        data = bytearray(logs[2].read_bytes())
        data[-1] ^= 1
        logs[2].write_bytes(data)


def test_a_power_loss_takes_unsynced_bytes_from_the_log_and_not_from_its_snapshot(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    disk = LossyDisk(str(tmp_path / "spare"), [str(tmp_path / "log")])
    folder, log = written(tmp_path / "log", disk)
    first, removed = (log.segments[number].base_offset for number in (0, 1))
    Copier(of_snapshot=False).tree(folder.path, str(tmp_path / "snapshot"))
    before = digests(tmp_path / "snapshot")
    assert links(tmp_path / "snapshot") > 6, "closed segments are shared"
    disk.sync_folder(str(tmp_path / "log"))
    disk.sync_folder(folder.path)
    disk.remove(f"{folder.path}/{removed:020d}.log")  # the snapshot has the only name of the file
    disk.sync_folder(folder.path)
    disk.cut()
    assert digests(tmp_path / "snapshot") == before
    assert Path(folder.path, f"{first:020d}.log").stat().st_size == 0
