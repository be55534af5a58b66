"""Cleaned segments replace old ones while the log is read, truncated or deleted, and in spite of crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milena.lab.world.world import World, simulate
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.cleaning.cleaning_round import NewSegment
from milena.storage.cleaning.swap import CleaningAborted, Generation, generation_of, swap_in
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.cleaning.cleaned_logs import KeyedLog
from tests.unit.storage.cleaning.swapped_logs import Crash, compacted, last_values, long_log
from tests.unit.storage.logs import START_MS, values_of


def prepared(keyed: KeyedLog) -> tuple[Generation, NewSegment]:
    """The first cleaned segment, which is ready to be swapped in."""
    since = generation_of(keyed.log)
    round_ = keyed.round(keyed.range())
    round_.map_keys()
    new = next(round_.new_segments())
    assert len(new.replaced) > 1
    return since, new


def test_a_slice_that_was_read_before_a_swap_keeps_its_bytes(tmp_path: Path) -> None:
    keyed = long_log(compacted(tmp_path))
    slices = [
        keyed.log.read(Offset(offset), 1 << 20, upper=keyed.log.log_end_offset, min_one=True)
        for offset in range(0, 40, 7)
    ]
    ranges = [one.part() for one in slices]
    before = [bytes(one.read()) for one in slices]
    keyed.clean()
    keyed.folder.disk.remove(f"{keyed.folder.path}/{'0' * 20}.log.deleted")
    assert [one.handle.pread(one.length, one.position) for one in ranges] == before
    assert [bytes(one.read()) for one in slices] == before


def test_every_offset_is_readable_after_a_swap_and_after_a_restart(tmp_path: Path) -> None:
    keyed = long_log(compacted(tmp_path))
    keyed.clean()
    expected = [record.value or b"" for record in keyed.records()]
    for _ in range(2):
        assert values_of(keyed.log) == expected
        for start in range(keyed.log.log_end_offset):
            assert values_of(keyed.log, start) == [one.value or b"" for one in keyed.records() if one.offset >= start]
        keyed.log.close()
        keyed.log = keyed.folder.open()


def test_a_follower_replicates_a_cleaned_log(tmp_path: Path) -> None:
    keyed = long_log(compacted(tmp_path / "leader"))
    keyed.clean()
    follower = compacted(tmp_path / "follower").open()
    end = keyed.log.log_end_offset
    while follower.log_end_offset < end:
        data = keyed.log.read_bytes(follower.log_end_offset, 300, upper=end, min_one=True)
        follower.append_as_follower(memoryview(bytearray(data)))
    assert values_of(follower) == values_of(keyed.log)
    assert list(follower.epochs.entries) == list(keyed.log.epochs.entries)


def test_the_modification_time_of_a_cleaned_segment_is_that_of_the_last_replaced_one(tmp_path: Path) -> None:
    keyed = long_log(compacted(tmp_path))
    since, new = prepared(keyed)
    disk, folder = keyed.folder.disk, keyed.folder.path
    disk.set_modified_ms(f"{folder}/{new.replaced[-1]:020d}.log", START_MS)
    disk.remove(f"{folder}/{'0' * 20}.log.cleaned")
    since, new = prepared(keyed)
    swap_in(keyed.log, since, new)
    assert disk.modified_ms(f"{folder}/{'0' * 20}.log") == START_MS


def truncate(log: UnifiedLog) -> None:
    log.truncate_to(Offset(log.log_end_offset - 1))


def start_over(log: UnifiedLog) -> None:
    log.truncate_fully_and_start_at(Offset(3))


def delete_records(log: UnifiedLog) -> None:
    log.increment_log_start(Offset(2))


def delete_segments(log: UnifiedLog) -> None:
    log.increment_log_start(log.segments[1].base_offset)
    log.delete_old_segments(START_MS)


@pytest.mark.parametrize("change", [truncate, start_over, delete_records, delete_segments])
def test_a_log_that_has_changed_keeps_its_segments(tmp_path: Path, change: Callable[[UnifiedLog], None]) -> None:
    keyed = long_log(compacted(tmp_path))
    since, new = prepared(keyed)
    change(keyed.log)
    before = [batch.memory.tobytes() for batch in keyed.batches()]
    with pytest.raises(CleaningAborted):
        swap_in(keyed.log, since, new)
    assert [batch.memory.tobytes() for batch in keyed.batches()] == before
    assert not [name for name in keyed.folder.names() if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_cleaned_segment_with_missing_files_is_not_swapped_in(tmp_path: Path, suffix: str) -> None:
    """A worker of an aborted cleaning may have removed them."""
    keyed = long_log(compacted(tmp_path))
    since, new = prepared(keyed)
    keyed.folder.disk.remove(f"{keyed.folder.path}/{'0' * 20}{suffix}.cleaned")
    before = [batch.memory.tobytes() for batch in keyed.batches()]
    with pytest.raises(CleaningAborted):
        swap_in(keyed.log, since, new)
    assert [batch.memory.tobytes() for batch in keyed.batches()] == before
    assert not keyed.folder.context.offline
    assert not [name for name in keyed.folder.names() if name.endswith((".cleaned", ".swap"))]


def test_a_cleaned_segment_of_unexpected_size_is_not_swapped_in(tmp_path: Path) -> None:
    keyed = long_log(compacted(tmp_path))
    since, new = prepared(keyed)
    before = [batch.memory.tobytes() for batch in keyed.batches()]
    with pytest.raises(CleaningAborted):
        swap_in(keyed.log, since, new._replace(size=new.size + 1))
    assert [batch.memory.tobytes() for batch in keyed.batches()] == before


def test_no_segment_is_swapped_into_a_log_that_was_deleted_or_moved(tmp_path: Path) -> None:
    keyed = long_log(compacted(tmp_path))
    since, new = prepared(keyed)
    moved = keyed.folder.path + "-moved"
    Path(keyed.folder.path).rename(moved)
    keyed.log.moved_to(moved)
    with pytest.raises(CleaningAborted):
        swap_in(keyed.log, since, new)
    keyed.log.retire(moved)
    with pytest.raises(KafkaError) as refused:
        swap_in(keyed.log, since, new)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_point_loses_no_last_record_of_a_key(power: bool, seed: int) -> None:
    at = 0
    crashes = 0

    async def run(world: World) -> None:
        nonlocal at
        machine = world.machine("one")
        folder = compacted("/data")
        folder.disk = machine.start().disk
        keyed = long_log(folder)
        keyed.log.flush()
        folder.disk.sync_folder("/")
        written = keyed.records()
        end = keyed.log.log_end_offset
        machine.storage.before = Crash(machine, at, power=power)
        try:
            keyed.clean()
        except (OSError, KafkaError):
            at += 1
        else:
            at = -1
        machine.storage.before = lambda _operation, _path: None
        await machine.wait_ended()
        if at < 0:
            return
        folder.disk = machine.start().disk
        # In the second case recovery does not read synced records.
        keyed.log = folder.open(clean=False, recovery_point=0 if at % 2 else end)
        assert keyed.log.log_end_offset == end
        assert not [name for name in folder.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert last_values(keyed.records()) == last_values(written)
        assert values_of(keyed.log) == [record.value or b"" for record in keyed.records()]
        keyed.log.set_high_watermark(end)
        keyed.clean()
        assert len(keyed.records()) < len(written) / 2 + 10
        assert last_values(keyed.records()) == last_values(written)

    while at >= 0:
        crashes += 1
        simulate(run, seed=seed)
    assert crashes > 60


def test_a_swap_whose_files_are_not_all_renamed_is_undone(tmp_path: Path) -> None:
    keyed = long_log(compacted(tmp_path))
    since, new = prepared(keyed)
    folder, end = Path(keyed.folder.path), keyed.log.log_end_offset
    assert since.folder == str(folder) and new.base_offset == 0
    (first,) = folder.glob("*.log.cleaned")
    first.rename(first.with_suffix(".swap"))
    before = [batch.memory.tobytes() for batch in keyed.batches()]
    keyed.log = keyed.folder.open(clean=False)
    assert keyed.log.log_end_offset == end
    assert [batch.memory.tobytes() for batch in keyed.batches()] == before
    assert not list(folder.glob("*.cleaned")) and not list(folder.glob("*.swap"))
    keyed.log.append_as_leader(memoryview(bytearray(before[0])), leader_epoch=LeaderEpoch(1))
    assert keyed.log.log_end_offset == end + 2
