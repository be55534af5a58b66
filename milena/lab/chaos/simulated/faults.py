"""Faults that only the simulation can inject: failing operations of disks, flipped bits, slow links, and damage to the
objects of the tier."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from milena.lab.chaos.faults import Kind, Step
from milena.lab.chaos.simulated.flipped_bytes import FlippedBytes
from milena.lab.chaos.simulated.tier_faults import TierFaults
from milena.lab.cluster import CONTROLLER_ID, SimulatedCluster, host_of
from milena.runtime.randomness import Randomness

ERRORS: Final = (errno.EIO, errno.ENOSPC)
OPERATIONS: Final = ("append", "sync", "open", "rename", "write", "")


class SimulatedFaults:
    """``machine_of`` returns the machine of a node, ``start`` starts a node. ``disks``: the log directories of a
    broker, the last one with its metadata. ``controller_disk``: the controller's. ``spared``: topics of which no object
    is lost for good."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        machine_of: Callable[[int], str],
        start: Callable[[int], Awaitable[None]],
        note: Callable[[str], object],
        random: Randomness,
        *,
        disks: Sequence[str],
        controller_disk: str,
        spared: Sequence[str] = (),
    ) -> None:
        assert cluster.watch is not None
        rules = cluster.watch.tier
        self._cluster = cluster
        self._machine_of = machine_of
        self._start = start
        self._note = note
        self._random = random
        self._disks = disks
        self._tier = TierFaults(cluster.world.tier, rules.away, rules.lost, note, random, spared)
        self._flips = FlippedBytes(cluster, note, random, of_brokers=disks[-1], of_controller=controller_disk)

    async def inject(self, step: Step) -> Callable[[], Awaitable[None]]:
        """Return what mends the fault."""
        match step.kind:
            case Kind.DISK_ERRORS:
                return self._fail_disks(step.nodes[0])
            case Kind.FLIPPED_BIT:
                return await self._flip(step.nodes[0])
            case Kind.SLOW_LINK:
                return self._slow_down(step)
            case _:
                mend_tier = self._tier.inject(step.kind)

        async def mend() -> None:
            mend_tier()

        return mend

    def _fail_disks(self, broker: int) -> Callable[[], Awaitable[None]]:
        """One directory fails, sometimes all."""
        number, operation = self._random.choice(ERRORS), self._random.choice(OPERATIONS)
        failing = self._disks if not self._random.below(4) else [self._random.choice(self._disks)]
        storage = self._cluster.world.machine(host_of(broker)).storage
        for disk in failing:
            what = operation or "everything"
            self._note(f"{disk} of {host_of(broker)} fails: {what}, {errno.errorcode[number]}")
            storage.fail(disk, number, operation=operation)

        async def mend() -> None:
            storage.heal()
            await self._cluster.kill(host_of(broker))
            await self._start(broker)

        return mend

    async def _flip(self, node: int) -> Callable[[], Awaitable[None]]:
        await self._cluster.kill(self._machine_of(node))
        if node != CONTROLLER_ID:
            self._flips.flip_in_broker(node)
            return lambda: self._start(node)
        start_damaged = self._flips.flip_in_controller()

        async def mend() -> None:
            if not await start_damaged():
                await self._start(node)

        return mend

    def _slow_down(self, step: Step) -> Callable[[], Awaitable[None]]:
        fabric = self._cluster.world.fabric
        one, other = map(self._machine_of, step.nodes)
        fabric.slow(one, other, step.amount)

        async def mend() -> None:
            fabric.heal(one, other)

        return mend
