"""Searches for an order of a register's writes that is consistent with its reads.

Time and memory are linear in the number of writes and reads: the writes that must precede a given one are a prefix of a
list sorted by time, and only the last entry of the prefix that is not in the order yet is needed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from milena.lab.histories.register_events import Read, Write

_NONE: Final = -1


def lasts(writes: Iterable[Write], seen: Mapping[Read, Write]) -> dict[Write, float]:
    """Return for each write the time at which it had taken effect at the latest: it was acknowledged, or read."""
    last = {write: write.ended for write in writes}
    for read, write in seen.items():
        last[write] = min(last[write], read.ended)
    return last


def in_order(writes: Sequence[Write], seen: Mapping[Read, Write]) -> bool:
    """Whether the effective writes can be ordered so that a write precedes all writes that began after it had taken
    effect, and the write that a read returned follows all writes that the node had returned before."""
    effective = {write for write in writes if write.sure} | set(seen.values())
    kept = [write for write in writes if write in effective]
    order = {write: index for index, write in enumerate(writes)}
    last = lasts(writes, seen)
    waits = _Waits(writes, seen)
    free: list[tuple[float, int]] = []
    blocked: dict[Write, list[Write]] = {}

    def enqueue(write: Write) -> None:
        before = waits.before(write)
        if before is None:
            heapq.heappush(free, (write.begun, order[write]))
        else:
            blocked.setdefault(before, []).append(write)

    for write in kept:
        enqueue(write)
    ends = deque(sorted((last[write], order[write]) for write in kept))
    done: set[Write] = set()
    while len(done) < len(kept):
        placed = _next(writes, free, ends, done, waits)
        if placed is None:
            return False
        done.add(placed)
        waits.placed(placed)
        for write in blocked.pop(placed, ()):
            enqueue(write)
    return True


def _next(
    writes: Sequence[Write],
    free: list[tuple[float, int]],
    ends: deque[tuple[float, int]],
    done: Collection[Write],
    waits: _Waits,
) -> Write | None:
    """Return one of the remaining writes that no other remaining write must precede; None if there is none."""
    while free and writes[free[0][1]] in done:
        heapq.heappop(free)
    while writes[ends[0][1]] in done:
        ends.popleft()
    left = ends[0][1]
    for index in (free[0][1] if free else left, left):
        write = writes[index]
        others = next((time for time, other in ends if other != index and writes[other] not in done), inf)
        if write.begun < others and waits.before(write) is None:
            return write
    return None


class _Waits:
    """The writes that must precede each write: if a read returned the write, those that were known before the read
    began, at the reader's node or at any node."""

    def __init__(self, writes: Iterable[Write], seen: Mapping[Read, Write]) -> None:
        effects = [(write.ended, write.node, write) for write in writes if write.sure]
        effects += [(read.ended, read.node, write) for read, write in seen.items()]
        effects.sort(key=lambda known: known[0])
        self._everywhere = _Known([(at, write) for at, _, write in effects])
        at_node: dict[str, list[tuple[float, Write]]] = {}
        for at, node, write in effects:
            if node:
                at_node.setdefault(node, []).append((at, write))
        self._at_node = {node: _Known(known) for node, known in at_node.items()}
        self._needs: dict[Write, dict[_Known, int]] = {}
        for read, write in seen.items():
            known = self._everywhere if read.settled else self._at_node.get(read.node)
            if known is not None:
                needs = self._needs.setdefault(write, {})
                needs[known] = max(needs.get(known, 0), known.until(read.begun))

    def before(self, write: Write) -> Write | None:
        """Return a write that must precede ``write`` and is not in the order yet; None if there is none."""
        for known, count in self._needs.get(write, {}).items():
            found = known.left(count, write)
            if found is not None:
                return found
        return None

    def placed(self, write: Write) -> None:
        self._everywhere.placed(write)
        for known in self._at_node.values():
            known.placed(write)


class _Known:
    """The writes that were known at a node, or at any node, sorted by the time from which on they were known."""

    def __init__(self, known: Sequence[tuple[float, Write]]) -> None:
        self._times = [at for at, _ in known]
        self._writes = [write for _, write in known]
        self._left = list(range(len(known)))
        """A union-find structure: for each entry, itself if its write is not in the order yet, else an earlier
        entry."""
        self._entries: dict[Write, list[int]] = {}
        for index, write in enumerate(self._writes):
            self._entries.setdefault(write, []).append(index)

    def until(self, at: float) -> int:
        """Return the number of entries at this time."""
        return bisect_right(self._times, at)

    def placed(self, write: Write) -> None:
        for index in self._entries.get(write, ()):
            self._left[index] = index - 1

    def left(self, count: int, but: Write) -> Write | None:
        """Return the last of the first ``count`` entries whose write is not in the order yet and is not ``but``."""
        index = self._up_to(count - 1)
        while index != _NONE and self._writes[index] is but:
            index = self._up_to(index - 1)
        return None if index == _NONE else self._writes[index]

    def _up_to(self, index: int) -> int:
        """Return the last entry up to ``index`` whose write is not in the order yet. The path to it is compressed."""
        found = index
        while found != _NONE and self._left[found] != found:
            found = self._left[found]
        while index > found:
            self._left[index], index = found, self._left[index]
        return found
