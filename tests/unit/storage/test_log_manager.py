"""Log directories: their owner, their logs and checkpoints, and their failures."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from milena.config.node_config import NodeConfig
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import BrokerEpoch, Offset
from milena.runtime.files import RealDisk
from milena.storage.files.checkpoints import decode_offsets
from milena.storage.files.names import RECOVERY_POINTS
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager import log_dir
from milena.storage.manager.log_dir import DirectoryError
from milena.storage.manager.log_manager import LogManager
from tests.unit.storage.logs import TOPIC_ID, append, default_config, values_of
from tests.unit.storage.managers import CLUSTER, Manager


def create(logs: LogManager, topic: str = "topic", partition: int = 0, directory: UUID | None = None) -> UnifiedLog:
    return logs.get_or_create(topic, partition, TOPIC_ID, default_config(), directory=directory, is_new=True)


async def test_an_empty_directory_is_formatted_and_keeps_its_id(tmp_path: Path) -> None:
    first = Manager(tmp_path)
    logs = await first.start()
    ids = [directory.directory_id for directory in logs.dirs]
    await logs.stop()
    again = Manager(tmp_path)
    again.logs.open()
    assert again.logs.cluster_id == CLUSTER
    assert [directory.directory_id for directory in again.logs.dirs] == ids
    again.kill()


async def test_a_directory_of_another_cluster_or_node_is_refused(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    await (await manager.start()).stop()
    with pytest.raises(DirectoryError, match="belongs to cluster"):
        await Manager(tmp_path).start("another")
    with pytest.raises(DirectoryError, match="belongs to node 1, not 2"):
        await Manager(tmp_path, node_id=2).start()


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    await manager.start()
    with pytest.raises(DirectoryError, match="in use by another process"):
        Manager(tmp_path).logs.open()
    await manager.logs.stop()


async def test_a_log_manager_that_loaded_no_logs_changes_no_file(tmp_path: Path) -> None:
    """A process that gets no lock, or ends before its logs are loaded, must not write the clean shutdown file."""
    manager = Manager(tmp_path)
    append(create(await manager.start()), b"a")
    before = sorted(path.name for path in (tmp_path / "dir0").iterdir())
    second = Manager(tmp_path)
    await second.logs.stop()  # it has not tried to lock the directory yet
    with pytest.raises(DirectoryError):
        second.logs.open()
    await second.logs.stop()
    assert sorted(path.name for path in (tmp_path / "dir0").iterdir()) == before
    manager.kill()
    third = Manager(tmp_path)
    third.logs.open()
    third.logs.format(CLUSTER)
    await third.logs.stop()
    assert sorted(path.name for path in (tmp_path / "dir0").iterdir()) == before


async def test_a_clean_shutdown_stores_the_broker_epoch_and_needs_no_recovery(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    log = create(logs)
    append(log, b"a")
    log.set_high_watermark(Offset(1))
    await logs.stop(BrokerEpoch(42))
    again = Manager(tmp_path)
    again.logs.open()
    assert again.logs.previous_broker_epoch == 42
    await again.logs.load(lambda _topic: default_config())
    found = again.logs.get("topic", 0)
    assert found is not None
    assert (found.recovery_point, found.high_watermark, found.topic_id) == (1, 1, TOPIC_ID)
    assert values_of(found) == [b"a"]
    assert not manager.disk.exists(f"{manager.paths[0]}/.kafka_cleanshutdown")
    again.kill()


async def test_a_killed_broker_recovers_from_its_checkpoints(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    log = create(logs)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    log.flush()
    log.set_high_watermark(Offset(2))
    logs.dirs[0].write(logs.dirs[0].checkpoints())
    append(log, b"d")
    manager.kill()
    again = Manager(tmp_path)
    found = (await again.start()).get("topic", 0)
    assert found is not None
    assert again.logs.previous_broker_epoch is None
    assert (found.log_end_offset, found.recovery_point, found.high_watermark) == (4, 3, 2)
    assert values_of(found) == [b"a", b"b", b"c", b"d"]
    again.kill()


async def test_a_log_is_created_in_its_assigned_directory_or_the_one_with_the_fewest_logs(tmp_path: Path) -> None:
    manager = Manager(tmp_path, dirs=2)
    logs = await manager.start()
    first, second = logs.dirs
    for partition in range(4):
        create(logs, partition=partition)
    assert (len(first.logs), len(second.logs)) == (2, 2)
    log = create(logs, partition=4, directory=second.directory_id)
    assert logs.dir_of(log) is second
    assert logs.directory_id(log) == second.directory_id
    assert create(logs, partition=4) is log
    await logs.stop()


async def test_another_topic_under_the_same_name_is_refused(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    create(logs)
    with pytest.raises(KafkaError) as refused:
        logs.get_or_create("topic", 0, UUID(int=7 << 100), default_config())
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    await logs.stop()


async def test_a_topic_id_lost_in_a_power_loss_is_written_again(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    path = f"{create(await manager.start()).folder}/partition.metadata"
    whole = manager.disk.read(path)
    for _ in range(2):
        await manager.logs.stop()
        manager.disk.write_atomic(path, whole[:15])
        manager = Manager(tmp_path)
        log = (await manager.start()).get("topic", 0)
        assert log is not None
        assert log.topic_id is None
        again = create(manager.logs)
        assert again is log
        assert again.topic_id == TOPIC_ID
        assert manager.disk.read(path) == whole
    await manager.logs.stop()


async def test_a_deleted_log_is_renamed_and_removed_later(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    log = create(logs)
    append(log, b"old")
    logs.delete(log)
    assert logs.get("topic", 0) is None
    (name,) = manager.folders()
    assert name.startswith("topic-0.")
    assert name.endswith("-delete")
    with pytest.raises(KafkaError):
        append(log, b"late")
    assert values_of(create(logs)) == []
    manager.clock.now += 60_000
    await logs._maintenance._delete()
    assert manager.folders() == ["topic-0"]
    await logs.stop()


async def test_a_new_log_does_not_inherit_the_checkpoints_of_a_deleted_one(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    log = create(logs)
    for _ in range(5):
        append(log)
    log.set_high_watermark(Offset(5))
    log.increment_log_start(Offset(4))
    logs.dirs[0].write(logs.dirs[0].checkpoints())
    logs.delete(log)
    append(create(logs), b"new")
    manager.kill()
    again = Manager(tmp_path)
    found = (await again.start()).get("topic", 0)
    assert found is not None
    assert values_of(found) == [b"new"]
    again.kill()


async def test_a_stray_log_is_renamed_and_kept(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    logs.set_aside(create(logs))
    await logs.stop()
    (name,) = manager.folders()
    assert name.endswith("-stray")
    again = Manager(tmp_path)
    assert list(await again.start()) == []
    again.kill()


class FailingDisk:
    """A real disk on which paths can be made to fail."""

    def __init__(self) -> None:
        self.broken = ""
        self._disk = RealDisk()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._disk, name)
        return self._checking(found) if name in ("open", "write_atomic", "lock") else found

    def _checking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: str, *args: Any, **options: Any) -> Any:
            if self.broken and path.startswith(self.broken):
                raise OSError(errno.EIO, "broken", path)
            return call(path, *args, **options)

        return checked


async def test_a_failing_disk_takes_its_directory_offline_and_no_other(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = Manager(tmp_path, dirs=2, disk=disk)
    logs = await manager.start()
    healthy, broken = (create(logs, partition=number) for number in range(2))
    append(broken)
    append(healthy)
    path = logs.dir_of(broken).path
    disk.broken = path
    broken.segments.active.close()
    with pytest.raises(KafkaError) as refused:
        append(broken)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.failed == [(path, [broken])]
    assert [directory.path for directory in logs.offline_dirs] == [path]
    append(healthy, b"lives")
    assert logs.get("topic", 1) is None
    with pytest.raises(KafkaError):
        logs.get_or_create("topic", 1, TOPIC_ID, default_config())
    assert logs.dir_of(create(logs, partition=2)).online
    await logs.stop()
    assert manager.fatal == []


async def test_the_node_ends_if_its_last_directory_fails(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = Manager(tmp_path, disk=disk)
    logs = await manager.start()
    disk.broken = manager.paths[0]
    with pytest.raises(KafkaError):
        create(logs)
    assert manager.fatal == ["all log directories have failed"]
    await logs.stop()


async def test_the_node_ends_if_the_directory_of_its_metadata_log_fails(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = Manager(tmp_path, dirs=2, disk=disk)
    logs = await manager.start()
    disk.broken = manager.paths[0]
    with pytest.raises(KafkaError):
        create(logs)
    assert manager.fatal == ["the log directory with the metadata log has failed"]
    await logs.stop()


async def test_a_directory_that_fails_at_startup_is_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = Manager(tmp_path, dirs=2, disk=disk)
    disk.broken = manager.paths[0]
    logs = await manager.start()
    assert [directory.path for directory in logs.online_dirs] == [manager.paths[1]]
    await logs.stop()


async def test_rolled_segments_are_synced_and_the_recovery_point_moves(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    log = create(logs)
    append(log, b"a")
    append(log, b"b")
    log.roll()
    append(log, b"c")
    assert log.recovery_point == 0
    await logs._maintenance.flush([log], sealed_only=True)
    assert log.recovery_point == 2
    await logs.stop()
    assert log.recovery_point == 3


def recovery_points(manager: Manager) -> dict[tuple[str, int], Offset]:
    """The recovery points in the checkpoint file."""
    return decode_offsets(manager.disk.read(f"{manager.paths[0]}/{RECOVERY_POINTS}"))


async def test_a_truncation_lowers_the_recovery_point_on_disk_before_records_are_rolled(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    log, other = create(logs), create(logs, partition=1)
    for one in (log, other):
        for value in (b"a", b"b", b"c"):
            append(one, value)
        one.flush()
    logs.dirs[0].write(logs.dirs[0].checkpoints())
    log.truncate_to(Offset(1))
    late = logs.dirs[0].checkpoints()  # these are written after newer checkpoints
    append(log, b"B")
    log.roll()
    append(log, b"C")

    on_disk = recovery_points(manager)
    assert on_disk == {("topic", 0): 1, ("topic", 1): 3}
    logs.dirs[0].write(late)
    assert recovery_points(manager) == on_disk
    manager.kill()


async def test_newer_checkpoints_include_the_changes_of_checkpoints_that_were_not_written(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    log = create(logs)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    log.flush()
    logs.dirs[0].write(logs.dirs[0].checkpoints())
    log.truncate_to(Offset(1))
    logs.dirs[0].checkpoints()  # these are never written, as if power was lost before
    log.set_high_watermark(Offset(1))
    logs.dirs[0].write(logs.dirs[0].checkpoints())
    append(log, b"B")
    log.roll()
    append(log, b"C")
    assert recovery_points(manager) == {("topic", 0): 1}
    manager.kill()


def filled(logs: LogManager, partition: int) -> UnifiedLog:
    log = create(logs, partition=partition)
    append(log, b"a")
    log.flush()
    return log


async def test_a_log_that_is_replaced_while_checkpoints_are_collected_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash would take the records of the new log for synced ones."""
    monkeypatch.setattr(log_dir, "LOGS_PER_YIELD", 1)
    manager = Manager(tmp_path)
    logs = await manager.start()
    first, second, third = (filled(logs, partition) for partition in range(3))
    collecting = logs.dirs[0].collect_checkpoints()
    next(collecting)  # the offsets of the first log have been read
    for log in (first, third):
        logs.delete(log)
    create(logs, partition=0)
    logs.dirs[0].write(run_now(collecting))
    assert recovery_points(manager) == {("topic", 1): second.recovery_point}
    manager.kill()


async def test_checkpoints_that_were_collected_later_replace_those_being_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dir, "LOGS_PER_YIELD", 1)
    manager = Manager(tmp_path)
    logs = await manager.start()
    log, _ = filled(logs, 0), filled(logs, 1)
    collecting = logs.dirs[0].collect_checkpoints()
    next(collecting)
    log.truncate_to(Offset(0))
    logs.dirs[0].write(logs.dirs[0].checkpoints())
    assert run_now(collecting).files == ()
    assert recovery_points(manager) == {("topic", 0): 0, ("topic", 1): 1}
    manager.kill()


async def test_no_checkpoints_are_written_to_a_directory_that_goes_offline_while_they_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dir, "LOGS_PER_YIELD", 1)
    manager = Manager(tmp_path)
    logs = await manager.start()
    filled(logs, 0), filled(logs, 1)
    collecting = logs.dirs[0].collect_checkpoints()
    next(collecting)
    logs.take_offline(logs.dirs[0], OSError(errno.EIO, "broken"))
    assert run_now(collecting).files == ()
    manager.kill()


async def test_a_folder_that_belongs_to_no_log_is_ignored(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    manager.disk.make_folders(f"{manager.paths[0]}/lost-found")
    logs = await manager.start()
    assert list(logs) == []
    assert [fields["path"] for fields in manager.events.named("folder ignored")] == [f"{manager.paths[0]}/lost-found"]
    await logs.stop()


async def test_an_error_in_the_maintenance_of_one_log_does_not_affect_other_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager(tmp_path)
    logs = await manager.start()
    for index in range(3):
        logs.get_or_create("topic", index, TOPIC_ID, default_config())
    looked: list[int] = []

    def delete_old(log: UnifiedLog, _now_ms: int) -> None:
        if log.partition == 1:
            raise ValueError("not foreseen")
        looked.append(log.partition)

    monkeypatch.setattr(UnifiedLog, "delete_old_segments", delete_old)
    await logs._maintenance._retention()
    assert looked == [0, 2]
    assert (manager.runtime.contained.count, manager.fatal, manager.failed) == (1, [], [])
    monkeypatch.undo()
    await logs.stop()


async def test_a_deletion_that_the_disk_refuses_takes_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "no")

    manager = Manager(tmp_path)
    logs = await manager.start()
    log = logs.get_or_create("topic", 0, TOPIC_ID, default_config(), is_new=True)
    append(log, b"x")
    monkeypatch.setattr(manager.disk, "rename", refuse)
    logs.delete(log)
    assert [path for path, _ in manager.failed] == [f"{tmp_path}/dir0"]
    with pytest.raises(KafkaError):
        append(log, b"y")
    assert manager.folders() == ["topic-0"]
    manager.kill()


async def test_directories_that_cannot_be_used_are_named_with_the_reason(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = Manager(tmp_path, disk=disk)
    disk.broken = manager.paths[0]
    with pytest.raises(DirectoryError, match=rf"none of the log directories can be used: {manager.paths[0]}: broken$"):
        await manager.start()


async def test_only_a_directory_with_logs_is_reported_as_not_shut_down_cleanly(tmp_path: Path) -> None:
    reported = []
    for _ in range(3):
        manager = Manager(tmp_path)
        logs = await manager.start()
        reported += [loaded["unclean"] for loaded in manager.events.named("logs loaded")]
        if len(reported) == 2:
            create(logs)
        manager.kill()
    assert reported == [[], [], manager.paths]


async def test_the_rules_for_producers_are_dynamic(tmp_path: Path) -> None:
    manager = Manager(tmp_path, dirs=2)
    await manager.start()
    logs = [manager.logs.get_or_create("topic", index, TOPIC_ID, default_config()) for index in range(2)]
    assert {(log.context.producer_expiration_ms, log.context.verifies_transactions) for log in logs} == {
        (86_400_000, True)
    }
    changed = NodeConfig.of(producer_id_expiration_ms=5, transaction_partition_verification_enable="false")
    manager.logs.reconfigure(changed)
    assert {(log.context.producer_expiration_ms, log.context.verifies_transactions) for log in logs} == {(5, False)}
    manager.kill()
