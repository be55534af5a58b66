"""Periodic maintenance of logs, on a simulated clock and disk."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from milena.lab.world.world import World, simulate
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.runtime.files import OFFLOAD_THREADS
from milena.storage.files.checkpoints import decode_offsets
from milena.storage.log.flush import run_plans
from milena.storage.manager.log_maintenance import SLICE, LogMaintenance, MaintenanceTimes
from tests.unit.storage.kept_node import Node
from tests.unit.storage.logs import values_of


def on_a_simulated_node(scenario: Callable[[Node], Awaitable[None]], *, dirs: int = 1) -> None:
    async def run(world: World) -> None:
        node = Node(world.machine("one"), dirs=dirs)
        await node.start()
        await scenario(node)
        assert node.machine.failures == []

    simulate(run, seed=1)


def test_old_segments_are_deleted_and_their_files_a_minute_later() -> None:
    async def scenario(node: Node) -> None:
        log = node.log()
        node.write(log, 10)
        await node.runtime.clock.sleep(590)
        assert log.log_start_offset == 0
        await node.runtime.clock.sleep(90)
        assert (log.log_start_offset, len(log.segments)) == (10, 1)
        assert any(name.endswith(".log.deleted") for name in node.names(log))
        await node.runtime.clock.sleep(70)
        assert not any(name.endswith(".deleted") for name in node.names(log))

    on_a_simulated_node(scenario)


def test_rolled_segments_are_synced_at_once_and_checkpointed_soon() -> None:
    async def scenario(node: Node) -> None:
        log = node.log()
        node.write(log, 10)
        await node.runtime.clock.sleep(0.1)
        assert log.recovery_point == log.segments.active.base_offset == 9
        await node.runtime.clock.sleep(6)
        read = node.runtime.disk.read
        assert decode_offsets(read("/data0/recovery-point-offset-checkpoint")) == {("topic", 0): 9}
        assert decode_offsets(read("/data0/replication-offset-checkpoint")) == {("topic", 0): 10}

    on_a_simulated_node(scenario)


def test_flush_ms_limits_how_long_records_stay_unsynced() -> None:
    async def scenario(node: Node) -> None:
        often, never = node.log(0, flush_ms=2_000), node.log(1)
        node.write(often, 1)
        node.write(never, 1)
        await node.runtime.clock.sleep(4)
        assert (often.recovery_point, never.recovery_point) == (1, 0)

    on_a_simulated_node(scenario)


def test_syncs_of_topic_ids_leave_half_of_the_threads_of_the_disk_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: Node) -> None:
        disk = node.runtime.disk
        offload, running, most = disk.offload, 0, 0

        async def counted(work: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await offload(work, *given, **named)
            finally:
                running -= 1

        monkeypatch.setattr(disk, "offload", counted)
        logs = [node.log(number) for number in range(10 * SLICE)]
        await node.runtime.clock.sleep(4)
        files = node.machine.storage.files
        synced = [files[f"{log.folder}/partition.metadata"] for log in logs]
        assert all(file.synced == len(file.data) for file in synced)
        assert 0 < most <= OFFLOAD_THREADS // 2

    on_a_simulated_node(scenario)


def test_a_power_loss_keeps_all_synced_records() -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        node = Node(machine)
        await node.start()
        log = node.log()
        node.write(log, 10)
        await node.runtime.clock.sleep(10)
        node.write(log, 2)
        machine.power_off()
        await machine.wait_ended()
        again = await Node(machine).start()
        found = again.get("topic", 0)
        assert found is not None
        assert 9 <= found.log_end_offset <= 12
        assert values_of(found) == [b"x" * 200] * found.log_end_offset

    simulate(run, seed=3)


def test_a_full_disk_takes_the_directory_offline_and_leaves_no_torn_batch() -> None:
    async def scenario(node: Node) -> None:
        full, other = node.log(0), node.log(1)
        if node.logs.dir_of(full).path == "/data0":
            full, other = other, full
        node.write(full, 2)
        node.machine.storage.capacity = node.machine.storage.used() + 100
        with pytest.raises(KafkaError) as refused:
            node.write(full, 1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.offline == ["/data1"]
        node.machine.storage.capacity = None
        node.write(other, 1)
        with pytest.raises(KafkaError):
            full.read(Offset(0), 100, upper=Offset(1), min_one=True)
        data = node.machine.storage.files[f"{full.folder}/{0:020d}.log"].data
        assert len(data) == full.segments.active.size

    on_a_simulated_node(scenario, dirs=2)


def test_a_directory_whose_sync_fails_goes_offline() -> None:
    async def scenario(node: Node) -> None:
        log = node.log(0) if node.logs.dir_of(node.log(0)).path == "/data1" else node.log(1)
        node.write(log, 1)  # the first record waits for the topic id to be synced
        node.machine.storage.fail(log.folder, errno.EIO, operation="sync")
        node.write(log, 10)
        await node.runtime.clock.sleep(1)
        assert node.offline == ["/data1"]
        with pytest.raises(KafkaError):
            node.write(log, 1)

    on_a_simulated_node(scenario, dirs=2)


def test_a_flush_of_many_logs_holds_few_files_open_at_a_time() -> None:
    """Thousands of logs roll together if segments are rolled by time only."""
    most = 0

    async def scenario(world: World) -> None:
        node = Node(world.machine("node"))
        await node.start()
        logs = [node.log(partition) for partition in range(3 * SLICE)]
        for log in logs:
            node.write(log, 1)
        offload = node.runtime.disk.offload

        async def counting(work: Callable[..., Any], *args: Any) -> Any:
            nonlocal most
            if work is run_plans:
                most = max(most, sum(len(plan.files) for plan in args[0]))
            return await offload(work, *args)

        node.runtime.disk.offload = counting  # type: ignore[method-assign,assignment]
        await LogMaintenance(node.logs, node.runtime, MaintenanceTimes()).flush(logs)
        assert [log.recovery_point for log in logs] == [1] * len(logs)

    simulate(scenario, seed=1)
    assert most == SLICE
