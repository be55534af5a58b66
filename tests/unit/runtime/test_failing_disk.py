"""A disk that the lab lets fill up, fail or be slow, and a clock that it lets jump."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from milena.runtime.clock import SystemClock
from milena.runtime.faults.failing_disk import FailingDisk, TroubledDisk
from milena.runtime.faults.power_loss import LossyDisk
from milena.runtime.faults.shifted_clock import ShiftedClock


@pytest.fixture(params=["failing", "lossy"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> FailingDisk:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").write_bytes(b"before")
    return FailingDisk() if request.param == "failing" else LossyDisk(str(tmp_path / "spare"), [str(tmp_path)])


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def test_nothing_can_be_added_on_a_full_disk_and_all_can_be_read(disk: FailingDisk, tmp_path: Path) -> None:
    folder, old = str(tmp_path / "d"), str(tmp_path / "d" / "old")
    file = disk.open(old)
    disk.faults.fill(folder)
    adding: list[Callable[[], object]] = [
        lambda: file.append([b"x"]),
        lambda: file.append_from(file, 1, 0),
        lambda: disk.open(f"{folder}/new", create=True),
        lambda: disk.write_atomic(old, b"x"),
        lambda: disk.make_folders(f"{folder}/new"),
        lambda: disk.make_folder(f"{folder}/new"),
    ]
    for call in adding:
        with pytest.raises(OSError, match="No space left") as refused:
            call()
        assert refused.value.errno == errno.ENOSPC
    disk.make_folders(folder)
    assert (disk.list(folder), disk.read(old), file.pread(3, 0)) == (["old"], b"before", b"bef")
    disk.open(old, create=True).sync()
    disk.sync_folder(folder)
    disk.rename(old, f"{folder}/renamed")
    disk.remove(f"{folder}/renamed")
    assert disk.list(folder) == []
    disk.write_atomic(str(tmp_path / "beside"), b"x")


def test_each_sync_on_a_slow_disk_takes_longer_until_it_is_healed(
    disk: FailingDisk, tmp_path: Path, slept: list[float]
) -> None:
    folder, old = str(tmp_path / "d"), str(tmp_path / "d" / "old")
    file, beside = disk.open(old), disk.open(str(tmp_path / "beside"), create=True)
    disk.faults.slow(folder, 0.25)
    file.append([b"x"])
    beside.sync()
    assert slept == []
    file.sync()
    disk.sync_folder(folder)
    assert slept == [0.25, 0.25]
    disk.write_atomic(old, b"new")  # the file, and the folder after the rename
    assert slept == [0.25] * 4
    disk.faults.slow(folder, 0)
    file.sync()
    assert slept == [0.25] * 4


def test_faults_of_a_disk_are_listed_as_commands_until_they_end(disk: FailingDisk) -> None:
    assert disk.faults.active() == []
    disk.faults.fail("/a")
    disk.faults.fill("/b")
    disk.faults.slow("/c", 0.07)
    failing, full = {"command": "fail_disk", "path": "/a"}, {"command": "fill_disk", "path": "/b"}
    assert disk.faults.active() == [failing, full, {"command": "slow_disk", "path": "/c", "ms": 70}]
    disk.faults.slow("/c", 0)
    assert disk.faults.active() == [failing, full]


def test_a_power_loss_leaves_a_failing_disk_as_it_was_synced(tmp_path: Path) -> None:
    disk = LossyDisk(str(tmp_path / "spare"), [str(tmp_path)])
    (tmp_path / "d").mkdir()
    disk.make_folders(str(tmp_path / "d" / "new"))
    disk.faults.fail(str(tmp_path / "d"))
    disk.cut()
    assert list((tmp_path / "d").iterdir()) == []


async def test_a_troubled_disk_delays_its_work_and_reports_renames(tmp_path: Path) -> None:
    slept: list[float] = []
    renamed: list[str] = []

    class Clock(SystemClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    disk = TroubledDisk(2, Clock(), renamed.append)
    (tmp_path / "a").write_bytes(b"")
    assert await disk.offload(disk.size, str(tmp_path / "a")) == 0
    disk.delay = 2.5
    await disk.offload(disk.rename, str(tmp_path / "a"), str(tmp_path / "b"))
    assert (slept, renamed) == ([2.5], [str(tmp_path / "b")])
    disk.faults.fail("")
    for look in (disk.exists, disk.size):
        with pytest.raises(OSError, match="Input/output error"):
            look(str(tmp_path / "b"))
    disk.faults.heal("")
    assert disk.exists(str(tmp_path / "b"))
    disk.close()


async def test_a_clock_that_jumps_goes_on_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    machine = SystemClock()
    clock = ShiftedClock(machine)
    assert clock.time_ms() == 1_700_000_000_000
    clock.ahead_ms = -90_000
    assert clock.time_ms() == 1_699_999_910_000
    before = machine.monotonic()
    assert before <= clock.monotonic() <= machine.monotonic()
    await clock.sleep(0)
