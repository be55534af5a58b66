"""Writes appear whole or not at all, wherever between two operations on the folder a copy or a deletion stops."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from milena.lab.world.world import World, simulate
from milena.runtime.context import Runtime
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import RemoteStorageError
from milena.tiered.store.tier_names import parse_object
from tests.unit.tiered.tier_folder import FOLDER, complete, contents, everything, files, numbered

Step = Callable[[LocalTier, Runtime], Coroutine[Any, Any, None]]
Stop = Callable[[World], None]
OTHER, IT = 0, 1
NEVER = 1 << 30


async def copy(tier: LocalTier, runtime: Runtime) -> None:
    await tier.copy(numbered(IT), files(runtime.disk, IT))


async def delete(tier: LocalTier, _runtime: Runtime) -> None:
    await tier.delete(numbered(IT))


def look(world: World) -> None:
    """Any broker may list the folder at this moment."""
    found: dict[int, dict[str, bytes]] = {}
    for path, inode in world.tier.files.items():
        parsed = parse_object(path.rpartition("/")[2])
        if parsed is not None:
            found.setdefault(parsed.id.int, {})[parsed.suffix] = bytes(inode.data)
    for number, objects in found.items():
        assert ".log" not in objects or objects == contents(number)


class Stopped(OSError):
    """Where the test wanted it."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, os.strerror(errno.EIO))


def fails_for_good(world: World) -> None:
    world.tier.fail("/", errno.EIO)


def fails_once(world: World) -> None:
    """The next operation goes well again."""


def kills_the_broker(world: World) -> None:
    world.machine("broker").kill()


def loses_power(world: World) -> None:
    """The broker, and the folder's disk."""
    world.machine("broker").power_off()
    world.tier.lose_power()


def play(step: Step, stop: Stop, at: int, *, before: tuple[int, ...], seed: int = 1) -> int:
    """Stop before the operation ``at``, or after the last, look at what is left, and do it again. Returns how many
    operations there were in ``step``, which is done where the segments ``before`` are there."""
    count = 0

    async def run(world: World) -> None:
        nonlocal count

        def operation(_name: str, _path: str) -> None:
            nonlocal count
            look(world)
            count += 1
            if count == at + 1:
                stop(world)
                raise Stopped

        machine = world.machine("broker")
        runtime = machine.start()
        tier = LocalTier(runtime, FOLDER, "1")
        await tier.start()
        for number in before:
            await tier.copy(numbered(number), files(runtime.disk, number))
        world.tier.before = operation
        did = await ended(step(tier, runtime))
        if at == count:
            stop(world)
        world.tier.before = lambda _name, _path: None
        world.tier.heal()
        look(world)
        if not machine.alive:
            await machine.wait_ended()
            runtime = machine.start()
            tier = LocalTier(runtime, FOLDER, "1")
            await tier.start()
        whole = await complete(tier)
        assert set(before) - {IT} <= set(whole)
        if did:
            assert (IT in whole) == (step is copy)
        await step(tier, runtime)
        assert await complete(tier) == [*(number for number in before if number != IT), *([IT] if step is copy else [])]
        await tier.sweep_incomplete(numbered(IT).partition, ())
        look(world)
        objects = [path for path in everything(runtime.tier_disk) if "milena-copying" not in path]
        assert len(objects) == sum(len(contents(number)) for number in await complete(tier))

    simulate(run, seed=seed)
    return count


async def ended(work: Awaitable[object]) -> bool:
    """Whether it was done; a broker that was killed does not hear of it."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=60)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        return False
    if isinstance(task.exception(), RemoteStorageError | Stopped):
        return False
    await task
    return True


PLACES = {
    "the first copy of a partition": (copy, ()),
    "a copy beside another": (copy, (OTHER,)),
    "a copy that is repeated": (copy, (OTHER, IT)),
    "a deletion": (delete, (OTHER, IT)),
    "a deletion of the last": (delete, (IT,)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("stop", [fails_for_good, fails_once, kills_the_broker], ids=lambda stop: stop.__name__)
def test_a_segment_is_seen_whole_or_not_at_all_wherever_its_work_stops(stop: Stop, place: str) -> None:
    step, before = PLACES[place]
    operations = play(step, stop, NEVER, before=before)
    assert operations > 5
    for at in range(operations + 1):
        play(step, stop, at, before=before)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seed", range(6))
def test_nor_is_half_of_one_left_by_a_loss_of_power(seed: int, place: str) -> None:
    step, before = PLACES[place]
    for at in range(play(step, loses_power, NEVER, before=before) + 1):
        play(step, loses_power, at, before=before, seed=seed)


def test_the_other_objects_are_synced_by_name_before_the_log_has_its_own() -> None:
    """Not every file system keeps the order of renamings."""

    async def run(world: World) -> None:
        runtime = world.machine("broker").start()
        tier = LocalTier(runtime, FOLDER, "1")
        await tier.start()
        done: list[tuple[str, str]] = []
        world.tier.before = lambda operation, path: done.append((operation, path.rpartition("/")[2]))
        await copy(tier, runtime)
        world.tier.before = lambda _operation, _path: None
        at = done.index(("rename", "log"))
        [home] = runtime.tier_disk.list(f"{FOLDER}/kafka-tiered-storage")
        assert [done[at - 1], done[at + 1]] == [("sync", home)] * 2
        assert [operation for operation, _ in done[: at - 1]].count("rename") == len(contents(IT)) - 1

    simulate(run, seed=1)
