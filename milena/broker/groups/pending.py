"""Member ids that were sent to clients and not used in a JoinGroup yet (KIP-394)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

MAX_PENDING: Final = 10_000
"""The most pending ids of a shard. Beyond this number the oldest id is removed: clients rejoin immediately."""
_MIN_REMOVED: Final = 16
"""Removed ids that the heap may have before it is rebuilt."""


class PendingMembers:
    """The pending ids of one group, with the time (ms) at which each expires. The cost of each method but ``clear``
    does not grow with the number of ids."""

    __slots__ = ("_group_id", "_ids", "_of_shard", "_times")

    def __init__(self, group_id: str, of_shard: dict[str, str]) -> None:
        """``of_shard``: the pending ids of all groups of the shard, oldest first, with their group ids. All groups of
        the shard share it."""
        self._group_id = group_id
        self._of_shard = of_shard
        self._ids: dict[str, int] = {}
        self._times: list[tuple[int, str]] = []
        """A heap of (expiration, id). A removed id stays in it until it would expire, or until most entries are
        removed ids."""

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, member_id: str, expires_ms: int) -> None:
        self._ids[member_id] = expires_ms
        self._of_shard[member_id] = self._group_id
        heappush(self._times, (expires_ms, member_id))

    def discard(self, member_id: str) -> bool:
        """Remove an id. Returns whether it was pending."""
        if self._ids.pop(member_id, None) is None:
            return False
        self._of_shard.pop(member_id, None)
        if len(self._times) > 2 * len(self._ids) + _MIN_REMOVED:
            self._times = [(expires_ms, pending_id) for pending_id, expires_ms in self._ids.items()]
            heapify(self._times)
        return True

    def clear(self) -> None:
        for member_id in list(self._ids):
            self.discard(member_id)

    def expire(self, now_ms: int) -> bool:
        """Remove all expired ids. Returns whether there were any."""
        before = len(self._ids)
        while (expires_ms := self.next_expiration_ms()) is not None and expires_ms <= now_ms:
            self.discard(heappop(self._times)[1])
        return len(self._ids) < before

    def next_expiration_ms(self) -> int | None:
        """When the next id expires; None without ids."""
        while self._times and self._ids.get(self._times[0][1]) != self._times[0][0]:
            heappop(self._times)
        return self._times[0][0] if self._times else None
