"""Power losses between two steps of a log manager: no file is removed before its replacement is synced."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from milena.lab.world.world import World, simulate
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.kept_node import CONFIG, Node
from tests.unit.storage.logs import values_of

SEEDS = range(12)
ONE_SEGMENT = 1 << 20


def copied_whole(node: Node, log: UnifiedLog) -> UnifiedLog:
    """Returns a copy of ``log`` in the other directory, with all records and none of them synced."""
    (target,) = (directory for directory in node.logs.dirs if directory is not node.logs.dir_of(log))
    future = node.logs.futures.create(log, target)
    end = log.log_end_offset
    while future.log_end_offset < end:
        data = log.read_bytes(future.log_end_offset, 1 << 20, upper=end, min_one=True)
        future.append_as_follower(memoryview(bytearray(data)))
    return future


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_that_moves_to_another_directory_keeps_its_synced_records(seed: int) -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine, dirs=2)
        await node.start()
        log = node.log(segment_bytes=ONE_SEGMENT)
        node.write(log, 10)
        await node.logs.flush(log)
        node.logs.futures.promote(log, copied_whole(node, log))
        machine.power_off()
        await machine.wait_ended()
        found = (await Node(machine, dirs=2).start()).get("topic", 0)
        assert found is not None
        assert values_of(found) == [b"x" * 200] * 10

    simulate(run, seed=seed)


@pytest.mark.parametrize("deleted", [0, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_records_left_by_a_power_loss_are_not_taken_for_those_of_a_new_topic(seed: int, deleted: int) -> None:
    """The records may survive without the topic id, since neither was synced; then the topic is created again."""

    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        log = node.log(segment_bytes=ONE_SEGMENT)
        node.write(log, 10)
        log.increment_log_start(Offset(deleted))
        await node.runtime.clock.sleep(10)  # the checkpoints are written
        machine.power_off()
        await machine.wait_ended()
        again = await Node(machine).start()
        left = again.get("topic", 0)
        if left is not None and left.topic_id is not None:
            assert left.log_end_offset <= 10
            return
        successor = again.get_or_create("topic", 0, UUID(int=7 << 100), replace(CONFIG, segment_bytes=ONE_SEGMENT))
        assert (successor.log_start_offset, successor.log_end_offset) == (0, 0)

    simulate(run, seed=seed)


def test_the_id_of_a_log_that_was_empty_at_a_clean_stop_is_synced_before_its_first_record() -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        topic_id = node.log(segment_bytes=ONE_SEGMENT).topic_id
        await node.logs.stop()
        machine.kill()
        await machine.wait_ended()
        again = Node(machine)
        await again.start()
        log = again.log(segment_bytes=ONE_SEGMENT)
        assert log.topic_id == topic_id
        again.write(log, 1)
        file = machine.storage.files[f"{log.folder}/partition.metadata"]
        assert file.synced == len(file.data)

    simulate(run, seed=1)


def test_a_log_whose_synced_topic_id_was_lost_is_kept() -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        log = node.log(segment_bytes=ONE_SEGMENT)
        node.write(log, 10)
        await node.logs.flush(log)
        machine.power_off()
        await machine.wait_ended()
        del machine.storage.files[f"{log.folder}/partition.metadata"]
        found = (await Node(machine).start()).get("topic", 0)
        assert found is not None
        assert (found.topic_id, found.log_end_offset) == (None, Offset(10))

    simulate(run, seed=1)


def test_checkpoints_of_a_lost_log_do_not_apply_to_a_new_log_of_its_name() -> None:
    """The folder was not synced or was removed; a new one is created, and the process is killed soon."""

    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        log = node.log(segment_bytes=ONE_SEGMENT)
        node.write(log, 10)
        log.increment_log_start(Offset(5))
        await node.runtime.clock.sleep(10)  # the checkpoints are written
        machine.kill()
        await machine.wait_ended()
        for path in [path for path in machine.storage.files if path.startswith(log.folder)]:
            del machine.storage.files[path]
        del machine.storage.folders[log.folder]
        again = Node(machine)
        await again.start()
        again.write(again.log(segment_bytes=ONE_SEGMENT), 3)
        machine.kill()
        await machine.wait_ended()
        found = (await Node(machine).start()).get("topic", 0)
        assert found is not None
        assert values_of(found) == [b"x" * 200] * 3

    simulate(run, seed=1)


def test_promoting_a_copy_during_its_flush_syncs_all_its_closed_segments() -> None:
    """The copy is as durable as the original, independent of the outcome of that flush."""

    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine, dirs=2)
        await node.start()
        log = node.log(segment_bytes=1000)
        node.write(log, 10)
        await node.logs.flush(log)
        future = copied_whole(node, log)
        under_way = future.plan_flush()
        assert under_way is not None
        node.logs.futures.promote(log, future)
        assert future.recovery_point == 10
        sealed = [f"{future.folder}/{offset:020}" for offset in (0, 3, 6)]
        files = {path: file for path, file in machine.storage.files.items() if path.startswith(tuple(sealed))}
        assert len(files) == 3 * 3 + 2, "logs, indexes, and snapshots of all but the first"
        assert [path for path, file in files.items() if file.synced < len(file.data)] == []

    simulate(run, seed=1)


def test_an_append_syncs_a_pending_topic_id_but_assigning_an_epoch_does_not() -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        log = node.log(segment_bytes=ONE_SEGMENT)
        topic_id = log.topic_id
        assert topic_id is not None
        node.write(log, 1)
        log.assign_topic_id(topic_id)  # as for a log that was loaded without a topic id
        log.plan_flush()
        log.assign_epoch(LeaderEpoch(9), log.log_end_offset)
        path = f"{log.folder}/partition.metadata"
        assert machine.storage.files[path].synced == 0
        node.write(log, 1)
        assert machine.storage.files[path].synced == len(machine.storage.files[path].data)

    simulate(run, seed=1)


def test_topic_ids_of_new_logs_are_synced_in_the_background_before_there_are_records() -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        files = machine.storage.files
        logs = [node.log(index) for index in range(120)]
        paths = [f"{log.folder}/partition.metadata" for log in logs]
        assert {files[path].synced for path in paths} == {0}
        await node.runtime.clock.sleep(1)
        assert [path for path in paths if files[path].synced < len(files[path].data)] == []
        assert [log for log in logs if log.plan_id_sync() is not None] == [], "a first record would sync them again"

    simulate(run, seed=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_of_two_concurrent_flushes_syncs_up_to_its_recovery_point(seed: int) -> None:
    """The second flush completes before the first one begins."""

    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        log = node.log(segment_bytes=ONE_SEGMENT)
        node.write(log, 10)
        first, second = log.plan_flush(), log.plan_flush()
        assert first is not None and second is not None
        second.run()
        log.flushed(second)
        machine.power_off()
        await machine.wait_ended()
        found = (await Node(machine).start()).get("topic", 0)
        assert found is not None
        assert values_of(found) == [b"x" * 200] * log.recovery_point

    simulate(run, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flush_does_not_count_if_the_folder_of_its_log_was_renamed_meanwhile(seed: int) -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        log = node.log(segment_bytes=1000)
        node.write(log, 10)
        plan = log.plan_flush()
        assert plan is not None
        node.runtime.disk.rename(log.folder, "/data0/topic-1")
        log.moved_to("/data0/topic-1")
        plan.run()
        log.flushed(plan)
        after_rename = log.recovery_point
        log.flush()
        after_flush = log.recovery_point
        machine.power_off()
        await machine.wait_ended()
        found = (await Node(machine).start()).get("topic", 1)
        assert found is not None
        assert (after_rename, after_flush) == (0, 10)
        assert values_of(found) == [b"x" * 200] * 10

    simulate(run, seed=seed)
