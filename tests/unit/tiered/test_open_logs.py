"""Logs of the tier that are read: how often a worker is asked, and what is noticed of the folder."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from milena.lab.world.disk import SimulatedDisk
from milena.lab.world.world import World, simulate
from milena.runtime.context import Runtime
from milena.runtime.disk import P, T
from milena.tiered.store.open_logs import MOST_OPEN, REOPEN_AFTER, CutLog, OpenLogs

MIB = 1 << 20
SIZE = 40 * MIB
PATH = "/tier/log"


class CountingDisk(SimulatedDisk):
    """Counts the work that is given to workers, and the bytes that they read."""

    jobs = 0

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.jobs += 1
        return await super().offload(work, *args, **kwargs)


class Bench:
    def __init__(self, runtime: Runtime) -> None:
        plain = runtime.tier_disk
        assert isinstance(plain, SimulatedDisk)
        self.clock = runtime.clock
        self.disk = CountingDisk(plain.storage, plain.clock, runtime.random, plain._life)
        self.disk.make_folders("/tier")
        self.disk.write_atomic(PATH, bytes(SIZE))
        self.logs = OpenLogs(self.disk, self.clock)


def in_simulation(body: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run(world: World) -> None:
            await body(Bench(world.machine("broker").start()))

        simulate(run, seed=1)

    test.__name__ = test.__qualname__ = body.__name__
    test.__module__ = body.__module__
    return test


@in_simulation
async def test_a_sequential_reader_needs_few_workers(bench: Bench) -> None:
    for at in range(0, SIZE, MIB):
        part = await bench.logs.range(PATH, at, MIB)
        assert (part.position, part.length) == (at, MIB)
    assert bench.disk.jobs <= 9


@in_simulation
async def test_a_reader_that_comes_back_to_the_batch_that_was_cut_is_sequential(bench: Bench) -> None:
    for at in range(0, SIZE - MIB, MIB - 1000):
        await bench.logs.range(PATH, at, MIB)
    assert bench.disk.jobs <= 9


@in_simulation
async def test_a_read_elsewhere_asks_a_worker_for_no_more_than_it_wants(bench: Bench) -> None:
    for at in (30 * MIB, 2 * MIB, 17 * MIB):
        before = bench.disk.jobs
        await bench.logs.range(PATH, at, 1000)
        await bench.logs.range(PATH, at + 500, 500)
        assert bench.disk.jobs - before <= 2


@in_simulation
async def test_a_log_that_is_expected_is_read_ahead_from_its_beginning(bench: Bench) -> None:
    for _ in range(2):
        bench.logs.expect(PATH)
        before = bench.disk.jobs
        for at in range(0, 8 * MIB, MIB):
            await bench.logs.range(PATH, at, MIB)
        assert bench.disk.jobs - before <= 2


@in_simulation
async def test_what_became_of_the_folder_is_noticed_after_a_while(bench: Bench) -> None:
    part = await bench.logs.range(PATH, 0, 10)
    bench.disk.write_atomic(PATH, b"short")
    await bench.clock.sleep(REOPEN_AFTER)
    with pytest.raises(CutLog) as cut:
        await bench.logs.range(PATH, 0, 10)
    assert cut.value.size == 5
    assert part.handle.pread(10, 0) == bytes(10), "an open handle stays usable"
    bench.disk.remove(PATH)
    with pytest.raises(FileNotFoundError):
        await bench.logs.range(PATH, 0, 1)


@in_simulation
async def test_a_log_that_cannot_be_read_is_opened_again(bench: Bench) -> None:
    bench.disk.storage.fail(PATH, errno.EIO, operation="read")
    with pytest.raises(OSError, match="Input/output"):
        await bench.logs.range(PATH, 0, 10)
    bench.disk.storage.heal()
    assert (await bench.logs.range(PATH, 0, 10)).length == 10


@in_simulation
async def test_few_logs_are_open_at_a_time_and_none_that_is_forgotten(bench: Bench) -> None:
    for number in range(MOST_OPEN + 1):
        bench.disk.write_atomic(f"/tier/{number}", b"data")
        await bench.logs.range(f"/tier/{number}", 0, 4)
    before = bench.disk.jobs
    await bench.logs.range("/tier/1", 0, 4)
    assert bench.disk.jobs == before
    await bench.logs.range("/tier/0", 0, 4)
    assert bench.disk.jobs == before + 2
    bench.disk.remove("/tier/0")
    bench.logs.forget("/tier/0")
    with pytest.raises(FileNotFoundError):
        await bench.logs.range("/tier/0", 0, 4)
    bench.logs.close()
