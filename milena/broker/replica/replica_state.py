"""What a leader knows of one follower from its fetches (docs/kafka-semantics.md: Follower fetch state, KIP-903).

Fetches of an incremental session name only what has changed, and idle partitions are not visited. Still, each fetch
counts for all partitions of the session: a follower that had everything when its partition was last read still had
everything at the session's last fetch. So the times of a state are read through the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, final

from milena.protocol.types import BrokerEpoch, NodeId, Offset

NEVER: Final = -(1 << 62)
"""Earlier than any time (ms)."""
UNKNOWN: Final = Offset(-1)
NO_EPOCH: Final = BrokerEpoch(-1)
"""The epoch of a follower that fetches below v15: it is not checked."""


@dataclass(slots=True)
class Visits:
    """The times of a session's last fetch and of the one before. Milliseconds of the monotonic clock."""

    last_ms: int = NEVER
    before_ms: int = NEVER

    def note(self, now_ms: int) -> None:
        self.before_ms, self.last_ms = self.last_ms, now_ms


class Visited(Protocol):
    """A partition in a fetch. ``visits`` are those of its session while the partition is in one, else None."""

    @property
    def visits(self) -> Visits | None: ...


@final
class FollowerFetch:
    """What a follower's fetch tells its leader about one partition."""

    __slots__ = (
        "broker_epoch", "leader_end", "log_start", "named_leader_epoch", "node", "now_ms", "offset", "visited",
    )  # fmt: skip

    def __init__(
        self,
        node: NodeId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start: Offset,
        leader_end: Offset,
        now_ms: int,
        visited: Visited | None = None,
        named_leader_epoch: bool = False,
    ) -> None:
        self.node = node
        self.broker_epoch = broker_epoch
        """NO_EPOCH if the request names none."""
        self.offset = offset
        """The follower has everything before it."""
        self.log_start = log_start
        self.leader_end = leader_end
        """The leader's log end offset when it read for this fetch."""
        self.now_ms = now_ms
        self.visited = visited
        self.named_leader_epoch = named_leader_epoch
        """Whether the request named a leader epoch."""


class ReplicaState:
    """A follower's offsets, times and broker epoch. All times in milliseconds of the monotonic clock."""

    __slots__ = ("_caught_up_ms", "_fetched_ms", "_leader_end", "_visited", "broker_epoch", "log_end", "log_start")

    def __init__(self, *, now_ms: int, in_sync: bool) -> None:
        """A member of the ISR counts as caught up when its leader takes office."""
        self.log_end = UNKNOWN
        self.log_start = UNKNOWN
        self.broker_epoch: BrokerEpoch | None = None
        """The epoch that it fetches with; None before its first fetch, NO_EPOCH if it sends none."""
        self._leader_end = UNKNOWN
        """The leader's log end offset at the last fetch."""
        self._fetched_ms = NEVER
        self._caught_up_ms = now_ms if in_sync else NEVER
        self._visited: Visited | None = None

    def renew(self, *, now_ms: int, in_sync: bool, leader_end: Offset) -> None:
        """The same leader continues in a new leader epoch: times start again, offsets stay."""
        self._leader_end = leader_end
        self._fetched_ms = self._caught_up_ms = now_ms if in_sync else NEVER
        self._visited = None

    def fetched(self, fetch: FollowerFetch) -> None:
        """Take the values of its fetch.

        A new incarnation has not been caught up before (Kafka counts it as caught up, and the high watermark may wait
        for it)."""
        broker_epoch, leader_end, now_ms, visited = fetch.broker_epoch, fetch.leader_end, fetch.now_ms, fetch.visited
        offset = fetch.offset
        if self.broker_epoch is not None and broker_epoch > self.broker_epoch >= 0:
            self._caught_up_ms = self._fetched_ms = NEVER
            self._visited, self._leader_end = None, UNKNOWN
        if offset >= leader_end:
            self._caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end:
            self._caught_up_ms = max(self._caught_up_ms, self._last_fetch_before(visited))
        self._leader_end = max(self._leader_end, leader_end)
        self._fetched_ms = now_ms
        self._visited = visited
        self.log_end = offset
        self.log_start = fetch.log_start
        self.broker_epoch = broker_epoch

    def _last_fetch_before(self, visited: Visited | None) -> int:
        """The time of the fetch before the one being handled."""
        known = None if self._visited is None else self._visited.visits
        if known is None:
            return self._fetched_ms
        return max(self._fetched_ms, known.before_ms if self._visited is visited else known.last_ms)

    @property
    def caught_up_ms(self) -> int:
        """The last time at which it is known to have had all of the leader's records."""
        visits = None if self._visited is None else self._visited.visits
        if visits is None or self.log_end < self._leader_end:
            return self._caught_up_ms
        return max(self._caught_up_ms, visits.last_ms)

    def is_caught_up(self, leader_end: Offset, now_ms: int, lag_ms: int) -> bool:
        """Whether it has all records, or had them within the last ``lag_ms`` (``replica.lag.time.max.ms``)."""
        return self.log_end == leader_end or now_ms - self.caught_up_ms <= lag_ms
