"""Faults of the simulated tier: its disk fails or is full, and single objects are missing or truncated, for a while or
for good."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Collection
from typing import Final

from milena.lab.histories.faults import Kind
from milena.lab.world.disk import Storage
from milena.lab.world.tiering import FOLDER
from milena.runtime.randomness import Randomness
from milena.tiered.store.tier_names import ROOT

OPERATIONS: Final = ("open", "append", "sync", "rename", "read", "list", "remove", "write", "")
"""The steps of a copy: it writes beside its final folder (open, append, sync), then moves its objects there (rename,
sync)."""
ERRORS: Final = (errno.EIO, errno.EACCES, errno.ENOSPC)
WRITING: Final = ("append", "rename", "remove", "write")
"""The operations that a read-only folder rejects, beside opening new files."""
LOSABLE: Final = (".log", ".log", ".leader_epoch_checkpoint", ".snapshot", ".index", ".timeindex")
"""The suffix of an object that is lost for good is one of these, at random."""


class TierFaults:
    """Injects faults into the simulated disk of the tier. ``away`` gets the paths of objects that cannot be read now:
    they return, so no committed record may be lost by it. Those in ``lost`` never return; topics in ``spared`` lose
    nothing for good: it is unknown which keys a lost object of a compacted topic had."""

    def __init__(
        self,
        storage: Storage,
        away: dict[str, None],
        lost: dict[str, None],
        note: Callable[[str], object],
        random: Randomness,
        spared: Collection[str] = (),
    ) -> None:
        self._storage = storage
        self._away = away
        self._lost = lost
        self._note = note
        self._random = random
        self._spared = tuple(f"{FOLDER}/{ROOT}/{topic}-" for topic in spared)

    def inject(self, kind: Kind) -> Callable[[], object]:
        """Return what mends the fault."""
        match kind:
            case Kind.TIER_ERRORS:
                return self._fail()
            case Kind.TIER_FULL:
                return self._refuse_writes()
            case Kind.MISSING_OBJECTS:
                return self._lose_objects()
            case _:
                self._lose_for_good()
                return lambda: None

    def _fail(self) -> Callable[[], object]:
        number, operation = self._random.choice(ERRORS), self._random.choice(OPERATIONS)
        self._note(f"the tier fails: {operation or 'everything'}, {errno.errorcode[number]}")
        self._storage.fail(FOLDER, number, operation=operation)
        return self._storage.heal

    def _refuse_writes(self) -> Callable[[], object]:
        """The tier is full, immediately or soon, or read-only."""
        if self._random.below(2):
            self._note("the tier is read-only")
            for operation in WRITING:
                self._storage.fail(FOLDER, errno.EROFS, operation=operation)
        else:
            free = self._random.below(10_000)
            self._note(f"the tier has {free} free bytes")
            self._storage.capacity = self._storage.used() + free

        def mend() -> None:
            self._storage.capacity = None
            self._storage.heal()

        return mend

    def _lose_objects(self) -> Callable[[], object]:
        """Some objects are missing, others truncated, like a store that was reset to an earlier time; then they are
        restored."""
        chosen = self._random.shuffled(self._objects(""))[: 1 + self._random.below(6)]
        mending = [self._cut(path) if self._random.below(2) else self._take(path) for path in chosen]
        self._away.update(dict.fromkeys(chosen))

        def mend() -> None:
            for path, mend_one in zip(chosen, mending, strict=True):
                mend_one()
                del self._away[path]
            self._note(f"{len(chosen)} objects in the tier are restored")

        return mend

    def _lose_for_good(self) -> None:
        """Lose one object of a segment in the tier, an old one or the newest, on which followers depend."""
        suffix = self._random.choice(LOSABLE)
        every = [
            path
            for path in self._objects(suffix)
            if f"{_segment(path)}.log" in self._storage.files and not path.startswith(self._spared)
        ]
        if every:
            path = self._random.choice(every)
            if self._random.below(2):
                path = max(other for other in every if posixpath.dirname(other) == posixpath.dirname(path))
            self._lost[path] = None
            self._note("the next loss is permanent")
            if self._random.below(2) and self._storage.files[path].data:
                self._cut(path)
            else:
                self._take(path)

    def _objects(self, suffix: str) -> list[str]:
        """The paths of all objects in the tier with this suffix."""
        return [path for path in self._storage.files if path.startswith(f"{FOLDER}/{ROOT}/") and path.endswith(suffix)]

    def _cut(self, path: str) -> Callable[[], None]:
        inode = self._storage.files[path]
        size = self._random.below(len(inode.data)) if inode.data else 0
        self._note(f"{path} is truncated to {size} bytes")
        lost = inode.data[size:]
        del inode.data[size:]

        def mend() -> None:
            inode.data += lost

        return mend

    def _take(self, path: str) -> Callable[[], None]:
        """The last object of a segment is truncated instead: without any, it would be taken for a deleted one."""
        segment = _segment(path)
        if not any(other.startswith(segment) for other in self._storage.files if other != path):
            return self._cut(path)
        self._note(f"{path} is removed")
        inode = self._storage.files.pop(path)

        def mend() -> None:
            """Restore the object, unless the segment was deleted meanwhile."""
            if any(other.startswith(segment) for other in self._storage.files):
                self._storage.files.setdefault(path, inode)

        return mend


def _segment(path: str) -> str:
    """The common part of the paths of a segment's objects."""
    return path.rpartition(".")[0]
