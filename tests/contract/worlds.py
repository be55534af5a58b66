"""Runs a scenario on the real and on the simulated adapters of the ports of the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from milena.lab.world.world import Machine, World, simulate
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime
from milena.runtime.tcp.sockets import TcpNetwork

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The argument of a scenario: a runtime, and what the scenario needs beside it."""

    runtime: Runtime
    folder: str
    """An empty folder on the disk."""
    failures: list[tuple[str, BaseException | None]]
    """The failures that were reported to ``Runtime.fatal``."""
    machine: Machine | None
    """None in the real world."""
    endings: list[Callable[[], object]] = field(default_factory=list)

    def ending(self, *calls: Callable[[], object]) -> None:
        """Register functions to be called after the scenario."""
        self.endings.extend(calls)

    async def end(self) -> None:
        for call in self.endings:
            call()
        await asyncio.sleep(0)


Scenario = Callable[[Surroundings], Coroutine[Any, Any, None]]
World_ = Callable[[Scenario, Path], None]


async def play(scenario: Scenario, surroundings: Surroundings) -> None:
    try:
        await scenario(surroundings)
    finally:
        await surroundings.end()


def on_asyncio(scenario: Scenario, folder: Path) -> None:
    _really(asyncio.new_event_loop, scenario, folder, use_sendfile=True)


def on_uvloop(scenario: Scenario, folder: Path) -> None:
    _really(uvloop.new_event_loop, scenario, folder, use_sendfile=True)


def without_sendfile(scenario: Scenario, folder: Path) -> None:
    _really(asyncio.new_event_loop, scenario, folder, use_sendfile=False)


def simulated(scenario: Scenario, _folder: Path) -> None:
    async def run(world: World) -> None:
        machine = world.machine("node")
        runtime = machine.start()
        for disk in (runtime.disk, runtime.tier_disk):
            disk.make_folders("/data")
        await play(scenario, Surroundings(runtime, "/data", machine.failures, machine))

    simulate(run, seed=1)


def _really(
    new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Scenario, folder: Path, *, use_sendfile: bool
) -> None:
    async def run() -> None:
        errors: list[Mapping[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
        failures: list[tuple[str, BaseException | None]] = []
        runtime = real_runtime(lambda description, error: failures.append((description, error)))
        runtime = replace(runtime, network=TcpNetwork(runtime.clock, use_sendfile=use_sendfile))
        await play(scenario, Surroundings(runtime, str(folder), failures, None))
        for disk in (runtime.disk, runtime.tier_disk):
            assert isinstance(disk, RealDisk)
            disk.close()
        assert not errors, errors

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def on(*worlds: World_) -> Callable[[Scenario], Callable[[World_, Path], None]]:
    """A decorator that makes a scenario one test for each world."""

    def decorate(scenario: Scenario) -> Callable[[World_, Path], None]:
        @pytest.mark.parametrize("world", worlds, ids=lambda world: world.__name__)
        def test(world: World_, tmp_path: Path) -> None:
            world(scenario, tmp_path)

        test.__name__ = test.__qualname__ = scenario.__name__
        test.__module__ = scenario.__module__
        return test

    return decorate


in_both_worlds = on(on_asyncio, simulated)
on_all_networks = on(on_asyncio, on_uvloop, without_sendfile, simulated)
