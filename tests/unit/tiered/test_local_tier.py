"""The tier in a folder when processes die, power goes, and brokers share it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from milena.lab.world.world import Machine, World, simulate
from milena.runtime.context import Runtime
from milena.tiered.store.local_tier import OLD_COPY_MS, PIECE, LocalTier
from milena.tiered.store.remote_storage import SegmentFiles
from tests.contract.worlds import Surroundings, on_asyncio
from tests.unit.tiered.segments import PARTITION
from tests.unit.tiered.tier_folder import COPYING, FOLDER, complete, contents, everything, files, numbered

COPIES = 6


async def copy_all(tier: LocalTier, runtime: Runtime) -> None:
    await tier.start()
    for number in range(COPIES):
        await tier.copy(numbered(number), files(runtime.disk, number))


def in_simulation(body: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        simulate(body, seed=1)

    test.__name__ = test.__qualname__ = body.__name__
    test.__module__ = body.__module__
    return test


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("seed", range(60))
def test_after_a_crash_a_segment_is_there_whole_or_not_at_all(seed: int, power: bool) -> None:
    """The folder's own power goes as well: what a copy has reported stays, and nothing is half there."""

    async def run(world: World) -> None:
        machine: Machine = world.machine("broker")
        runtime = machine.start()
        reported: list[int] = []

        async def work() -> None:
            tier = LocalTier(runtime, FOLDER, "1")
            await tier.start()
            for number in range(COPIES):
                await tier.copy(numbered(number), files(runtime.disk, number))
                reported.append(number)

        runtime.new_tasks("copies").spawn(work(), name="copies")
        await world.machine("clock").start().clock.sleep(world.random.uniform(0, 0.15))
        machine.power_off() if power else machine.kill()
        if power:
            world.tier.lose_power()
        again = machine.start()
        tier = LocalTier(again, FOLDER, "1")
        await tier.start()
        assert set(reported) <= set(await complete(tier))
        await again.clock.sleep(3600)
        await tier.sweep_incomplete(PARTITION, {UUID(int=number) for number in reported})
        left = await complete(tier)
        assert set(reported) <= set(left)
        expected = {f"{UUID(int=number)}{suffix}" for number in left for suffix in contents(number)}
        assert len(everything(again.tier_disk)) == len(expected), everything(again.tier_disk)
        for number in range(COPIES):
            await tier.copy(numbered(number), files(again.disk, number))
        assert await complete(tier) == list(range(COPIES))

    simulate(run, seed=seed)


@in_simulation
async def test_copies_at_the_same_time_do_not_meet(world: World) -> None:
    runtime = world.machine("broker").start()
    tier = LocalTier(runtime, FOLDER, "1")
    await tier.start()
    loop = asyncio.get_running_loop()
    # The same one twice among them.
    numbers = [*range(COPIES), 3]
    tasks = [loop.create_task(tier.copy(numbered(number), files(runtime.disk, number))) for number in numbers]
    for task in tasks:
        await task
    assert await complete(tier) == list(range(COPIES))
    assert [path for path in everything(runtime.tier_disk) if path.startswith(COPYING)] == []


@in_simulation
async def test_a_sweep_leaves_copies_that_go_on_alone_whosever_they_are(world: World) -> None:
    runtimes = [world.machine(f"broker {number}").start() for number in range(2)]
    tiers = [LocalTier(runtime, FOLDER, str(number)) for number, runtime in enumerate(runtimes)]
    loop = asyncio.get_running_loop()
    work = [loop.create_task(copy_all(tier, runtime)) for tier, runtime in zip(tiers, runtimes, strict=True)]
    await runtimes[0].clock.sleep(0.01)
    sweeps = 0
    while not all(task.done() for task in work):
        for tier in tiers:
            assert await tier.sweep_incomplete(PARTITION, ()) == []
            sweeps += 1
    for task in work:
        await task
    assert sweeps > 10
    assert await complete(tiers[0]) == list(range(COPIES))


@in_simulation
async def test_remains_of_a_removed_broker_are_swept_after_a_day(world: World) -> None:
    runtime = world.machine("broker").start()
    disk = runtime.tier_disk
    tier = LocalTier(runtime, FOLDER, "1")
    await tier.start()
    disk.make_folders(f"{COPYING}/7/AAAAAAAAAAAAAAAAAAAAAA.1")
    disk.write_atomic(f"{COPYING}/7/AAAAAAAAAAAAAAAAAAAAAA.1/log", b"half")
    await runtime.clock.sleep(OLD_COPY_MS / 1000 - 60)
    await tier.sweep_incomplete(PARTITION, ())
    assert len(everything(disk)) == 1
    await runtime.clock.sleep(120)
    await tier.sweep_incomplete(PARTITION, ())
    assert everything(disk) == []


@in_simulation
async def test_a_slow_folder_slows_its_own_work_only(world: World) -> None:
    runtime = world.machine("broker").start()
    tier = LocalTier(runtime, FOLDER, "1")
    await copy_all(tier, runtime)
    world.tier.offload_seconds = (60.0, 60.0)
    began = runtime.clock.monotonic()
    reader = asyncio.get_running_loop().create_task(tier.fetch(numbered(1), 0))
    await runtime.disk.offload(runtime.disk.list, "/data")
    assert runtime.clock.monotonic() - began < 0.01
    await reader
    assert runtime.clock.monotonic() - began >= 60


def test_a_log_goes_to_the_folder_piece_by_piece_and_not_through_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ``sendfile``. Other work of the same threads gets its turn after each piece."""
    asked: list[int] = []
    sendfile = os.sendfile

    def counted(to: int, of: int, position: int, count: int) -> int:
        asked.append(count)
        return sendfile(to, of, position, count)

    def refuse(*_: object) -> bytes:
        raise AssertionError

    async def scenario(it: Surroundings) -> None:
        log = b"0123456789" * (PIECE // 8)
        for name in ("log", "index", "timeindex", "snapshot"):
            it.runtime.disk.write_atomic(f"{it.folder}/s.{name}", log if name == "log" else b"x")
        path = f"{it.folder}/s"
        sources = SegmentFiles(f"{path}.log", f"{path}.index", f"{path}.timeindex", None, f"{path}.snapshot", b"epochs")
        tier = LocalTier(it.runtime, f"{it.folder}/tier", "1")
        await tier.start()
        monkeypatch.setattr(os, "sendfile", counted)
        monkeypatch.setattr(os, "pread", refuse)
        metadata = replace(numbered(0), size=len(log))
        await tier.copy(metadata, sources)
        monkeypatch.undo()
        assert await (await tier.fetch(metadata, 0)).read() == log
        assert (max(asked), len(asked) > 1) == (PIECE, True)

    on_asyncio(scenario, tmp_path)
