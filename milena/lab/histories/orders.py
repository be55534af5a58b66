"""Whether the writes of a register have an order that explains what was read.

Time and memory grow with the number of writes and reads, not with its square: what must precede a write is the
beginning of a list by time, and only its last entry that has no place yet is looked for.
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
    """The latest time at which each write had taken effect: it was acknowledged, or read."""
    last = {write: write.ended for write in writes}
    for read, write in seen.items():
        last[write] = min(last[write], read.ended)
    return last


def in_order(writes: Sequence[Write], seen: Mapping[Read, Write]) -> bool:
    """Whether the effective writes have an order: a write precedes all that began after it had taken effect, and the
    write that a read saw follows all that the reader's node had returned before."""
    effective = {write for write in writes if write.sure} | set(seen.values())
    kept = [write for write in writes if write in effective]
    order = {write: index for index, write in enumerate(writes)}
    last = lasts(writes, seen)
    waits = _Waits(writes, seen)
    free: list[tuple[float, int]] = []
    blocked: dict[Write, list[Write]] = {}

    def look(write: Write) -> None:
        before = waits.before(write)
        if before is None:
            heapq.heappush(free, (write.begun, order[write]))
        else:
            blocked.setdefault(before, []).append(write)

    for write in kept:
        look(write)
    ends = deque(sorted((last[write], order[write]) for write in kept))
    done: set[Write] = set()
    while len(done) < len(kept):
        placed = _next(writes, free, ends, done, waits)
        if placed is None:
            return False
        done.add(placed)
        waits.placed(placed)
        for write in blocked.pop(placed, ()):
            look(write)
    return True


def _next(
    writes: Sequence[Write],
    free: list[tuple[float, int]],
    ends: deque[tuple[float, int]],
    done: Collection[Write],
    waits: _Waits,
) -> Write | None:
    """One of the remaining writes that none of the others must precede."""
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
    """Which writes must precede each one: those that were known, at a reader's node or anywhere, when the reader asked
    that saw it."""

    def __init__(self, writes: Iterable[Write], seen: Mapping[Read, Write]) -> None:
        told = [(write.ended, write.node, write) for write in writes if write.sure]
        told += [(read.ended, read.node, write) for read, write in seen.items()]
        told.sort(key=lambda known: known[0])
        self._everywhere = _Known([(at, write) for at, _, write in told])
        at_node: dict[str, list[tuple[float, Write]]] = {}
        for at, node, write in told:
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
        """One that must precede ``write`` and has no place yet."""
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
    """What was known at a node, or anywhere, by the time since when it was."""

    def __init__(self, known: Sequence[tuple[float, Write]]) -> None:
        self._times = [at for at, _ in known]
        self._writes = [write for _, write in known]
        self._left = list(range(len(known)))
        """For each entry the last one up to it, or an earlier one on the way there, whose write has no place yet."""
        self._entries: dict[Write, list[int]] = {}
        for index, write in enumerate(self._writes):
            self._entries.setdefault(write, []).append(index)

    def until(self, at: float) -> int:
        """How many entries there were at this time."""
        return bisect_right(self._times, at)

    def placed(self, write: Write) -> None:
        for index in self._entries.get(write, ()):
            self._left[index] = index - 1

    def left(self, count: int, but: Write) -> Write | None:
        """The last of the first ``count`` entries that has no place yet and is not ``but``."""
        index = self._up_to(count - 1)
        while index != _NONE and self._writes[index] is but:
            index = self._up_to(index - 1)
        return None if index == _NONE else self._writes[index]

    def _up_to(self, index: int) -> int:
        """The last entry up to this one whose write has no place yet; the way there is shortened."""
        found = index
        while found != _NONE and self._left[found] != found:
            found = self._left[found]
        while index > found:
            self._left[index], index = found, self._left[index]
        return found
