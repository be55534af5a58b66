"""The observers of the metadata log and their log end offsets, for DescribeQuorum (KIP-595, KIP-836)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.protocol.types import NodeId, Offset

FORGET_AFTER_MS: Final = 300_000
"""A node that has not fetched for this long is no longer an observer."""


@dataclass(slots=True)
class Follower:
    """One observer. Times are ms since 1970; offset and times are -1 while unknown."""

    id: NodeId
    directory: UUID
    end_offset: int = -1
    fetched_ms: int = -1
    caught_up_ms: int = -1
    _leader_end_then: int = -1

    def fetched(self, offset: Offset, *, leader_end: Offset, now_ms: int) -> None:
        """Record a fetch from ``offset``. The observer is caught up if ``offset`` reaches the leader's log end at its
        previous fetch (KIP-836)."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self._leader_end_then <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self._leader_end_then = leader_end
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


class Followers:
    """All observers in one leader epoch."""

    def __init__(self) -> None:
        self._followers: dict[tuple[int, UUID], Follower] = {}

    def fetched(self, id: int, directory: UUID, offset: Offset, *, leader_end: Offset, now_ms: int) -> None:
        """Record a fetch by a node; fetches of consumers (ids below 0) are ignored."""
        if id < 0:
            return
        key = (id, directory)
        follower = self._followers.get(key)
        if follower is None:
            follower = self._followers[key] = Follower(NodeId(id), directory)
        follower.fetched(offset, leader_end=leader_end, now_ms=now_ms)

    def present(self, now_ms: int) -> Iterator[Follower]:
        """Return the nodes that fetched recently, by id. The others are removed."""
        for key in sorted(self._followers):
            follower = self._followers[key]
            if now_ms - follower.fetched_ms >= FORGET_AFTER_MS:
                del self._followers[key]
            else:
                yield follower
