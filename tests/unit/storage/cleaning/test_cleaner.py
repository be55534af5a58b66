"""The cleaner of a node cleans one log after the other and stores up to which offset each log is cleaned."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from milena.config.topic_config import TopicConfig
from milena.lab.world.world import World, simulate
from milena.protocol.records.batch import Codec, CorruptBatch
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Disk, Report
from milena.runtime.workers import PlainWorker
from milena.storage.cleaning import cleaner as cleaner_module
from milena.storage.cleaning.choice import Candidate, candidate, dirtiest_first
from milena.storage.cleaning.cleaner import Cleaner
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.cleaning.swap import CleaningAborted
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_manager import LogManager
from tests.unit.storage.cleaning.cleaned_logs import DEDUPE_BYTES, SECRET, batches_in, records_of
from tests.unit.storage.logs import TOPIC_ID, batch_of, default_config
from tests.unit.storage.managers import Manager

COMPACTED = replace(default_config(), segment_bytes=1000, cleanup_policy=("compact",))
DELETED = replace(COMPACTED, cleanup_policy=("delete",))


def filled(logs: LogManager, partition: int = 0, config: TopicConfig = COMPACTED, count: int = 40) -> UnifiedLog:
    """A log of five keys with a checkpointed high watermark."""
    log = logs.get_or_create("topic", partition, TOPIC_ID, config)
    for number in range(count):
        data = batch_of(b"%d" % number * 20, keys=[b"%d" % (number % 5)])
        log.append_as_leader(data, leader_epoch=LeaderEpoch(0))
    log.raise_high_watermark(log.log_end_offset)
    log.flush()
    for directory in logs.dirs:
        directory.save()
    return log


def cleaner_of(manager: Manager, memory: int = DEDUPE_BYTES) -> Cleaner:
    settings = CleanerSettings(dedupe_buffer=memory)
    return Cleaner(manager.disk, manager.runtime.contained, lambda: SECRET, settings, paused=manager.logs.is_moving)


async def unpaced(_amount: int) -> None:
    pass


async def clean(cleaner: Cleaner, manager: Manager, log: UnifiedLog) -> bool:
    return await cleaner.clean(log, manager.clock.now, PlainWorker(manager.disk), unpaced) is not None


def due(cleaner: Cleaner, manager: Manager) -> UnifiedLog | None:
    """The log to clean next."""
    looks = [cleaner.look(log, manager.clock.now) for log in manager.logs]
    found = dirtiest_first(one for one in looks if one is not None)
    return found[0].log if found else None


async def clean_all(cleaner: Cleaner, manager: Manager) -> list[UnifiedLog]:
    """Clean logs until none is due; returns the cleaned ones."""
    cleaned = []
    while (log := due(cleaner, manager)) is not None:
        if await clean(cleaner, manager, log):
            cleaned.append(log)
        assert len(cleaned) < 20
    return cleaned


def keys_of(log: UnifiedLog) -> list[bytes | None]:
    return [record.key for batch in batches_in(log.folder, log.context.disk) for record in records_of(batch)]


def batches_of(log: UnifiedLog) -> list[bytes]:
    return [log.context.disk.read(segment.path(".log")) for segment in log.segments]


def damage(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[70] ^= 1
    Path(path).write_bytes(data)


async def test_each_compacted_log_is_cleaned_once(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    one, two, other = filled(logs, 0), filled(logs, 1), filled(logs, 2, DELETED)
    cleaner = cleaner_of(manager)
    assert set(await clean_all(cleaner, manager)) == {one, two}
    assert one.cleaned_to == one.segments.active.base_offset
    assert len(keys_of(one)) < 15 and len(keys_of(other)) == 40
    assert other.cleaned_to is None
    assert await clean_all(cleaner, manager) == []


async def test_the_cleaner_offset_checkpoint_is_written_and_loaded_after_a_restart(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    log = filled(logs)
    file = f"{manager.paths[0]}/cleaner-offset-checkpoint"
    assert not manager.disk.exists(file)
    await clean_all(cleaner_of(manager), manager)
    logs.dirs[0].save()
    assert manager.disk.read(file) == b"0\n1\ntopic 0 %d\n" % (log.cleaned_to or 0)
    await logs.stop()
    again = Manager(tmp_path)
    found = (await again.start(config=COMPACTED)).get("topic", 0)
    assert found is not None and found.cleaned_to == log.cleaned_to
    assert found.checkpointed_high_watermark == found.log_end_offset
    assert await clean_all(cleaner_of(again), again) == []
    again.logs.delete(found)
    again.logs.dirs[0].save()
    assert manager.disk.read(file) == b"0\n0\n"


async def test_a_high_watermark_counts_after_its_checkpoint_was_written(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    log = filled(logs, count=5)
    before = log.checkpointed_high_watermark
    log.append_as_leader(batch_of(b"v", keys=[b"k"]), leader_epoch=LeaderEpoch(0))
    log.raise_high_watermark(log.log_end_offset)
    checkpoints = logs.dirs[0].checkpoints()
    assert log.checkpointed_high_watermark == before == 5
    logs.dirs[0].write(checkpoints)
    assert log.checkpointed_high_watermark == 6


async def test_a_truncation_lowers_the_cleaned_offset(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    log = filled(logs)
    await clean_all(cleaner_of(manager), manager)
    log.truncate_to(Offset(12))
    assert log.cleaned_to == log.log_end_offset <= 12
    log.truncate_fully_and_start_at(Offset(3))
    assert log.cleaned_to == 3


async def test_a_cleaning_is_aborted_if_the_log_is_truncated_before_its_end(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    log = filled(await manager.start(config=COMPACTED))
    cleaner = cleaner_of(manager)
    begun = cleaner.begin(log, manager.clock.now)
    log.truncate_to(Offset(12))
    with pytest.raises(CleaningAborted):
        cleaner.finish(begun, Offset(30))
    assert log.cleaned_to is None


async def test_a_log_that_moved_to_another_directory_keeps_its_cleaned_offset(tmp_path: Path) -> None:
    manager = Manager(tmp_path, dirs=2)
    logs = await manager.start(config=COMPACTED)
    log = filled(logs)
    await clean_all(cleaner_of(manager), manager)
    (target,) = (directory for directory in logs.dirs if directory is not logs.dir_of(log))
    future = logs.futures.create(log, target)
    end = log.log_end_offset
    while future.log_end_offset < end:
        data = log.read_bytes(future.log_end_offset, 1 << 20, upper=end, min_one=True)
        future.append_as_follower(memoryview(bytearray(data)))
    logs.futures.promote(log, future)
    assert future.cleaned_to == log.cleaned_to is not None


async def test_a_damaged_log_is_marked_uncleanable_and_other_logs_are_cleaned(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    damaged, sound = filled(logs, 0), filled(logs, 1)
    damage(damaged.segments[1].path(".log"))
    before = batches_of(damaged), manager.disk.list(damaged.folder)
    cleaner = cleaner_of(manager)
    assert await clean_all(cleaner, manager) == [sound]
    assert list(cleaner.uncleanable) == [damaged]
    (event,) = manager.events.named("log cannot be cleaned")
    assert damaged.segments[1].path(".log") in str(event["reason"]) and event["partition"] == 0
    assert (batches_of(damaged), manager.disk.list(damaged.folder)) == before
    assert not manager.failed
    logs.delete(damaged)
    cleaner.forget_gone()
    assert not cleaner.uncleanable


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
async def test_a_log_with_a_compressed_record_above_the_limit_is_uncleanable(tmp_path: Path, codec: Codec) -> None:
    """As in Kafka 4.4: the limit that is in force when the log is cleaned holds."""
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    log, limit = filled(logs), replace(COMPACTED, max_decompressed_message_bytes=500)
    log.append_as_leader(batch_of(b"x" * 900, keys=[b"k"], codec=codec), leader_epoch=LeaderEpoch(0))
    log.roll()
    log.raise_high_watermark(log.log_end_offset)
    log.flush()
    for directory in logs.dirs:
        directory.save()
    log.config = limit
    before = batches_of(log)
    cleaner = cleaner_of(manager)
    assert await clean(cleaner, manager, log) is (codec is Codec.NONE)
    if codec is Codec.NONE:
        return
    assert "Invalid record size: " in cleaner.uncleanable[log]
    assert batches_of(log) == before


async def test_an_error_in_the_check_of_a_log_does_not_prevent_cleaning_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    odd, sound = filled(logs, 0), filled(logs, 1)

    def judged(log: UnifiedLog, now: int) -> Candidate:
        if log is odd:
            raise RuntimeError("an error of ours")
        return candidate(log, now)

    monkeypatch.setattr(cleaner_module, "candidate", judged)
    cleaner = cleaner_of(manager)
    assert await clean_all(cleaner, manager) == [sound]
    assert cleaner.uncleanable == {odd: "RuntimeError: an error of ours"}
    assert manager.runtime.contained.count == 1 and not manager.failed


async def test_a_dedupe_buffer_without_room_is_reported(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    log = filled(await manager.start(config=COMPACTED))
    cleaner = cleaner_of(manager, memory=24)
    assert not await clean(cleaner, manager, log)
    assert "log.cleaner.dedupe.buffer.size" in str(manager.events.named("cleaning failed"))


@pytest.mark.parametrize("recovery_point", [0, None])
async def test_a_log_that_is_no_longer_compacted_keeps_its_records_after_a_kill(
    tmp_path: Path, recovery_point: int | None
) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    log = filled(logs)
    await clean_all(cleaner_of(manager), manager)
    logs.dirs[0].save()
    expected, end = keys_of(log), log.log_end_offset
    if recovery_point is not None:
        data = b"0\n1\ntopic 0 %d\n" % recovery_point
        manager.disk.write_atomic(f"{manager.paths[0]}/recovery-point-offset-checkpoint", data)
    logs.unlock()
    again = Manager(tmp_path)
    found = (await again.start(config=DELETED)).get("topic", 0)
    assert found is not None and found.log_end_offset == end
    assert keys_of(found) == expected


@pytest.mark.parametrize(("number", "offline"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_full_disk_only_delays_a_cleaning(number: int, offline: bool) -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        runtime = machine.start()
        manager = Manager(Path("/"), disk=runtime.disk)
        manager.paths = ["/dir0"]
        logs = await manager.start(config=COMPACTED)
        log = filled(logs)
        machine.storage.fail(f"{log.folder}/", number, operation="append")
        cleaner = cleaner_of(manager)
        assert not await clean(cleaner, manager, log)
        assert bool(manager.failed) is offline
        assert not [name for name in runtime.disk.list(log.folder) if name.endswith(".cleaned")]
        assert set(keys_of(log)) == {b"%d" % key for key in range(5)}
        if not offline:
            machine.storage.heal()
            assert await clean_all(cleaner, manager) == [log]

    simulate(run, seed=1)


def misled(_disk: Disk, _report: Report, *_: object) -> Iterator[int]:
    yield from ()
    raise CorruptBatch("the file ends within the batch at 0")


async def test_a_log_that_changes_during_its_cleaning_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager(tmp_path)
    log = filled(await manager.start(config=COMPACTED))
    cleaner = cleaner_of(manager)

    def cut(*arguments: object) -> Iterator[int]:
        log.truncate_to(Offset(12))
        return misled(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner_module, "clean_segments", cut)
    assert not await clean(cleaner, manager, log)
    assert not cleaner.uncleanable and manager.events.named("cleaning aborted")
    monkeypatch.setattr(cleaner_module, "clean_segments", misled)
    assert not await clean(cleaner, manager, log)
    assert list(cleaner.uncleanable) == [log]


async def test_a_recreated_log_waits_for_the_worker_of_the_deleted_log(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start(config=COMPACTED)
    log = filled(logs)
    cleaner = cleaner_of(manager)
    again: list[UnifiedLog] = []
    looks: list[object] = []

    async def replace_log(_amount: int) -> None:
        logs.delete(log)
        again.append(filled(logs))
        looks.append(cleaner.look(again[0], manager.clock.now))

    assert await cleaner.clean(log, manager.clock.now, PlainWorker(manager.disk), replace_log) is None
    assert looks == [None]
    assert cleaner.look(again[0], manager.clock.now) is not None
    assert await clean(cleaner, manager, again[0])


async def test_files_left_by_a_killed_worker_are_removed_before_a_swap(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    log = filled(await manager.start(config=COMPACTED))
    left = Path(log.folder) / f"{log.segments.active.base_offset:020d}.log.cleaned"
    left.write_bytes(b"half")
    assert await clean(cleaner_of(manager), manager, log)
    assert not left.exists()
