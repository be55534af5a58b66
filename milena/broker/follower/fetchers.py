"""All fetchers of a broker, like Kafka's ReplicaFetcherManager: each followed partition is assigned to one of the
``num.replica.fetchers`` fetchers of its leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from milena.broker.follower.aux_builder import AuxBuilder
from milena.broker.follower.fetch_states import FetchState
from milena.broker.follower.fetcher import Fetcher, FetcherContext
from milena.broker.follower.follower_state import FollowerState
from milena.broker.follower.leader_link import AskEnds, LeaderLink, LinkSettings
from milena.broker.follower.transition_log import TransitionLog
from milena.broker.replica.partition import Partition
from milena.broker.replica.replication_quotas import ReplicaQuota
from milena.config.node_config import NodeConfig
from milena.node.metadata.image import MetadataImage
from milena.node.metrics import Metrics
from milena.protocol.errors import KafkaError
from milena.protocol.records.hashing import java_string_hash
from milena.protocol.types import BrokerEpoch, NodeId
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.tiered.shared.tier import Tier

_BYTES_IN: Final = "kafka_server_brokertopicmetrics_replicationbytesinpersec_total"
_LAG: Final = "kafka_server_fetcherlagmetrics_consumerlag"


class Fetchers:
    """Creates, assigns and stops fetchers. All methods are synchronous."""

    def __init__(
        self,
        runtime: Runtime,
        tasks: Tasks,
        config: NodeConfig,
        metrics: Metrics,
        *,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], BrokerEpoch | None],
        quota: ReplicaQuota,
        ask_ends: AskEnds | None = None,
    ) -> None:
        """``broker_epoch``: returns this broker's current epoch, which is sent with each fetch (KIP-903).
        ``ask_ends``: as in ``LeaderLink``."""
        self.tier: Tier | None = None
        """The tier, for followers that start there; None without one."""
        self.transitions: Final = TransitionLog(runtime.clock, keeps=runtime.lab)
        self._runtime = runtime
        self._tasks = tasks
        self._node_id = NodeId(config.node_id)
        self._listener = config.inter_broker_listener
        self._settings = LinkSettings.of(config)
        self._per_leader = config.get_int("num.replica.fetchers")
        self._metrics = metrics
        self._image = image
        self._broker_epoch = broker_epoch
        self._ask_ends = ask_ends
        self._context = FetcherContext(
            self._settings,
            runtime.clock,
            runtime.contained,
            metrics.counter(_BYTES_IN, "Bytes appended that leaders sent."),
            quota,
            self._topic_id_of,
        )
        self._fetchers: dict[tuple[NodeId, int], Fetcher] = {}
        self._assignments: dict[tuple[str, int], tuple[FollowerState, Fetcher]] = {}
        self._closed = False
        self._log = get_logger("fetchers", node=config.node_id)
        self._register_gauges()

    # -- followers

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader, or stop fetching if it has none or is offline. If the partition is already
        fetched in its leader epoch, nothing changes; if it has failed in that epoch, it stays failed."""
        leader = partition.leader
        if leader is None or partition.log is None or self._closed:
            self.unfollow(partition)
            return
        assigned = self._assignments.get((partition.topic, partition.index))
        if assigned is not None:
            assigned_follower, fetcher = assigned
            if assigned_follower.partition is partition and assigned_follower.is_current and fetcher.leader == leader:
                return
        try:
            follower = FollowerState(partition, self.transitions)
        except KafkaError as error:
            self._log.error("cannot follow", topic=partition.topic, partition=partition.index, reason=error.message)
            self.unfollow(partition)
            return
        fetcher = self._fetcher(leader, self._fetcher_id(partition))
        self._remove(partition, kept=fetcher)
        self._assignments[partition.topic, partition.index] = follower, fetcher
        fetcher.add(follower)
        labels = {"topic": partition.topic, "partition": str(partition.index)}
        self._metrics.gauge(
            _LAG, lambda: follower.lag, "Records up to the leader's high watermark.", clientid=fetcher.name, **labels
        )

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition, if it is fetched: it leads, has no leader, is offline or was removed."""
        self._remove(partition, kept=None)

    def log_start_moved(self, partition: Partition) -> None:
        """Let the next fetch report a follower's new log start."""
        assigned = self._assignments.get((partition.topic, partition.index))
        if assigned is not None:
            assigned[1].log_start_changed(assigned[0])

    def log_synced(self, partition: Partition) -> None:
        """Fetch again for a follower that waits for a sync of its log."""
        assigned = self._assignments.get((partition.topic, partition.index))
        if assigned is not None:
            assigned[1].log_synced(assigned[0])

    def resize(self, per_leader: int) -> None:
        """Reassign all partitions after a change of ``num.replica.fetchers``."""
        if per_leader == self._per_leader:
            return
        self._per_leader = per_leader
        moving = [follower.partition for follower, _ in self._assignments.values()]
        for partition in moving:
            self.unfollow(partition)
        for partition in moving:
            self.follow(partition)

    def close(self) -> None:
        """Stop all fetchers. ``follow`` does nothing from now on."""
        self._closed = True
        self._assignments.clear()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()

    def _remove(self, partition: Partition, *, kept: Fetcher | None) -> None:
        assigned = self._assignments.pop((partition.topic, partition.index), None)
        if assigned is None:
            return
        follower, fetcher = assigned
        fetcher.remove(follower)
        self._metrics.remove(_LAG, clientid=fetcher.name, topic=partition.topic, partition=str(partition.index))
        if not fetcher.members and fetcher is not kept:
            fetcher.stop()
            self._fetchers = {key: other for key, other in self._fetchers.items() if other is not fetcher}

    def _fetcher_id(self, partition: Partition) -> int:
        """The fetcher id of a partition (AbstractFetcherManager.getFetcherId)."""
        mixed = (31 * java_string_hash(partition.topic) + partition.index) & 0xFFFF_FFFF
        signed = mixed - (1 << 32) if mixed >= 1 << 31 else mixed
        return (0 if signed == -(1 << 31) else abs(signed)) % self._per_leader

    def _fetcher(self, leader: NodeId, number: int) -> Fetcher:
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            name, link = f"ReplicaFetcherThread-{number}-{leader}", self._link(leader, f"fetcher-{number}")
            aux = AuxBuilder(self._link(leader, f"fetcher-{number}-aux"), lambda: self.tier)
            fetcher = Fetcher(name, leader, link, aux, self._context)
            self._fetchers[leader, number] = fetcher
            fetcher.start(self._tasks)
        return fetcher

    def _link(self, leader: NodeId, purpose: str) -> LeaderLink:
        return LeaderLink(
            self._runtime,
            self._node_id,
            f"broker-{self._node_id}-{purpose}",
            self._settings,
            address=lambda: self._address(leader),
            metadata_version=lambda: self._image().metadata_version,
            broker_epoch=self._broker_epoch,
            ask_ends=self._ask_ends,
        )

    def _address(self, leader: NodeId) -> tuple[str, int] | None:
        broker = self._image().brokers.get(leader)
        return None if broker is None else broker.address(self._listener)

    def _topic_id_of(self, name: str) -> UUID | None:
        topic = self._image().topics.get(name)
        return None if topic is None else topic.id

    # -- inspection

    def state_of(self, topic: str, index: int) -> str:
        """The name of a followed partition's fetch state; "" if it is not followed."""
        assigned = self._assignments.get((topic, index))
        return "" if assigned is None else assigned[0].state.value

    def describe_partition(self, topic: str, index: int) -> dict[str, object] | None:
        """The state of one followed partition; None if it is not followed."""
        assigned = self._assignments.get((topic, index))
        if assigned is None:
            return None
        follower, fetcher = assigned
        return {
            "state": follower.state.value,
            "paused": follower.paused,
            "offset": follower.log.log_end_offset,
            "leader": fetcher.leader,
            "leader_epoch": follower.leader_epoch,
            "last_fetched_epoch": follower.log.epochs.latest,
            "lag": follower.lag,
            "fetcher": fetcher.name,
        }

    def describe(self) -> list[dict[str, object]]:
        """For each followed partition: topic, partition, state, offset, leader, lag."""
        return [
            {"topic": topic, "partition": index, **(self.describe_partition(topic, index) or {})}
            for topic, index in sorted(self._assignments)
        ]

    @property
    def followers(self) -> Iterable[FollowerState]:
        """The followers of all partitions that are fetched."""
        return (follower for follower, _ in self._assignments.values())

    def _register_gauges(self) -> None:
        manager, gauge = "kafka_server_replicafetchermanager", self._metrics.gauge
        client = {"clientid": "Replica"}
        gauge(
            f"{manager}_maxlag",
            lambda: max((follower.lag for follower in self.followers), default=0),
            "The largest lag of a followed partition, in records.",
            **client,
        )
        gauge(
            f"{manager}_minfetchrate",
            lambda: min((fetcher.rate.per_second() for fetcher in self._fetchers.values()), default=0.0),
            "Fetches per second of the slowest fetcher.",
            **client,
        )
        gauge(
            f"{manager}_failedpartitionscount",
            lambda: sum(follower.state is FetchState.FAILED for follower in self.followers),
            "Partitions that are not fetched until the metadata has another leader epoch.",
            **client,
        )
        gauge(
            f"{manager}_deadthreadcount",
            lambda: sum(fetcher.died for fetcher in self._fetchers.values()),
            "Fetchers that have ended with an error.",
            **client,
        )
        self._metrics.gauge_of_each(
            "milena_follower_partitions", self._partitions_by_state, "Followed partitions by the state of the follower."
        )

    def _partitions_by_state(self) -> list[tuple[dict[str, str], float]]:
        counts = Counter(follower.state for follower in self.followers)
        return [({"state": state.value}, counts[state]) for state in FetchState]
