"""A broker: creates its parts, and starts and stops them in order (Kafka's BrokerServer).

Start: listen (connections wait), lock and read the log directories, register with the controller and follow the
metadata, load the logs, apply the image, request to be unfenced, serve. Stop: controlled shutdown (the broker serves
until it is granted), accept no connections, complete waiting operations, flush and close the logs, unlock the
directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from milena.broker.apis.table import broker_apis, unstable_versions
from milena.broker.controller_link.auto_create import AutoCreation
from milena.broker.controller_link.controller_link import ControllerLink
from milena.broker.controller_link.lifecycle import (
    CONTROLLED_SHUTDOWN_TIMEOUT,
    IN_KAFKA,
    BrokerState,
    Lifecycle,
    Registration,
    advertised_listeners,
    supported_features,
)
from milena.broker.controller_link.producer_ids import ProducerIds
from milena.broker.follower.fetchers import Fetchers
from milena.broker.follower.leader_link import AskEnds
from milena.broker.gauges import register_gauges
from milena.broker.group_wiring import group_coordinator
from milena.broker.hosting.applier import Applier, Coordinator, PartitionServices, RoleServices
from milena.broker.hosting.config_store import ConfigStore
from milena.broker.hosting.directory_assigner import DirectoryAssigner
from milena.broker.hosting.log_mover import LogMover
from milena.broker.metadata.answer_cache import AnswerCache
from milena.broker.metadata.current_metadata import CurrentMetadata
from milena.broker.metadata.metadata_source import MetadataSource, SharedLog, SharedMetadata
from milena.broker.metadata.own_changes import OwnChanges
from milena.broker.replica.expected_followers import ExpectedFollowers
from milena.broker.replica.fetch_sessions import FetchSessions
from milena.broker.replica.isr_proposals import IsrProposals
from milena.broker.replica.meters import BrokerMeters, IsrMeters
from milena.broker.replica.partition import Partition
from milena.broker.replica.partitions import PartitionSet
from milena.broker.replica.replication import Replication
from milena.broker.replica.replication_quotas import ReplicationQuotas
from milena.broker.transaction_wiring import transaction_parts
from milena.broker.waiting.purgatory import Purgatory
from milena.config.node_config import NodeConfig
from milena.config.tiered_rules import compacts_tier
from milena.config.values import ConfigError
from milena.node.api import ApiTable
from milena.node.metadata.image import Delta, MetadataImage
from milena.node.metrics import Metrics
from milena.node.rules.rules import Rules, uuid_namer
from milena.node.serving.server import Server, ServerLimits
from milena.protocol.schemas.api_versions import ApiVersionsAnswers
from milena.protocol.schemas.registry import Role
from milena.protocol.types import OFFSETS_TOPIC, TRANSACTION_TOPIC, ZERO_UUID, NodeId
from milena.runtime.context import Runtime
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from milena.storage.log.context import Log
from milena.storage.manager.log_dir import LogDir
from milena.storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from uuid import UUID

    from milena.broker.reading.remote_reads import RemoteReads
    from milena.node.serving.lab_commands import LabCommands
    from milena.tiered.work.tier_manager import RemoteLogManager


class Broker:
    """One broker. The API modules get it as ``node``."""

    ask_ends: AskEnds | None = None
    """As in ``LeaderLink``; set by test peers."""

    def __init__(
        self,
        runtime: Runtime,
        config: NodeConfig,
        *,
        metrics: Metrics | None = None,
        rules: Rules | None = None,
        apis: ApiTable | None = None,
        shared: Callable[[], SharedLog] | None = None,
        cluster_id: str | None = None,
        incarnation: UUID | None = None,
    ) -> None:
        """``shared`` returns the metadata log of the controller in the same process, once it has started.
        ``cluster_id``: the cluster that this broker must belong to; None for any. ``incarnation``: that of a snapshot,
        with which the broker keeps its epoch and its place in every ISR; None for a new one. Disk and network are not
        used before ``listen``."""
        self.ready = False
        """Whether the broker serves requests: it has been unfenced, and is not stopping."""
        self.runtime = runtime
        self.node_id = NodeId(config.node_id)
        self.metrics = metrics or Metrics()
        self.purgatory = Purgatory(runtime.clock, runtime.contained)
        self._metadata = CurrentMetadata()
        self.partitions = PartitionSet(self._metadata.image)
        self.configs = ConfigStore(config, self._metadata.image, self.partitions)
        self.configs.on_change(self._config_changed)
        self.meters = BrokerMeters(self.metrics)
        self.quotas = ReplicationQuotas(runtime.clock, config, self.metrics)
        self.sessions = self._new_fetch_sessions(config)
        self.metadata_answers = AnswerCache()
        self.api_versions = self._new_api_versions(config)
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.selects_replicas = config.get_str_or_none("replica.selector.class") is not None
        self.logs = self._new_log_manager(config)
        name_of = uuid_namer(lambda: self.image.topics_by_id)
        self.rules = rules or Rules(runtime.clock, name_of, runtime.random, self.sessions.partitions_of)
        self.server = self._new_server(config, self.rules, apis or broker_apis(config))
        work = self.scheduler = self.server.dispatcher.scheduler
        self._tasks = runtime.new_tasks(f"broker {self.node_id}")
        self._shared = shared
        self._required_cluster = cluster_id
        self._resumes = incarnation is not None
        self.incarnation = incarnation
        """The incarnation with which this broker registers; None until a new one is drawn."""
        self._lifecycle: Lifecycle | None = None
        self._log = get_logger("broker", node=self.node_id)
        self.client_log = LimitedLog(self._log, runtime.clock.monotonic)
        self.controller = self._new_controller_link("")
        self._heartbeats = self._new_controller_link("-heartbeat")
        self.auto_create = self._new_auto_creation()
        self.producer_ids = ProducerIds(self.controller, self.node_id, lambda: self.lifecycle.epoch)
        self.groups = group_coordinator(runtime, self._tasks, work, config, self._metadata, lambda: self.own_changes)
        self._transactions = parts = transaction_parts(self, self._tasks)
        self.transactions, self.markers, self.verification = parts.coordinator, parts.markers, parts.verification
        self.late_transactions = parts.late
        self._assigner = DirectoryAssigner(self.controller, runtime.clock, self.node_id, lambda: self.lifecycle.epoch)
        self.expected_followers = ExpectedFollowers(runtime.clock, self.purgatory, self.node_id)
        self.fetchers = self._new_fetchers(config)
        self.replication = self._new_replication(config)
        self.log_mover = LogMover(runtime, self.logs, self._log_moved, self.quotas.moves)
        self.remote_reads: RemoteReads | None = None
        self.tier = self._new_tier(config)
        self._applier = self._new_applier()
        self.own_changes = OwnChanges(self.controller, self.configs.get_int, self._applier, runtime.clock)
        register_gauges(self)

    def _new_api_versions(self, config: NodeConfig) -> ApiVersionsAnswers:
        return ApiVersionsAnswers(
            Role.BROKER,
            supported_features(config.release),
            unstable_versions(config),
            release=config.release,
            identity=lambda: (self.cluster_id, self.node_id),
            controller=lambda: self.controller.served,
        )

    def _new_log_manager(self, config: NodeConfig) -> LogManager:
        logs = LogManager(self.runtime, config, self._directory_failed)
        logs.set_listeners(start_moved=self._log_start_moved, synced=self._log_synced)
        return logs

    def _new_fetch_sessions(self, config: NodeConfig) -> FetchSessions:
        slots = config.get_int("max.incremental.fetch.session.cache.slots")
        return FetchSessions(self.runtime.clock, self.runtime.random, slots)

    def _new_controller_link(self, purpose: str) -> ControllerLink:
        """Create a connection to the controller. Heartbeats and AlterPartition have their own, as in Kafka, so that a
        slow request does not delay a heartbeat until the broker is fenced."""
        return ControllerLink(
            self.runtime,
            self._controller_addresses,
            f"broker-{self.node_id}-to-controller{purpose}",
            request_timeout=self.config.get_int("controller.socket.timeout.ms") / 1000,
        )

    def _log_moved(self, partition: Partition) -> None:
        self._applier.log_moved(partition)

    def _new_auto_creation(self) -> AutoCreation:
        log = LimitedLog(get_logger("auto-create"), self.runtime.clock.monotonic)
        return AutoCreation(self.controller, self._tasks, lambda: self.config, self._metadata.image, log)

    def _new_fetchers(self, config: NodeConfig) -> Fetchers:
        return Fetchers(
            self.runtime,
            self._tasks,
            config,
            self.metrics,
            image=self._metadata.image,
            broker_epoch=lambda: None if self._lifecycle is None else self._lifecycle.epoch,
            quota=self.quotas.follower,
            ask_ends=self.ask_ends,
        )

    def _new_replication(self, config: NodeConfig) -> Replication:
        self._proposals_link = self._new_controller_link("-alter-partition")
        return Replication(
            self.node_id,
            self._metadata.image,
            IsrProposals(self._proposals_link, self.runtime.clock, self.node_id, lambda: self.lifecycle.epoch),
            IsrMeters(self.metrics),
            self.runtime.clock,
            lag_ms=config.get_int("replica.lag.time.max.ms"),
            broker_epoch=lambda: self.lifecycle.epoch,
        )

    def _new_tier(self, config: NodeConfig) -> RemoteLogManager | None:
        """Create the remote log manager; None without a remote tier. Raises ConfigError."""
        if not config.get_bool("remote.log.storage.system.enable"):
            return None
        from milena.broker.reading.remote_reads import RemoteReads
        from milena.broker.tiering import remote_log_manager

        tier = remote_log_manager(self, config)
        self.fetchers.tier = tier.tier
        self.remote_reads = RemoteReads(tier.tier, self.purgatory, self.metrics)
        self.configs.on_topic_change(tier.take_up)
        return tier

    def _new_applier(self) -> Applier:
        services = PartitionServices(
            self.partitions, self.logs, self.configs, self.purgatory, self.meters, self.replication
        )
        coordinators: dict[str, Coordinator] = {OFFSETS_TOPIC: self.groups, TRANSACTION_TOPIC: self.transactions}
        roles = RoleServices(
            coordinators, self.groups, self.fetchers, self.expected_followers, self.log_mover, self.tier
        )
        clock, contained = self.runtime.clock, self.runtime.contained
        return Applier(self.node_id, self._metadata.image, services, roles, self._assigner, clock, contained)

    def _new_server(self, config: NodeConfig, rules: Rules, apis: ApiTable) -> Server:
        return Server(
            self.runtime,
            self,
            node_id=self.node_id,
            role=Role.BROKER,
            endpoints=config.broker_listeners,
            apis=apis,
            limits=ServerLimits.of(config),
            metrics=self.metrics,
            rules=rules,
            holding=True,  # until serve()
            inter_broker=config.inter_broker_listener,
            release=config.release,
        )

    # -- for API modules

    @property
    def config(self) -> NodeConfig:
        """The effective configuration, static and dynamic."""
        return self.configs.node

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image()

    @property
    def cluster_id(self) -> str:
        assert self.logs.cluster_id is not None, "the broker has not started"
        return self.logs.cluster_id

    @property
    def lifecycle(self) -> Lifecycle:
        assert self._lifecycle is not None, "the broker has not started"
        return self._lifecycle

    @property
    def state(self) -> BrokerState:
        return self._lifecycle.state if self._lifecycle is not None else BrokerState.NOT_RUNNING

    @property
    def healthy(self) -> bool:
        """Whether the broker serves requests and has a session at the controller, as far as it can know."""
        return self.ready and self.lifecycle.in_session

    @property
    def bound_listeners(self) -> dict[str, tuple[str, int]]:
        return dict(self.server.bound)

    @cached_property
    def lab_commands(self) -> LabCommands:
        """The lab commands of this broker."""
        from milena.broker.lab_commands import BrokerLabCommands
        from milena.node.links.links import link_commands
        from milena.node.serving.lab_commands import LabCommands

        own = BrokerLabCommands(self).table() | link_commands(self.runtime.network)
        return LabCommands(self.rules, own, [one.name for one in self.config.broker_listeners])

    # -- start and stop

    async def listen(self) -> None:
        """Accept connections, which wait until the broker serves. Raises OSError."""
        await self.server.start()

    async def start(self) -> None:
        """Start the broker; ``listen`` first, unless it was called. Returns when the broker is unfenced and serves.

        Raises OSError, DirectoryError, ConfigError, KafkaError, ChannelError.
        """
        if not self.server.bound:
            await self.listen()
        self.logs.open()
        cluster_id = await cluster_of(self.logs, self.controller, self._required_cluster)
        self.logs.format(cluster_id)
        self._metadata.source = metadata = self._open_metadata(cluster_id)
        metadata.subscribe(self._metadata_changed)
        metadata.register(self.metrics)
        metadata.start(self._tasks)
        self._lifecycle = lifecycle = Lifecycle(
            self.runtime,
            self._heartbeats,
            self._registration(cluster_id),
            metadata_offset=self._heartbeat_offset,
            metadata_ahead=lambda: metadata.ahead,
            metadata_current_at=lambda: self._applier.current_at(metadata.current_at),
            heartbeat_interval=self.config.get_int("broker.heartbeat.interval.ms") / 1000,
            session_timeout=self.config.get_int("broker.session.timeout.ms") / 1000,
            registration_timeout=self.config.get_int("initial.broker.registration.timeout.ms") / 1000,
            failure_timeout=self.config.get_int("log.dir.failure.timeout.ms") / 1000,
            resumes=self._resumes,
        )
        lifecycle.start(self._tasks)
        await lifecycle.caught_up.wait()
        self.configs.renew()
        self.configs.check_tier()
        await self.logs.load(self.configs.topic)
        if self.tier is not None:
            await self.tier.start()
        self._applier.start(self._tasks)
        self._assigner.start(self._tasks)
        self.log_mover.start(self._tasks)
        self.replication.start(self._tasks, self.partitions)
        await self._applier.wait_applied()
        self.logs.start(self._tasks)
        self.groups.start()
        self._transactions.start(self._tasks)
        lifecycle.ready_to_unfence()
        await lifecycle.unfenced.wait()
        self.server.serve()
        self.ready = True
        self._log.info("broker serves", listeners=[f"{h}:{p}" for h, p in self.server.bound.values()], state=IN_KAFKA)

    async def stop(self, *, abruptly: bool = False) -> None:
        """Stop in order, wherever ``start`` is. Idempotent. ``abruptly``: leave the log directories as they are."""
        self.ready = False
        if self._lifecycle is not None and not abruptly and self.config.get_bool("controlled.shutdown.enable"):
            await self._lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_TIMEOUT)
        if self.remote_reads is not None:
            await self.remote_reads.stop()
        if self.tier is not None:
            await self.tier.stop()
        self.server.stop_accepting()
        self.fetchers.close()
        self._transactions.stop()
        self.purgatory.close()
        await self.server.stop()
        await self._tasks.stop()
        self._heartbeats.close()
        self._proposals_link.close()
        self._transactions.close()
        self.controller.close()
        if self._metadata.source is not None:
            self._metadata.source.close()
        if abruptly:
            self.logs.abandon()
            return
        epoch = self._lifecycle.epoch if self._lifecycle is not None else None
        await self.logs.stop(epoch)

    def _controller_addresses(self) -> list[tuple[str, int]]:
        return self.config.controller_addresses if self._shared is None else [self._shared().address]

    def _open_metadata(self, cluster_id: str) -> MetadataSource:
        if self._shared is not None:
            return SharedMetadata(self._shared(), self.runtime.contained)
        from milena.broker.metadata.observed_metadata import ObservedMetadata  # not needed in a combined process

        metadata_dir = self.config.metadata_log_dir
        directory_id = next(
            (directory.directory_id or ZERO_UUID for directory in self.logs.dirs if directory.path == metadata_dir),
            None,
        )
        return ObservedMetadata(self.runtime, self.config, cluster_id=cluster_id, directory_id=directory_id)

    def _registration(self, cluster_id: str) -> Registration:
        self.incarnation = self.incarnation or self.runtime.random.uuid()
        return Registration(
            node_id=self.node_id,
            cluster_id=cluster_id,
            incarnation=self.incarnation,
            listeners=advertised_listeners(self.config, self.server.bound),
            rack=self.config.get_str_or_none("broker.rack"),
            log_dirs=[
                directory.directory_id for directory in self.logs.online_dirs if directory.directory_id is not None
            ],
            previous_epoch=self.logs.previous_broker_epoch,
            compacts_tier=compacts_tier(self.config),
            release=self.config.release,
        )

    # -- listeners

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        if delta.topics or delta.deleted_topics or delta.brokers:
            self.metadata_answers.clear()
        if delta.brokers:
            self._transactions.brokers_changed(image.brokers)
        if delta.features:
            self.api_versions.set_finalized(image.features, image.offset)
        self._applier.publish(delta)

    def _heartbeat_offset(self) -> int:
        """The metadata offset for heartbeats: up to which metadata has been applied; before the logs are loaded, up to
        which it has been fetched. While the image lacks this broker's registration, the offset is below the broker
        epoch: a controller that has lost metadata may have assigned offsets again."""
        offset = self._applier.applied_offset if self._applier.started else self.image.offset
        registration, epoch = self.image.brokers.get(self.node_id), self.lifecycle.epoch
        return offset if registration is not None and registration.epoch == epoch else min(offset, epoch - 1)

    def _config_changed(self, config: NodeConfig) -> None:
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.quotas.update(config)
        self.logs.reconfigure(config)
        self.fetchers.resize(config.get_int("num.replica.fetchers"))
        if self.tier is not None:
            self.tier.reconfigure()

    def _log_start_moved(self, log: Log) -> None:
        if (partition := self.partitions.of_log(log)) is not None:
            self.fetchers.log_start_moved(partition)
            partition.changed()

    def _log_synced(self, log: Log) -> None:
        if (partition := self.partitions.of_log(log)) is not None:
            self.fetchers.log_synced(partition)
            partition.check_isr()

    def _directory_failed(self, directory: LogDir, lost: Iterable[Log]) -> None:
        """Take the partitions of a failed log directory offline, and report it to the controller, which elects other
        leaders. Other directories stay online."""
        lost_ids = {id(log) for log in lost}
        for partition in [
            hosted for hosted in self.partitions if hosted.log is not None and id(hosted.log) in lost_ids
        ]:
            self._applier.take_offline(partition)
        if self._lifecycle is not None and directory.directory_id is not None:
            self._lifecycle.directory_failed(directory.directory_id, directory.path)


async def cluster_of(logs: LogManager, controller: ControllerLink, required: str | None) -> str:
    """Return the cluster id of the log directories; that of the controller if they are not formatted. ``required``: the
    expected id; None for any.

    Raises ConfigError if the id is not the expected one, KafkaError or ChannelError if the controller does not answer.
    """
    formatted_for = logs.cluster_id
    cluster_id = formatted_for or await controller.cluster_id()
    if required and required != cluster_id:
        source = (
            f"the controller at {controller.address} leads"
            if formatted_for is None
            else "the log directories belong to"
        )
        raise ConfigError(f"--cluster-id or CLUSTER_ID is {required}, but {source} cluster {cluster_id}")
    return cluster_id
