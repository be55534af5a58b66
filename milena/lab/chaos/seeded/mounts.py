"""The tier's folder is not mounted for a while: brokers find an empty folder in its place, and everything comes back.

Nothing may be lost by it, and nothing may appear in the empty folder. It happens only once segments have been copied:
brokers cannot notice that a tier is missing that was never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from milena.lab.invariants.broken import demand
from milena.lab.world.disk import Storage
from milena.lab.world.tiering import FOLDER
from milena.lab.world.trace import Trace
from milena.lab.world.world import Machine, World
from milena.runtime.randomness import Randomness
from milena.tiered.store.remote_storage import LOG_SUFFIX
from milena.tiered.store.tier_names import ROOT

LONGEST_PAUSE: Final = 8.0
"""Seconds."""
ATTEMPTS: Final = 5
SPREADING: Final = 3.0
"""Seconds after the first copy within which the other brokers learn of it."""
LONGEST_AWAY: Final = 15.0


class MountTroubles:
    """Takes the tier from one of ``brokers``, or from all of them."""

    def __init__(self, world: World, brokers: Sequence[Machine], trace: Trace, random: Randomness) -> None:
        self._world = world
        self._brokers = brokers
        self._trace = trace
        self._random = random

    async def trouble(self, faults: int) -> None:
        for _ in range(faults):
            await asyncio.sleep(self._random.uniform(0, LONGEST_PAUSE))
            await self._unmount()

    async def _unmount(self) -> None:
        for _ in range(ATTEMPTS):
            await asyncio.sleep(SPREADING)
            if self._is_used():
                break
        else:
            self._trace.note("the tier stays mounted: nothing was copied yet")
            return
        await asyncio.sleep(SPREADING)
        chosen = self._brokers if self._random.below(2) else [self._random.choice(self._brokers)]
        empty = Storage(self._random)
        empty.folders[FOLDER] = None
        names = ", ".join(machine.name for machine in chosen)
        self._trace.note(f"the tier is not mounted on {names}")
        for machine in chosen:
            machine.mount_tier(empty)
        await asyncio.sleep(self._random.uniform(0, LONGEST_AWAY))
        for machine in chosen:
            machine.mount_tier(None)
        self._trace.note(f"the tier is mounted again on {names}")
        made = [*empty.files, *(folder for folder in empty.folders if ROOT in folder)]
        demand(not made, "the tier's mount point", f"{made} was made where no tier was mounted, on {names}")

    def _is_used(self) -> bool:
        return any(
            path.startswith(f"{FOLDER}/{ROOT}/") and path.endswith(LOG_SUFFIX) for path in self._world.tier.files
        )
