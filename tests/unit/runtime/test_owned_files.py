"""A file with a second name is not changed in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milena.runtime.disk import Disk, File
from milena.runtime.faults.power_loss import LossyDisk
from milena.runtime.files import RealDisk


@pytest.fixture(params=["real", "lossy"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk() if request.param == "real" else LossyDisk(str(tmp_path / "spare"), [str(tmp_path)])


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "shared"
    path.write_bytes(b"0123456789")
    path.with_name("other").hardlink_to(path)
    return path


CHANGES: dict[str, tuple[Callable[[Disk, File], object], bytes]] = {
    "append": (lambda disk, file: file.append([b"ab"]), b"0123456789ab"),
    "append parts": (lambda disk, file: file.append([b"a", b"b"]), b"0123456789ab"),
    "append from a file": (lambda disk, file: file.append_from(disk.open(file.path), 2, 4), b"012345678945"),
    "overwrite": (lambda disk, file: file.pwrite(b"ab", 3), b"012ab56789"),
    "truncate": (lambda disk, file: file.truncate(4), b"0123"),
    "extend": (lambda disk, file: file.truncate(12), b"0123456789\0\0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_leaves_the_other_name_alone(disk: Disk, shared: Path, change: str) -> None:
    how, expected = CHANGES[change]
    file = disk.open(str(shared))
    earlier = file.handle()
    how(disk, file)
    file.sync()
    assert shared.read_bytes() == file.pread(100, 0) == expected
    assert file.size == len(expected)
    assert earlier.pread(100, 0) == shared.with_name("other").read_bytes() == b"0123456789"
    assert [path.name for path in shared.parent.glob("*.tmp")] == []


def test_a_second_name_that_came_later_counts_for_truncation(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "own"), create=True)
    file.append([b"0123456789"])
    (tmp_path / "other").hardlink_to(tmp_path / "own")
    file.truncate(4)
    file.pwrite(b"ab", 0)
    assert (tmp_path / "own").read_bytes() == b"ab23"
    assert (tmp_path / "other").read_bytes() == b"0123456789"


def test_what_a_power_loss_leaves_of_a_copy_begins_with_the_original(tmp_path: Path, shared: Path) -> None:
    disk = LossyDisk(str(tmp_path / "spare"), [str(tmp_path)])
    file = disk.open(str(shared))
    file.append([b"lost"])
    disk.cut()
    assert shared.read_bytes() == shared.with_name("other").read_bytes() == b"0123456789"


def test_a_copy_that_cannot_be_written_leaves_the_file_as_it_is(tmp_path: Path, shared: Path) -> None:
    shared.with_name("shared.tmp").mkdir()
    file = RealDisk().open(str(shared))
    with pytest.raises(OSError):
        file.append([b"ab"])
    assert (file.size, shared.read_bytes()) == (10, b"0123456789")
