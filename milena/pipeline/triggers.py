"""How much a trigger of a stream reads, by the rules of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from milena.pipeline.position import Ends
from milena.protocol.types import TopicPartition


class Delay:
    """Delays triggers until enough records can be read (options ``minOffsetsPerTrigger`` and ``maxTriggerDelay``). The
    first trigger of a query is never delayed."""

    def __init__(self, longest: float, clock: Callable[[], float]) -> None:
        """``longest``: the maximum delay in seconds; ``clock``: returns the time in seconds."""
        self._longest = longest
        self._clock = clock
        self._last: float | None = None
        """When the last trigger was not delayed."""

    def is_due(self, unread: int, least: int) -> bool:
        """Whether a trigger reads: ``unread`` offsets can be read, and there should be at least ``least``."""
        now = self._clock()
        if self._last is not None and now - self._last < self._longest and unread < least:
            return False
        self._last = now
        return True


def unread(starts: Mapping[TopicPartition, int], ends: Ends) -> int:
    """Return how many offsets are between ``starts`` and ``ends``."""
    return sum(max(0, end - starts[place]) for place, end in ends.items())


def limited(starts: Mapping[TopicPartition, int], ends: Ends, most: int) -> Ends:
    """Return the end offsets of a micro-batch with at most ``most`` offsets, which are divided in proportion to the
    unread offsets of each partition, as in Spark."""
    left = {place: max(0, end - starts[place]) for place, end in ends.items()}
    total = sum(left.values())
    if total <= most:
        return ends
    found = {place: starts[place] + most * count // total for place, count in left.items()}
    spare = most - sum(found[place] - starts[place] for place in found)
    for place in sorted(left, key=lambda one: (-left[one], one)):
        if spare and found[place] < ends[place]:
            found[place] += 1
            spare -= 1
    return found
