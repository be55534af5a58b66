"""Faults at random: nodes are killed, stopped and lose power, links are cut, disks fail; all comes back in the end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final

from lab.cluster import CONTROLLER, NodeEnded, SimulatedCluster, host_of
from lab.history import History
from lab.trace import Trace
from runtime.randomness import Randomness

LONGEST_DOWN: Final = 4.0
LONGEST_CUT: Final = 12.0
"""Seconds; longer than a broker's session."""
DISK_OPERATIONS: Final = ("append", "sync", "open", "rename", "write", "")
START_ATTEMPTS: Final = 5


class Nemesis:
    """One fault of nodes and one of links at a time."""

    def __init__(
        self, cluster: SimulatedCluster, history: History, trace: Trace, random: Randomness, disks: tuple[str, ...]
    ) -> None:
        """``disks``: the brokers' log directories that may fail."""
        self._cluster = cluster
        self._world = cluster.world
        self._history = history
        self._trace = trace
        self._random = random
        self._disks = disks
        self._brokers = list(cluster.brokers)
        self._node_faults: tuple[Callable[[], Awaitable[None]], ...] = (
            self._kill_broker,
            self._cut_power_of_broker,
            self._stop_broker,
            self._fail_disk,
            self._kill_controller,
            self._cut_power_of_controller,
        )

    async def trouble_nodes(self, faults: int) -> None:
        for _ in range(faults):
            await self._pause(2)
            await self._random.choice(self._node_faults)()

    async def trouble_links(self, faults: int) -> None:
        for _ in range(faults):
            await self._pause(4)
            broker = host_of(self._random.choice(self._brokers))
            other = self._random.choice((CONTROLLER, "client"))
            self._trace.note(f"the link between {broker} and {other} is cut")
            self._world.fabric.cut(broker, other)
            await self._pause(LONGEST_CUT)
            self._trace.note(f"the link between {broker} and {other} is whole")
            self._world.fabric.heal(broker, other)

    async def _pause(self, longest: float) -> None:
        await asyncio.sleep(self._random.uniform(0, longest))

    async def _kill_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        self._trace.note(f"{host_of(broker)} is killed")
        await self._cluster.kill(host_of(broker))
        await self._bring_back(broker)

    async def _cut_power_of_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        self._trace.note(f"{host_of(broker)} loses power")
        self._history.power_losses.append((self._world.loop.time(), broker))
        await self._cluster.lose_power(host_of(broker))
        await self._bring_back(broker)

    async def _stop_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        self._trace.note(f"{host_of(broker)} is stopped in order")
        try:
            await self._cluster.stop_broker(broker)
        except NodeEnded as error:
            self._trace.note(str(error))
        await self._bring_back(broker)

    async def _fail_disk(self) -> None:
        """One directory fails, now and then both; in the end the disk is mended, and the broker starts again."""
        broker = self._random.choice(self._brokers)
        storage = self._world.machine(host_of(broker)).storage
        number = self._random.choice((errno.EIO, errno.ENOSPC))
        operation = self._random.choice(DISK_OPERATIONS)
        failing = self._disks if not self._random.below(4) else (self._random.choice(self._disks),)
        for disk in failing:
            what = operation or "everything"
            self._trace.note(f"{disk} of {host_of(broker)} fails: {what}, {errno.errorcode[number]}")
            storage.fail(disk, number, operation=operation)
        await self._pause(LONGEST_CUT)
        self._trace.note(f"the disks of {host_of(broker)} are mended")
        storage.heal()
        await self._cluster.kill(host_of(broker))
        await self._bring_back(broker)

    async def _kill_controller(self) -> None:
        self._trace.note("the controller is killed")
        await self._cluster.kill(CONTROLLER)
        await self._bring_back(None)

    async def _cut_power_of_controller(self) -> None:
        self._trace.note("the controller loses power")
        await self._cluster.lose_power(CONTROLLER)
        await self._bring_back(None)

    async def _bring_back(self, broker: int | None) -> None:
        await self._pause(LONGEST_DOWN)
        machine = CONTROLLER if broker is None else host_of(broker)
        for _ in range(START_ATTEMPTS):
            self._trace.note(f"{machine} starts")
            try:
                if broker is None:
                    await self._cluster.start_controller()
                else:
                    await self._cluster.start_broker(broker)
            except NodeEnded as error:
                self._trace.note(str(error))
            else:
                self._trace.note(f"{machine} serves")
                return
            await self._pause(LONGEST_DOWN)
        raise NodeEnded(f"{machine} did not come back in {START_ATTEMPTS} attempts")
