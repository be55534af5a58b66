"""The state of a follower as its leader knows it from the fetches, like Kafka's ReplicaState (docs/kafka-semantics.md:
Follower fetch state; KIP-903).

A fetch of an incremental session counts as progress for every partition of the session, but idle partitions are not
processed: a follower that had everything when its partition was last read still had everything at the session's last
fetch. So a state reads the times of fetches from the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, final

from milena.protocol.types import BrokerEpoch, NodeId, Offset

NEVER: Final = -(1 << 62)
"""A time (ms) before all others."""
UNKNOWN: Final = Offset(-1)
NO_EPOCH: Final = BrokerEpoch(-1)
"""The broker epoch of a follower that fetches with a version below 15. It is not checked."""


@dataclass(slots=True)
class FetchTimes:
    """The times of a session's last fetch and of the previous one, in milliseconds of the monotonic clock."""

    last_ms: int = NEVER
    previous_ms: int = NEVER

    def note(self, now_ms: int) -> None:
        self.previous_ms, self.last_ms = self.last_ms, now_ms


class SessionPartition(Protocol):
    """A partition in a fetch. ``fetch_times`` are those of its session; None if it belongs to none."""

    @property
    def fetch_times(self) -> FetchTimes | None: ...


@final
class FollowerFetch:
    """A follower's fetch of one partition, after the leader has read for it."""

    __slots__ = (
        "broker_epoch", "leader_end", "log_start", "named_leader_epoch", "node", "now_ms", "offset",
        "session_partition",
    )  # fmt: skip

    def __init__(
        self,
        node: NodeId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start: Offset,
        leader_end: Offset,
        now_ms: int,
        session_partition: SessionPartition | None = None,
        named_leader_epoch: bool = False,
    ) -> None:
        self.node = node
        self.broker_epoch = broker_epoch
        """NO_EPOCH if the request has none."""
        self.offset = offset
        """The fetch offset: the follower has everything before it."""
        self.log_start = log_start
        self.leader_end = leader_end
        """The leader's log end offset when it read for this fetch."""
        self.now_ms = now_ms
        self.session_partition = session_partition
        self.named_leader_epoch = named_leader_epoch
        """Whether the request has a leader epoch."""


class ReplicaState:
    """A follower's offsets, times and broker epoch. Times are milliseconds of the monotonic clock."""

    __slots__ = (
        "_caught_up_ms",
        "_fetched_ms",
        "_leader_end",
        "_session_partition",
        "broker_epoch",
        "log_end",
        "log_start",
    )

    def __init__(self, *, now_ms: int, in_sync: bool) -> None:
        """A member of the ISR counts as caught up at the start of the leadership."""
        self.log_end = UNKNOWN
        self.log_start = UNKNOWN
        self.broker_epoch: BrokerEpoch | None = None
        """The broker epoch of its fetches; None before the first one, NO_EPOCH if they have none."""
        self._leader_end = UNKNOWN
        """The leader's log end offset at the last fetch."""
        self._fetched_ms = NEVER
        self._caught_up_ms = now_ms if in_sync else NEVER
        self._session_partition: SessionPartition | None = None

    def reset(self, *, now_ms: int, in_sync: bool, leader_end: Offset) -> None:
        """Reset the times for a new leader epoch of the same leader (Replica.resetReplicaState). Offsets stay."""
        self._leader_end = leader_end
        self._fetched_ms = self._caught_up_ms = now_ms if in_sync else NEVER
        self._session_partition = None

    def fetched(self, fetch: FollowerFetch) -> None:
        """Apply a fetch (Replica.updateFetchStateOrThrow).

        A new incarnation counts as never caught up, so that the high watermark does not wait for it; Kafka keeps the
        time of the previous incarnation."""
        broker_epoch, leader_end, now_ms, session_partition = (
            fetch.broker_epoch,
            fetch.leader_end,
            fetch.now_ms,
            fetch.session_partition,
        )
        offset = fetch.offset
        if self.broker_epoch is not None and broker_epoch > self.broker_epoch >= 0:
            self._caught_up_ms = self._fetched_ms = NEVER
            self._session_partition, self._leader_end = None, UNKNOWN
        if offset >= leader_end:
            self._caught_up_ms = max(self.caught_up_ms, now_ms)
        # It has everything that the leader had at the previous fetch, so it was caught up at that time.
        elif offset >= self._leader_end:
            self._caught_up_ms = max(self._caught_up_ms, self._last_fetch_before(session_partition))
        self._leader_end = max(self._leader_end, leader_end)
        self._fetched_ms = now_ms
        self._session_partition = session_partition
        self.log_end = offset
        self.log_start = fetch.log_start
        self.broker_epoch = broker_epoch

    def _last_fetch_before(self, session_partition: SessionPartition | None) -> int:
        """The time of this follower's fetch before the current one, which may not have named the partition."""
        times = None if self._session_partition is None else self._session_partition.fetch_times
        if times is None:
            return self._fetched_ms
        return max(
            self._fetched_ms, times.previous_ms if self._session_partition is session_partition else times.last_ms
        )

    @property
    def caught_up_ms(self) -> int:
        """The last time at which the follower is known to have had all of the leader's records."""
        fetch_times = None if self._session_partition is None else self._session_partition.fetch_times
        if fetch_times is None or self.log_end < self._leader_end:
            return self._caught_up_ms
        return max(self._caught_up_ms, fetch_times.last_ms)

    def is_caught_up(self, leader_end: Offset, now_ms: int, lag_ms: int) -> bool:
        """Whether the follower has all records, or had them within the last ``lag_ms``
        (``replica.lag.time.max.ms``)."""
        return self.log_end == leader_end or now_ms - self.caught_up_ms <= lag_ms
