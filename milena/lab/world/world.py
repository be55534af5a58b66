"""The environment of a simulated cluster in one process: machines with disks, a network, one clock, one seed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

from milena.lab.world.disk import SimulatedDisk, Storage
from milena.lab.world.life import Life, SimulatedClock
from milena.lab.world.loop import SimulatedLoop
from milena.lab.world.network import Fabric, SimulatedNetwork
from milena.runtime.containment import Containment
from milena.runtime.context import Runtime
from milena.runtime.randomness import Randomness
from milena.runtime.tasks import TaskScope

T = TypeVar("T")

_RARE_COLLECTIONS: Final = (100_000, 20, 100)
"""Thresholds of the garbage collector: it finds little here, and with the default ones takes a sixth of the time."""


class Machine:
    """A host with a disk, which runs one node's process at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.storage = Storage(world.random)
        self.failures: list[tuple[str, BaseException | None]] = []
        """The errors that ended its processes: broken invariants."""
        self._world = world
        self._tier: Storage | None = None
        """The storage that this machine uses in place of the world's tier; None without one."""
        self._tier_disk: SimulatedDisk | None = None
        self._clock: SimulatedClock | None = None
        self._skew_ms = 0
        self._life: Life | None = None
        self._scopes: list[TaskScope] = []

    @property
    def alive(self) -> bool:
        return self._life is not None and self._life.alive

    def start(self) -> Runtime:
        """Start a process, and return its ports. Its host name is the machine's name."""
        assert not self.alive, f"{self.name} is running"
        world = self._world
        life = self._life = Life(self.name)
        self._scopes = []
        world.fabric.power_on(self.name)
        clock = self._clock = SimulatedClock(world.loop, life)
        clock.skew_ms = self._skew_ms

        def new_tasks(name: str) -> TaskScope:
            scope = TaskScope(name, fatal, contained)
            self._scopes.append(scope)
            return scope

        def fatal(description: str, error: BaseException | None) -> None:
            if life.alive:
                self.failures.append((description, error))
                self.kill()

        contained = Containment(clock, fatal)
        random, disk_random = (Randomness(world.random.below(1 << 62)) for _ in range(2))
        self._tier_disk = SimulatedDisk(self._tier or world.tier, clock, disk_random, life)
        return Runtime(
            clock=clock,
            random=random,
            network=SimulatedNetwork(world.fabric, life),
            disk=SimulatedDisk(self.storage, clock, disk_random, life),
            tier_disk=self._tier_disk,
            new_tasks=new_tasks,
            contained=contained,
            fatal=fatal,
            lab=True,
        )

    def kill(self) -> None:
        """End the process as by SIGKILL: written data is kept, peers see its connections closed."""
        self._end(self._world.fabric.end_process)

    def pause(self) -> None:
        """Stop the process as by SIGSTOP: its kernel still accepts data."""
        assert self._life is not None
        self._life.paused = True

    def resume(self) -> None:
        """Continue the process as by SIGCONT."""
        assert self._life is not None
        self._life.resume()

    def jump_clock(self, seconds: float) -> None:
        """Set the wall clock ahead by ``seconds``, or back, also for the next process; 0 ends it."""
        self._skew_ms = int(seconds * 1000)
        if self._clock is not None:
            self._clock.skew_ms = self._skew_ms

    def time_ms(self) -> int:
        """Return the wall clock of its process in ms."""
        assert self._clock is not None
        return self._clock.time_ms()

    def mount_tier(self, storage: Storage | None) -> None:
        """Let this machine use another storage as its tier; None: the one that the others use. Open files keep
        theirs."""
        self._tier = storage
        if self._tier_disk is not None:
            self._tier_disk.storage = storage or self._world.tier

    def power_off(self) -> None:
        """Cut the power: unsynced bytes are lost, peers receive nothing."""
        self._end(self._world.fabric.lose_power)
        self.storage.lose_power()

    def _end(self, leave_network: Callable[[Life], None]) -> None:
        if self._life is None or not self._life.alive:
            return
        self._life.alive = False
        self._life.resume()  # the process is dead, so its pending work has no effect
        leave_network(self._life)
        for scope in self._scopes:
            scope.cancel()

    async def wait_ended(self) -> None:
        """Wait until the tasks of the ended process have unwound."""
        for scope in self._scopes:
            await scope.stop()


class World:
    """The machines, network and clock of one simulated run; created by ``simulate``."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.random = Randomness(seed)
        self.fabric = Fabric(loop, self.random)
        self.machines: dict[str, Machine] = {}
        self.tier = Storage(self.random)
        """The disk of the tier, shared by all machines. It has no power losses."""

    def machine(self, name: str) -> Machine:
        """Return the machine with this name, which is created on first use."""
        if name not in self.machines:
            self.machines[name] = Machine(self, name)
            self.fabric.power_on(name)
        return self.machines[name]

    def digest(self) -> str:
        """Return a digest of everything that the network has delivered, with times. It is the same in each run of a
        seed."""
        return self.fabric.digest.hexdigest()


def simulate(scenario: Callable[[World], Coroutine[object, object, T]], *, seed: int) -> T:
    """Run a scenario to its end in virtual time; what it has started ends with it. Raises its exceptions, those of
    callbacks, and ``Stalled``."""
    loop = SimulatedLoop()
    world = World(loop, seed)
    thresholds = gc.get_threshold()
    gc.set_threshold(*_RARE_COLLECTIONS)
    try:
        task = loop.create_task(scenario(world), name="scenario")
        try:
            result = loop.run_until_complete(task)
        finally:
            loop.after_event = None
            if not task.done():  # an event has violated an invariant
                task.cancel()
                loop.run_until_complete(asyncio.wait((task,)))
            loop.run_until_complete(_end(world))
    finally:
        gc.set_threshold(*thresholds)
        loop.close()
    for context in loop.errors:
        raise context.get("exception") or RuntimeError(context["message"])
    return result


async def _end(world: World) -> None:
    for machine in world.machines.values():
        machine.kill()
        await machine.wait_ended()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
