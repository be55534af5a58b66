"""Member ids that were given to members that have not rejoined with them yet (KIP-394)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

MOST_PENDING: Final = 10_000
"""The most pending ids of a shard. A member rejoins at once, so beyond this number the oldest id is dropped."""
_FEW: Final = 16


class PendingMembers:
    """The pending ids of one group, with the time (ms) at which each expires. The cost of a request does not grow with
    their number."""

    __slots__ = ("_among", "_group_id", "_ids", "_times")

    def __init__(self, group_id: str, among: dict[str, str]) -> None:
        """``among`` has the pending ids of all groups of the shard in the order in which they were given out, with
        their groups."""
        self._group_id = group_id
        self._among = among
        self._ids: dict[str, int] = {}
        self._times: list[tuple[int, str]] = []
        """A heap. A removed id stays in it until it would expire, or until most entries are of removed ids."""

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, member_id: str, lapses_ms: int) -> None:
        self._ids[member_id] = lapses_ms
        self._among[member_id] = self._group_id
        heappush(self._times, (lapses_ms, member_id))

    def discard(self, member_id: str) -> bool:
        """Remove an id. Returns whether it was pending."""
        if self._ids.pop(member_id, None) is None:
            return False
        self._among.pop(member_id, None)
        if len(self._times) > 2 * len(self._ids) + _FEW:
            self._times = [(lapses_ms, left) for left, lapses_ms in self._ids.items()]
            heapify(self._times)
        return True

    def clear(self) -> None:
        for member_id in list(self._ids):
            self.discard(member_id)

    def lapse(self, now_ms: int) -> bool:
        """Remove all expired ids. Returns whether there were any."""
        before = len(self._ids)
        while (lapses_ms := self.next_ms()) is not None and lapses_ms <= now_ms:
            self.discard(heappop(self._times)[1])
        return len(self._ids) < before

    def next_ms(self) -> int | None:
        """When the next id expires."""
        while self._times and self._ids.get(self._times[0][1]) != self._times[0][0]:
            heappop(self._times)
        return self._times[0][0] if self._times else None
