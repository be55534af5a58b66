"""Replication quotas: the bytes per second that a broker sends to and fetches for throttled replicas, and copies
between log directories (KIP-73, KIP-113).

There are three quotas: for the leaders' replies, for the followers' fetches, and for moves between log directories. An
out-of-sync replica waits while the quota is exceeded; the traffic of in-sync replicas counts, but is never delayed.
Differs from Kafka: without a limit nothing is counted.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from milena.broker.replica.partition import Partition
from milena.config.node_config import NodeConfig
from milena.config.values import MAX_LONG
from milena.node.metrics import Metrics
from milena.runtime.clock import Clock

ALL: Final = "*"


class Quota:
    """A limit for a rate in bytes per second, measured over ``samples`` samples of ``window`` seconds each, like
    Kafka's SimpleRate."""

    __slots__ = ("_clock", "_samples", "_window", "limit")

    def __init__(self, clock: Clock, *, samples: int, window: float) -> None:
        self.limit: int | None = None
        """Bytes per second; None for no limit."""
        self._clock = clock
        self._window = window
        self._samples: deque[list[float]] = deque(maxlen=samples)
        """The start and the bytes of each sample."""

    def record(self, size: int) -> None:
        """Count ``size`` bytes."""
        now = self._clock.monotonic()
        if not self._samples or now - self._samples[-1][0] >= self._window:
            self._samples.append([now, 0])
        self._samples[-1][1] += size

    def rate(self) -> float:
        """Bytes per second since the first sample, whose age counts as at least one whole window."""
        now, samples = self._clock.monotonic(), self._samples
        assert samples.maxlen is not None
        while samples and now - samples[0][0] >= samples.maxlen * self._window:
            samples.popleft()
        if not samples:
            return 0.0
        return sum(size for _, size in samples) / max(now - samples[0][0], self._window)

    @property
    def exceeded(self) -> bool:
        return self.limit is not None and self.rate() > self.limit

    def wait(self, maximum: float) -> float:
        """Seconds until the rate falls to the limit if nothing is recorded, at most ``maximum``."""
        if self.limit is None or not self.exceeded:
            return 0.0
        total = sum(size for _, size in self._samples)
        needed = total / self.limit if self.limit else maximum
        return min(maximum, max(0.0, needed - (self._clock.monotonic() - self._samples[0][0])))


class ReplicaQuota(Quota):
    """A quota for the throttled replicas of this broker, as leaders or as followers."""

    __slots__ = ("_key", "_side")

    def __init__(
        self, clock: Clock, side: Literal["leader", "follower"], node_id: int, *, samples: int, window: float
    ) -> None:
        super().__init__(clock, samples=samples, window=window)
        self._side = side
        self._key = f":{node_id}"

    def throttles(self, partition: Partition) -> bool:
        """Whether the topic's ``{side}.replication.throttled.replicas`` contains this broker's replica, or all."""
        if self.limit is None or partition.log is None:
            return False
        config = partition.log.config
        named = (
            config.leader_replication_throttled_replicas
            if self._side == "leader"
            else config.follower_replication_throttled_replicas
        )
        return bool(named) and (ALL in named or f"{partition.index}{self._key}" in named)


class ReplicationQuotas:
    """The three quotas of a broker, with their metrics."""

    def __init__(self, clock: Clock, config: NodeConfig, metrics: Metrics) -> None:
        number, window = (
            config.get_int("replication.quota.window.num"),
            config.get_int("replication.quota.window.size.seconds"),
        )
        node = config.node_id
        self.leader: Final = ReplicaQuota(clock, "leader", node, samples=number, window=window)
        self.follower: Final = ReplicaQuota(clock, "follower", node, samples=number, window=window)
        self.moves: Final = Quota(
            clock,
            samples=config.get_int("alter.log.dirs.replication.quota.window.num"),
            window=config.get_int("alter.log.dirs.replication.quota.window.size.seconds"),
        )
        for name, quota in (
            ("leaderreplication", self.leader),
            ("followerreplication", self.follower),
            ("alterlogdirsreplication", self.moves),
        ):
            metrics.gauge(f"kafka_server_{name}_byte_rate", quota.rate, "Bytes a second under a replication throttle.")
        self.update(config)

    def update(self, config: NodeConfig) -> None:
        """Apply the limits of a changed configuration."""
        for quota, key in (
            (self.leader, "leader.replication.throttled.rate"),
            (self.follower, "follower.replication.throttled.rate"),
            (self.moves, "replica.alter.log.dirs.io.max.bytes.per.second"),
        ):
            limit = config.get_int(key)
            quota.limit = None if limit == MAX_LONG else limit
