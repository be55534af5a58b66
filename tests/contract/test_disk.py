"""The contract of files and folders."""

from __future__ import annotations

import errno

import pytest

from tests.contract.worlds import Surroundings, in_both_worlds


@in_both_worlds
async def test_an_append_writes_at_the_end_and_returns_its_position(it: Surroundings) -> None:
    file = it.runtime.disk.open(f"{it.folder}/f", create=True)
    assert file.append([b"abc"]) == 0
    assert file.append([b"d", bytearray(b"e"), memoryview(b"fg"), b""]) == 3
    assert file.size == 7
    assert file.pread(3, 2) == b"cde"
    assert file.pread(100, 5) == b"fg"
    assert file.pread(1, 100) == b""


@in_both_worlds
async def test_an_append_may_have_many_parts(it: Surroundings) -> None:
    file = it.runtime.disk.open(f"{it.folder}/f", create=True)
    parts = [b"%d;" % number for number in range(3000)]
    file.append(parts)
    assert file.pread(file.size, 0) == b"".join(parts)


@in_both_worlds
async def test_a_part_of_another_file_is_appended_and_counted(it: Surroundings) -> None:
    source, target = (it.runtime.disk.open(f"{it.folder}/{name}", create=True) for name in ("from", "to"))
    source.append([b"0123456789"])
    target.append([b"abc"])
    target.sync()
    assert target.append_from(source, 4, 2) == 4
    assert (target.size, target.synced, target.pread(9, 0)) == (7, 3, b"abc2345")
    assert target.append([b"|"]) == 7
    assert target.append_from(source, 100, 8) == 2
    assert (target.append_from(source, 100, 10), target.append_from(source, 0, 0)) == (0, 0)
    target.pwrite(b"A", 0)
    assert target.append_from(source, 1, 0) == 1
    assert target.pread(100, 0) == it.runtime.disk.read(target.path) == b"Abc2345|890"
    assert source.pread(100, 0) == b"0123456789"


@in_both_worlds
async def test_a_large_part_of_another_file_is_appended_whole(it: Surroundings) -> None:
    data = bytes(range(256)) * 20_000
    it.runtime.disk.write_atomic(f"{it.folder}/from", data)
    source = it.runtime.disk.open(f"{it.folder}/from", read_only=True)
    target = it.runtime.disk.open(f"{it.folder}/to", create=True)
    assert target.append_from(source, len(data) - 3, 3) == len(data) - 3
    assert target.pread(len(data), 0) == data[3:]


@in_both_worlds
async def test_a_failed_append_from_another_file_leaves_the_file_unchanged(it: Surroundings) -> None:
    disk = it.runtime.disk
    for name, data in (("from", b"0123456789"), ("to", b"abc")):
        disk.write_atomic(f"{it.folder}/{name}", data)
    source, target = disk.open(f"{it.folder}/from"), disk.open(f"{it.folder}/to")
    with pytest.raises(OSError):
        disk.open(f"{it.folder}/to", read_only=True).append_from(source, 4, 0)
    source.close()
    with pytest.raises(OSError) as raised:
        target.append_from(source, 4, 0)
    assert raised.value.errno == errno.EBADF
    assert (target.size, disk.read(target.path)) == (3, b"abc")


@in_both_worlds
async def test_a_file_reports_how_much_of_it_is_synced(it: Surroundings) -> None:
    file = it.runtime.disk.open(f"{it.folder}/f", create=True)
    file.append([b"0123456789"])
    assert file.synced == 0
    file.sync()
    assert file.synced == 10
    file.append([b"abc"])
    assert file.synced == 10
    file.pwrite(b"X", 7)
    assert (file.synced, file.size) == (7, 13)
    file.truncate(4)
    assert (file.synced, file.size) == (4, 4)
    file.truncate(6)
    assert (file.synced, file.pread(9, 0)) == (4, b"0123\0\0")


@in_both_worlds
async def test_writing_past_the_end_fills_with_zeros(it: Surroundings) -> None:
    file = it.runtime.disk.open(f"{it.folder}/f", create=True)
    file.pwrite(b"ab", 3)
    assert (file.size, file.pread(9, 0)) == (5, b"\0\0\0ab")
    assert file.append([b"c"]) == 5


@in_both_worlds
async def test_written_bytes_are_there_when_the_file_is_opened_again(it: Surroundings) -> None:
    disk = it.runtime.disk
    file = disk.open(f"{it.folder}/f", create=True)
    file.append([b"abc"])
    file.close()
    file.close()
    again = disk.open(f"{it.folder}/f", create=True)
    assert (again.size, again.pread(3, 0), again.path) == (3, b"abc", f"{it.folder}/f")


@in_both_worlds
async def test_a_closed_file_refuses_calls_and_its_open_handle_can_still_be_read(it: Surroundings) -> None:
    file = it.runtime.disk.open(f"{it.folder}/f", create=True)
    file.append([b"abc"])
    handle = file.handle()
    file.close()
    for call in (lambda: file.append([b"d"]), lambda: file.pread(1, 0), file.sync, file.handle):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.EBADF
    it.runtime.disk.remove(file.path)
    handle.load(100, 1)  # fewer than 100 bytes are there
    assert handle.pread(3, 0) == b"abc"


@in_both_worlds
async def test_read_only_files_refuse_writes(it: Surroundings) -> None:
    it.runtime.disk.write_atomic(f"{it.folder}/f", b"abc")
    file = it.runtime.disk.open(f"{it.folder}/f", read_only=True)
    assert file.pread(3, 0) == b"abc"
    with pytest.raises(OSError):
        file.append([b"d"])
    assert file.size == 3


@in_both_worlds
async def test_errors_name_missing_files_and_folders(it: Surroundings) -> None:
    disk, missing = it.runtime.disk, f"{it.folder}/no/f"

    def names(call: object) -> bool:
        with pytest.raises(FileNotFoundError) as raised:
            assert callable(call)
            call()
        return missing in (raised.value.filename, raised.value.filename2)

    assert names(lambda: disk.open(missing))
    assert names(lambda: disk.open(missing, create=True))
    assert names(lambda: disk.read(missing))
    assert names(lambda: disk.size(missing))
    assert names(lambda: disk.list(missing))
    assert names(lambda: disk.rename(missing, f"{it.folder}/g"))
    assert not disk.exists(missing)
    disk.remove(missing)
    disk.remove_tree(missing)


@in_both_worlds
async def test_an_atomic_write_replaces_the_whole_file(it: Surroundings) -> None:
    disk, path = it.runtime.disk, f"{it.folder}/f"
    disk.write_atomic(path, b"a long first content")
    disk.write_atomic(path, b"second")
    assert disk.read(path) == b"second"
    assert disk.list(it.folder) == ["f"]
    assert disk.size(path) == 6


@in_both_worlds
async def test_folders_are_listed_in_order_made_renamed_and_removed(it: Surroundings) -> None:
    disk, folder = it.runtime.disk, it.folder
    disk.make_folders(f"{folder}/b/deep")
    disk.make_folders(f"{folder}/b/deep")
    disk.write_atomic(f"{folder}/b/deep/f", b"abc")
    disk.write_atomic(f"{folder}/a", b"", sync=False)
    assert disk.list(folder) == ["a", "b"]
    file = disk.open(f"{folder}/b/deep/f")
    disk.rename(f"{folder}/b", f"{folder}/c")
    assert disk.list(f"{folder}/c") == ["deep"]
    assert disk.read(f"{folder}/c/deep/f") == file.pread(3, 0) == b"abc"
    disk.sync_folder(f"{folder}/c")
    disk.remove_tree(f"{folder}/c")
    assert disk.list(folder) == ["a"]
    disk.remove(f"{folder}/a")
    assert disk.list(folder) == []


@in_both_worlds
async def test_a_folder_is_removed_alone_only_if_it_is_empty(it: Surroundings) -> None:
    disk, folder = it.runtime.disk, f"{it.folder}/b"
    disk.make_folders(f"{folder}/deep")
    disk.write_atomic(f"{folder}/f", b"abc")
    for left in (["deep", "f"], ["f"]):
        assert disk.list(folder) == left
        with pytest.raises(OSError) as raised:
            disk.remove_folder(folder)
        assert raised.value.errno == errno.ENOTEMPTY
        if "deep" in left:
            disk.remove_folder(f"{folder}/deep")
    disk.remove(f"{folder}/f")
    disk.remove_folder(folder)
    assert not disk.exists(folder)
    with pytest.raises(FileNotFoundError):
        disk.remove_folder(folder)


@in_both_worlds
async def test_a_lock_has_only_one_holder(it: Surroundings) -> None:
    path = f"{it.folder}/.lock"
    release = it.runtime.disk.lock(path)
    with pytest.raises(BlockingIOError):
        it.runtime.disk.lock(path)
    release()
    it.runtime.disk.lock(path)()


@in_both_worlds
async def test_a_mapped_file_shows_its_bytes(it: Surroundings) -> None:
    file = it.runtime.disk.open(f"{it.folder}/f", create=True)
    assert len(it.runtime.disk.map_read(file)) == 0
    file.append([b"abc"])
    view = it.runtime.disk.map_read(file)
    assert bytes(view) == b"abc"
    assert view.readonly
    view.release()


@in_both_worlds
async def test_offloaded_work_returns_its_result_or_raises(it: Surroundings) -> None:
    disk = it.runtime.disk

    def divide(number: int, *, by: int) -> int:
        return number // by

    assert await disk.offload(divide, 12, by=4) == 3
    with pytest.raises(ZeroDivisionError):
        await disk.offload(divide, 12, by=0)


@in_both_worlds
async def test_the_disk_reports_free_space_and_modification_times(it: Surroundings) -> None:
    disk = it.runtime.disk
    total, usable = disk.usage(it.folder)
    assert 0 < usable <= total
    disk.write_atomic(f"{it.folder}/f", b"abc")
    assert abs(disk.modified_ms(f"{it.folder}/f") - it.runtime.clock.time_ms()) < 5_000
