"""What the lab's disk leaves behind on a loss of power."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from milena.runtime.faults.power_loss import LossyDisk


@pytest.fixture
def disk(tmp_path: Path) -> LossyDisk:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").write_bytes(b"before")
    return LossyDisk(str(tmp_path / "spare"), [str(tmp_path)])


@pytest.fixture
def at(tmp_path: Path) -> Callable[[str], str]:
    return lambda name: str(tmp_path / "d" / name)


def left(tmp_path: Path) -> dict[str, bytes | None]:
    """Names below the folder and their bytes, None for a folder."""
    folder = tmp_path / "d"
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


At = Callable[[str], str]


def test_a_file_keeps_what_was_synced(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    file = disk.open(at("new"), create=True)
    disk.sync_folder(str(tmp_path / "d"))
    file.append([b"one"])
    file.sync()
    file.append([b"two"])
    disk.cut()
    assert left(tmp_path) == {"old": b"before", "new": b"one"}


def test_syncing_by_another_name_for_the_file_counts(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    file = disk.open(at("old"))
    file.append([b", more"])
    disk.open(at("old")).sync()
    file.append([b", lost"])
    disk.cut()
    assert left(tmp_path) == {"old": b"before, more"}


def test_what_was_appended_from_another_file_is_lost_too(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    file = disk.open(at("new"), create=True)
    disk.sync_folder(str(tmp_path / "d"))
    file.append_from(disk.open(at("old")), 3, 0)
    file.sync()
    file.append_from(disk.open(at("old")), 3, 3)
    disk.cut()
    assert left(tmp_path) == {"old": b"before", "new": b"bef"}


def test_what_was_changed_in_place_is_lost_from_there_on(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    file = disk.open(at("old"))
    file.pwrite(b"X", 2)
    disk.cut()
    assert left(tmp_path) == {"old": b"be"}


@pytest.mark.parametrize("synced", [True, False])
def test_entries_are_kept_once_their_folder_is_synced(disk: LossyDisk, at: At, tmp_path: Path, synced: bool) -> None:
    disk.open(at("made"), create=True)
    disk.make_folders(at("a/b"))
    disk.rename(at("old"), at("renamed"), sync=False)
    if synced:
        disk.sync_folder(str(tmp_path / "d"))
        disk.sync_folder(str(tmp_path / "d" / "a"))
    disk.cut()
    after: dict[str, bytes | None] = {"made": b"", "a": None, "a/b": None, "renamed": b"before"}
    assert left(tmp_path) == (after if synced else {"old": b"before"})


@pytest.mark.parametrize("synced", [True, False])
def test_what_was_removed_or_replaced_comes_back(disk: LossyDisk, at: At, tmp_path: Path, synced: bool) -> None:
    disk.write_atomic(at("checkpoint"), b"first")
    disk.write_atomic(at("checkpoint"), b"second", sync=synced)
    disk.remove(at("old"))
    if synced:
        disk.sync_folder(str(tmp_path / "d"))
    disk.cut()
    assert left(tmp_path) == ({"checkpoint": b"second"} if synced else {"checkpoint": b"first", "old": b"before"})


def test_a_folder_that_was_renamed_keeps_its_own_losses(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    disk.make_folders(at("a"))
    disk.sync_folder(str(tmp_path / "d"))
    disk.open(at("a/f"), create=True).append([b"x"])
    disk.rename(at("a"), at("b"), sync=False)
    disk.cut()
    assert left(tmp_path) == {"a": None, "old": b"before"}


def test_a_tree_that_was_removed_stays_away(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    disk.make_folders(at("a"))
    disk.open(at("a/f"), create=True).append([b"x"])
    disk.remove_tree(at("a"))
    disk.cut()
    assert left(tmp_path) == {"old": b"before"}


def test_a_disk_that_fails_below_a_folder_refuses_all_calls_there(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    folder = str(tmp_path / "d")
    file = disk.open(at("old"))
    disk.faults.fail(folder)
    calls: list[Callable[[], object]] = [
        lambda: file.append([b"x"]),
        lambda: file.append_from(file, 1, 0),
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.sync,
        lambda: disk.open(at("old")),
        lambda: disk.read(at("old")),
        lambda: disk.list(folder),
        lambda: disk.write_atomic(at("old"), b"x"),
        lambda: disk.make_folders(at("new")),
        lambda: disk.rename(at("old"), at("new")),
        lambda: disk.remove(at("old")),
        lambda: disk.remove_tree(folder),
        lambda: disk.sync_folder(folder),
    ]
    for call in calls:
        with pytest.raises(OSError, match="Input/output error"):
            call()
    assert left(tmp_path) == {"old": b"before"}
    disk.open(str(tmp_path / "other"), create=True).close()


def open_files(folder: Path) -> list[str]:
    """Return the targets of this process's descriptors of files below ``folder``, also of removed ones."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of listdir itself
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [target for target in targets if target.startswith(str(folder))]


def test_a_removed_tree_leaves_no_descriptor_and_no_second_name(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    disk.make_folder(at("t-0"))
    disk.open(at("t-0/0.log"), create=True).append([b"x"])
    disk.write_atomic(at("t-0/checkpoint"), b"first", sync=False)
    disk.write_atomic(at("t-0/checkpoint"), b"second", sync=False)
    disk.rename(at("t-0"), at("t-0-delete"), sync=False)
    assert len(open_files(tmp_path)) == 3
    disk.remove_tree(at("t-0-delete"))
    assert open_files(tmp_path) == []
    assert os.listdir(tmp_path / "spare") == []


def test_a_folder_with_the_name_of_a_removed_one_keeps_its_own_losses(disk: LossyDisk, at: At, tmp_path: Path) -> None:
    disk.make_folder(at("t-0"))
    disk.rename(at("t-0"), at("t-0-delete"), sync=False)
    disk.make_folder(at("t-0"))
    disk.sync_folder(str(tmp_path / "d"))
    disk.open(at("t-0/0.log"), create=True).append([b"x"])
    disk.remove_tree(at("t-0-delete"))
    disk.cut()
    assert left(tmp_path) == {"old": b"before", "t-0": None}
