"""A disk that fails, is slow in everything, and tells what appears on it: the lab's, for a folder tier."""

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
        """Seconds that each offloaded work waits before it begins."""
        self.slowed = 0
        """Works that have waited so."""
        self._clock = clock
        self._renamed = renamed

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.delay:
            self.slowed += 1
            await self._clock.sleep(self.delay)
        return await RealDisk.offload(self, work, *args, **kwargs)

    def exists(self, path: str) -> bool:
        """Raises OSError where it fails: what cannot be looked at is not absent."""
        self.faults.check(path)
        return super().exists(path)

    def size(self, path: str) -> int:
        self.faults.check(path)
        return super().size(path)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        super().rename(old, new, sync=sync)
        self._renamed(new)
