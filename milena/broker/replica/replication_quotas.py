"""Replication throttles: how many bytes per second a broker spends on the replicas that are named as throttled (KIP-73,
KIP-113).

There are three quotas: of a leader towards its followers, of a follower, and of moves between log directories. A
replica that is out of sync waits while the quota is exceeded; the traffic of in-sync replicas counts, but never waits.
Differs from Kafka: without a limit nothing is counted, which costs nothing.
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
    """Bytes per second over ``samples`` samples of ``window`` seconds each, as Kafka's SimpleRate counts them."""

    __slots__ = ("_clock", "_samples", "_window", "limit")

    def __init__(self, clock: Clock, *, samples: int, window: float) -> None:
        self.limit: int | None = None
        """Bytes per second; None for no limit."""
        self._clock = clock
        self._window = window
        self._samples: deque[list[float]] = deque(maxlen=samples)
        """The start and the bytes of each sample."""

    def record(self, size: int) -> None:
        now = self._clock.monotonic()
        if not self._samples or now - self._samples[-1][0] >= self._window:
            self._samples.append([now, 0])
        self._samples[-1][1] += size

    def rate(self) -> float:
        """The time since the first sample counts as at least one whole window."""
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

    def wait(self, most: float) -> float:
        """Seconds until the rate falls to the limit if nothing is added, at most ``most``."""
        if self.limit is None or not self.exceeded:
            return 0.0
        total = sum(size for _, size in self._samples)
        needed = total / self.limit if self.limit else most
        return min(most, max(0.0, needed - (self._clock.monotonic() - self._samples[0][0])))


class ReplicaQuota(Quota):
    """A quota for those replicas of this broker that their topics name as throttled, for one side."""

    __slots__ = ("_key", "_side")

    def __init__(
        self, clock: Clock, side: Literal["leader", "follower"], node_id: int, *, samples: int, window: float
    ) -> None:
        super().__init__(clock, samples=samples, window=window)
        self._side = side
        self._key = f":{node_id}"

    def throttles(self, partition: Partition) -> bool:
        """Whether its topic's ``{side}.replication.throttled.replicas`` names this broker's replica, or all."""
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
    """All three of a broker."""

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
        """Take the limits of a changed configuration."""
        for quota, key in (
            (self.leader, "leader.replication.throttled.rate"),
            (self.follower, "follower.replication.throttled.rate"),
            (self.moves, "replica.alter.log.dirs.io.max.bytes.per.second"),
        ):
            limit = config.get_int(key)
            quota.limit = None if limit == MAX_LONG else limit
