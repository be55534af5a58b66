"""A disk with faults and delays that reports renames, for the folder of a tier in nodes with ``--lab``."""

from __future__ import annotations

from collections.abc import Callable

from milena.runtime.clock import Clock
from milena.runtime.disk import P, T
from milena.runtime.faults.failing_disk import FailingDisk
from milena.runtime.files import RealDisk


class TroubledDisk(FailingDisk):
    """``renamed`` is called with the new path after each rename, in the thread that did it."""

    def __init__(self, threads: int, clock: Clock, renamed: Callable[[str], object]) -> None:
        super().__init__(threads)
        self.delay = 0.0
        """The delay of each offloaded call, in seconds."""
        self.slowed = 0
        """The number of delayed calls."""
        self._clock = clock
        self._renamed = renamed

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.delay:
            self.slowed += 1
            await self._clock.sleep(self.delay)
        return await RealDisk.offload(self, work, *args, **kwargs)

    def exists(self, path: str) -> bool:
        """Raises OSError in a failed folder: the file may exist."""
        self.faults.check(path)
        return super().exists(path)

    def size(self, path: str) -> int:
        self.faults.check(path)
        return super().size(path)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        super().rename(old, new, sync=sync)
        self._renamed(new)
