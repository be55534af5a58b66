"""The simulated world: deterministic by seed; crashes, power losses and full disks."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from milena.lab.world.loop import Stalled
from milena.lab.world.world import Machine, World, simulate
from tests.contract.peers import Peer


async def chatter(world: World) -> str:
    """Three machines talk to each other at random times."""
    received = 0

    def answer(peer: Peer, frame: bytes) -> None:
        nonlocal received
        received += 1
        if len(frame) < 20:
            peer.connection.send([frame + b"x\n"])

    machines = [world.machine(f"node{number}") for number in range(3)]
    runtimes = [machine.start() for machine in machines]
    for runtime in runtimes:
        await runtime.network.listen("", 9092, lambda: ((peer := Peer(on_frame=answer)).framer, peer))
    for runtime in runtimes:
        for machine in machines:
            peer = Peer(on_frame=answer)
            await runtime.network.connect(machine.name, 9092, peer.framer, peer, timeout=1)
            peer.connection.send([b"hello\n"])
            await runtime.clock.sleep(runtime.random.uniform(0, 0.001))
    await runtimes[0].clock.sleep(1)
    assert received == 9 * 16
    return world.digest()


def test_a_seed_determines_a_run() -> None:
    assert simulate(chatter, seed=7) == simulate(chatter, seed=7)
    assert simulate(chatter, seed=7) != simulate(chatter, seed=8)


def test_a_seed_determines_a_run_in_any_process() -> None:
    lines = [
        "from milena.lab.world.world import simulate",
        "from tests.unit.lab.test_world import chatter",
        "print(simulate(chatter, seed=3))",
    ]
    digests = {
        subprocess.run(
            [sys.executable, "-c", "\n".join(lines)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_simulated_time_passes_without_waiting() -> None:
    async def scenario(world: World) -> float:
        clock = world.machine("node").start().clock
        await clock.sleep(3600)
        return clock.monotonic()

    assert simulate(scenario, seed=1) == pytest.approx(3600)


def test_a_task_that_waits_for_ever_fails_the_simulation() -> None:
    async def scenario(_world: World) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled):
        simulate(scenario, seed=1)


def test_timers_run_by_their_time_and_cancelled_ones_never() -> None:
    """Most of them are cancelled, so that the loop removes those together."""

    async def scenario(world: World) -> None:
        ran: list[float] = []
        delays = [world.random.uniform(0, 10) for _ in range(300)]
        timers = [world.loop.call_later(delay, ran.append, delay) for delay in delays]
        for timer in timers[50:]:
            timer.cancel()
        await asyncio.sleep(11)
        assert ran == sorted(delays[:50])

    simulate(scenario, seed=0)


def test_a_callback_cancels_another_one_that_is_due_with_it() -> None:
    async def scenario(world: World) -> None:
        ran: list[str] = []
        timers: list[asyncio.TimerHandle] = []
        timers.append(world.loop.call_later(1, lambda: timers[1].cancel()))
        timers.append(world.loop.call_later(1, ran.append, "the second"))
        await asyncio.sleep(2)
        assert ran == []

    simulate(scenario, seed=0)


def test_timers_of_equal_time_run_in_the_order_of_asyncios_own_loop() -> None:
    async def order_of(loop: asyncio.AbstractEventLoop) -> list[int]:
        ran: list[int] = []
        last, start = loop.create_future(), loop.time()
        for number in range(100):
            loop.call_at(start + number % 3 / 1000, ran.append, number)
        loop.call_at(start + 4 / 1000, last.set_result, None)
        await last
        return ran

    async def simulated(world: World) -> list[int]:
        return await order_of(world.loop)

    async def real() -> list[int]:
        return await order_of(asyncio.get_running_loop())

    assert simulate(simulated, seed=0) == asyncio.run(real())


def test_an_exception_of_a_callback_fails_the_simulation() -> None:
    async def scenario(world: World) -> None:
        clock = world.machine("node").start().clock
        clock.call_later(0.1, lambda: 1 // 0)
        await clock.sleep(1)

    with pytest.raises(ZeroDivisionError):
        simulate(scenario, seed=1)


@pytest.mark.parametrize("fails", [False, True])
def test_tasks_that_a_scenario_leaves_end_with_the_simulation(*, fails: bool) -> None:
    waiting, unstarted = asyncio.sleep(60), asyncio.sleep(60)

    async def scenario(_world: World) -> None:
        tasks.append(asyncio.ensure_future(waiting))
        await asyncio.sleep(1)
        tasks.append(asyncio.ensure_future(unstarted))
        if fails:
            raise ValueError("planted")

    tasks: list[asyncio.Future[None]] = []
    with pytest.raises(ValueError, match="planted") if fails else contextlib.nullcontext():
        simulate(scenario, seed=1)
    assert [task.cancelled() for task in tasks] == [True, True]
    assert [inspect.getcoroutinestate(one) for one in (waiting, unstarted)] == [inspect.CORO_CLOSED] * 2


def test_a_killed_process_leaves_its_files_and_releases_its_locks() -> None:
    async def scenario(world: World) -> None:
        machine = world.machine("node")
        disk = machine.start().disk
        disk.make_folders("/data")
        disk.lock("/data/.lock")
        file = disk.open("/data/f", create=True)
        file.append([b"unsynced"])
        machine.kill()
        with pytest.raises(OSError, match="node is dead"):
            file.append([b"too late"])
        again = machine.start().disk
        again.lock("/data/.lock")
        assert again.read("/data/f") == b"unsynced"

    simulate(scenario, seed=1)


def test_a_power_loss_leaves_all_synced_bytes_and_a_part_of_the_others() -> None:
    async def scenario(world: World) -> int:
        machine = world.machine("node")
        disk = machine.start().disk
        file = disk.open("/f", create=True)
        disk.sync_folder("/")
        file.append([b"synced"])
        file.sync()
        file.append([b"lost" * 100])
        machine.power_off()
        left = machine.start().disk.read("/f")
        assert left.startswith(b"synced")
        assert (b"synced" + b"lost" * 100).startswith(left.rstrip(b"\0"))
        return len(left)

    lengths = {simulate(scenario, seed=seed) for seed in range(20)}
    assert len(lengths) > 5
    assert lengths <= set(range(6, 407))


def test_a_dead_process_has_no_more_effects() -> None:
    async def scenario(world: World) -> list[str]:
        machine, done = world.machine("node"), list[str]()
        runtime = machine.start()

        async def work() -> None:
            try:
                await runtime.clock.sleep(10)
            finally:
                done.append("unwound")
                runtime.disk.write_atomic("/f", b"")

        runtime.new_tasks("scope").spawn(work(), name="work")
        runtime.clock.call_later(5, lambda: done.append("timer"))
        await runtime.clock.sleep(1)
        machine.kill()
        await asyncio.sleep(20)
        assert not machine.start().disk.exists("/f")
        assert machine.failures == []
        return done

    assert simulate(scenario, seed=1) == ["unwound"]


async def received_around_a_pause(world: World, end_pause: Callable[[Machine], None]) -> tuple[int, int]:
    """Pause a machine that has more to send than the kernels buffer. Return how many bytes the other one has received
    at the end of the pause, and after it."""
    there, here = world.machine("there"), world.machine("here")
    theirs, ours = there.start(), here.start()
    receiver, sender = Peer(), Peer()
    await theirs.network.listen("", 9092, lambda: (receiver.framer, receiver))
    await ours.network.connect("there", 9092, sender.framer, sender, timeout=1)
    sender.connection.send([b"%0999d\n" % number for number in range(1000)])
    here.pause()
    await theirs.clock.sleep(1)
    during = receiver.bytes_received
    end_pause(here)
    await theirs.clock.sleep(1)
    return during, receiver.bytes_received


def test_a_process_continues_to_send_after_a_pause() -> None:
    during, after = simulate(lambda world: received_around_a_pause(world, Machine.resume), seed=1)
    assert during < after == 999 * 1000


def test_a_process_that_is_killed_during_a_pause_sends_nothing_more() -> None:
    during, after = simulate(lambda world: received_around_a_pause(world, Machine.kill), seed=1)
    assert during == after


def test_a_failed_task_ends_its_machines_process() -> None:
    async def scenario(world: World) -> None:
        machine = world.machine("node")
        runtime = machine.start()

        async def work() -> None:
            raise AssertionError("broken invariant")

        runtime.new_tasks("scope").spawn(work(), name="work")
        await asyncio.sleep(0.01)
        assert not machine.alive
        assert [description for description, _ in machine.failures] == ["task scope/work failed"]

    simulate(scenario, seed=1)


def test_a_full_disk_refuses_writes_and_keeps_its_data() -> None:
    async def scenario(world: World) -> None:
        machine = world.machine("node")
        machine.storage.capacity = 10
        disk = machine.start().disk
        file = disk.open("/f", create=True)
        file.append([b"123456"])
        with pytest.raises(OSError) as raised:
            file.append([b"1234", b"5"])
        assert raised.value.errno == errno.ENOSPC
        assert file.size == 6
        assert disk.usage("/") == (10, 4)

    simulate(scenario, seed=1)


def test_a_disk_error_affects_only_its_folder_and_operation() -> None:
    async def scenario(world: World) -> None:
        machine = world.machine("node")
        disk = machine.start().disk
        for folder in ("/one", "/two"):
            disk.make_folders(folder)
        good, bad = disk.open("/one/f", create=True), disk.open("/two/f", create=True)
        machine.storage.fail("/two", errno.EIO, operation="append")
        good.append([b"x"])
        with pytest.raises(OSError):
            bad.append([b"x"])
        bad.sync()
        machine.storage.heal()
        bad.append([b"x"])

    simulate(scenario, seed=1)
