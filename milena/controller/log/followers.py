"""Who fetches the metadata log, and how far each has come: what DescribeQuorum tells of brokers (KIP-595, KIP-836)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.protocol.types import NodeId, Offset

FORGET_AFTER_MS: Final = 300_000
"""An observer that has not fetched for so long is none any more."""


@dataclass(slots=True)
class Follower:
    """One observer. Times are ms since 1970; offset and times are -1 as long as nothing is known."""

    id: NodeId
    directory: UUID
    end_offset: int = -1
    fetched_ms: int = -1
    caught_up_ms: int = -1
    _leader_end_then: int = -1

    def fetched(self, offset: Offset, *, leader_end: Offset, now_ms: int) -> None:
        """It has everything below ``offset``. Caught up is who has what the leader had when it last asked."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self._leader_end_then <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self._leader_end_then = leader_end
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


class Followers:
    """All observers of one epoch of the leader."""

    def __init__(self) -> None:
        self._followers: dict[tuple[int, UUID], Follower] = {}

    def fetched(self, id: int, directory: UUID, offset: Offset, *, leader_end: Offset, now_ms: int) -> None:
        """A fetch came from a node; consumers (below 0) do not count."""
        if id < 0:
            return
        key = (id, directory)
        follower = self._followers.get(key)
        if follower is None:
            follower = self._followers[key] = Follower(NodeId(id), directory)
        follower.fetched(offset, leader_end=leader_end, now_ms=now_ms)

    def present(self, now_ms: int) -> Iterator[Follower]:
        """Those that fetched lately, by id. The others are forgotten."""
        for key in sorted(self._followers):
            follower = self._followers[key]
            if now_ms - follower.fetched_ms >= FORGET_AFTER_MS:
                del self._followers[key]
            else:
                yield follower
