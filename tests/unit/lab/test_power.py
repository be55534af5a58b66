"""A power loss leaves the synced state of a folder, and of later changes the first ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from milena.lab.world.disk import SimulatedDisk, Storage
from milena.lab.world.life import Life, SimulatedClock
from milena.runtime.randomness import Randomness

SEEDS = range(40)


def write(disk: SimulatedDisk, path: str, data: bytes) -> None:
    """Write a new file whose bytes are synced and whose directory entry is not."""
    file = disk.open(path, create=True)
    file.append([data])
    file.sync()
    file.close()


def left_after(before: Callable[[SimulatedDisk], None], after: Callable[[SimulatedDisk], None]) -> set[frozenset[str]]:
    """All states that a power loss leaves, over many seeds, if the changes of ``before`` are synced and those of
    ``after`` are not. Each file is listed with its content."""
    found = set()
    for seed in SEEDS:
        loop = asyncio.new_event_loop()
        life, storage = Life("node"), Storage(Randomness(seed))
        disk = SimulatedDisk(storage, SimulatedClock(loop, life), Randomness(seed), life)
        disk.make_folders("/d")
        before(disk)
        for folder in list(storage.folders):
            disk.sync_folder(folder)
        after(disk)
        storage.lose_power()
        files = {f"{path}={inode.data.decode()}" for path, inode in storage.files.items()}
        found.add(frozenset(files | {path for path in storage.folders if path not in ("/", "/d")}))
        loop.close()
    return found


def nothing(_: SimulatedDisk) -> None:
    """No change."""


def sets(*some: set[str]) -> set[frozenset[str]]:
    return {frozenset(one) for one in some}


def test_a_new_file_may_be_lost_although_its_bytes_were_synced() -> None:
    assert left_after(nothing, lambda disk: write(disk, "/d/f", b"1")) == sets(set(), {"/d/f=1"})


def test_of_the_changes_in_one_folder_the_first_ones_survive() -> None:
    def change(disk: SimulatedDisk) -> None:
        for name in ("a", "b", "c"):
            write(disk, f"/d/{name}", b"1")

    assert left_after(nothing, change) == sets(set(), {"/d/a=1"}, {"/d/a=1", "/d/b=1"}, {"/d/a=1", "/d/b=1", "/d/c=1"})


def test_a_synced_file_is_lost_with_its_unsynced_folder() -> None:
    def change(disk: SimulatedDisk) -> None:
        disk.make_folders("/d/new")
        write(disk, "/d/new/f", b"1")
        disk.sync_folder("/d/new")

    assert left_after(nothing, change) == sets(set(), {"/d/new", "/d/new/f=1"})


def test_a_renamed_file_has_either_name_and_the_replaced_file_may_be_restored() -> None:
    def old(disk: SimulatedDisk) -> None:
        write(disk, "/d/f", b"old")
        write(disk, "/d/f.tmp", b"new")

    assert left_after(old, lambda disk: disk.rename("/d/f.tmp", "/d/f", sync=False)) == sets(
        {"/d/f=old", "/d/f.tmp=new"}, {"/d/f=new"}
    )
    assert left_after(old, lambda disk: disk.rename("/d/f.tmp", "/d/f")) == sets({"/d/f=new"})


def test_a_removed_file_may_be_restored() -> None:
    assert left_after(lambda disk: write(disk, "/d/f", b"1"), lambda disk: disk.remove("/d/f")) == sets(
        set(), {"/d/f=1"}
    )


def test_a_renamed_folder_keeps_its_new_files_under_either_name() -> None:
    def change(disk: SimulatedDisk) -> None:
        write(disk, "/d/one/f", b"1")
        disk.rename("/d/one", "/d/two", sync=False)

    names = [{f"/d/{name}", f"/d/{name}/f=1"} for name in ("one", "two")]
    assert left_after(lambda disk: disk.make_folders("/d/one"), change) == sets(*names, {"/d/one"}, {"/d/two"})


def test_a_removed_tree_may_be_restored_in_part() -> None:
    def old(disk: SimulatedDisk) -> None:
        disk.make_folders("/d/one")
        write(disk, "/d/one/f", b"1")
        write(disk, "/d/one/g", b"1")

    assert left_after(old, lambda disk: disk.remove_tree("/d/one")) == sets(
        set(), {"/d/one"}, {"/d/one", "/d/one/g=1"}, {"/d/one", "/d/one/f=1", "/d/one/g=1"}
    )


@pytest.mark.parametrize("synced", [True, False])
def test_an_atomic_write_is_complete_after_a_power_loss_only_if_it_was_synced(synced: bool) -> None:
    def change(disk: SimulatedDisk) -> None:
        disk.write_atomic("/d/f", b"new", sync=synced)

    found = left_after(lambda disk: write(disk, "/d/f", b"old"), change)
    if synced:
        assert found == sets({"/d/f=new"})
    else:
        contents = {path for one in found for path in one if path.startswith("/d/f=")}
        assert {"/d/f=old", "/d/f=new", "/d/f="} <= contents
