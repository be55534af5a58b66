"""The controller node: its parts, and the order in which they start and stop.

Start: bind the listeners, lock and format the directory, load snapshot and log, begin an epoch, write the activation
records, serve. Stop: accept no new connections, end waiting requests, sync and close the log, unlock the directory.

It is the only voter of its cluster: ``controller.quorum.voters`` names it alone, or is not set.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cached_property
from socket import gethostname
from typing import TYPE_CHECKING, Final, TypeVar

from milena.config.listeners import SECURITY_PROTOCOLS
from milena.config.node_config import NodeConfig
from milena.config.values import ConfigError
from milena.controller.apis.table import controller_apis
from milena.controller.background import Background
from milena.controller.commands.activation import activation_records, registration_records
from milena.controller.commands.brokers import with_addresses
from milena.controller.commands.heartbeats import fence_gone
from milena.controller.log.followers import Followers
from milena.controller.log.formatting import Formatting, read_bootstrap, write_bootstrap
from milena.controller.log.long_poll import LongPolls
from milena.controller.log.metadata_log import MetadataLog
from milena.controller.meters import register_gauges
from milena.controller.state.result import Result
from milena.controller.state.sessions import Sessions
from milena.controller.state.state import ControllerState
from milena.node.api import ApiTable, Fields
from milena.node.metadata.image import ListenerImage
from milena.node.metadata.snapshot_keeper import SnapshotKeeper, SnapshotPolicy
from milena.node.metrics import Metrics
from milena.node.rules.rules import Rules, uuid_namer
from milena.node.serving.server import Server, ServerLimits
from milena.protocol.cooperative import Cooperative
from milena.protocol.features import DISABLED, KRAFT_VERSION, METADATA_VERSION, metadata_version_name, ranges
from milena.protocol.metadata_records import NoOpRecord
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.schemas.api_versions import ApiVersionsAnswers
from milena.protocol.schemas.registry import Role
from milena.protocol.types import NodeId, Offset
from milena.protocol.uuids import to_text
from milena.releases import KEY as KAFKA_VERSION
from milena.releases import NEWEST
from milena.runtime.context import Runtime
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from milena.runtime.tcp.hosts import ALL_ADDRESSES
from milena.storage.log.context import LogContext
from milena.storage.manager.log_dir import DirectoryError, LogDir

if TYPE_CHECKING:
    from milena.node.serving.lab_commands import LabCommands


def supported_features(release: str) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature of a controller that behaves like ``release``. With static
    voters kraft.version stays at 0."""
    return {name: levels for name, levels in ranges(release).items() if levels != DISABLED} | {KRAFT_VERSION: DISABLED}


ATTEMPTS_IN_STEPS: Final = 5
"""Attempts to write the records of a large request while no other request changes the metadata between its steps."""
T = TypeVar("T")
F = TypeVar("F", bound=Fields)


class Controller:
    """One controller. Handlers know it as ``node``."""

    def __init__(
        self,
        runtime: Runtime,
        config: NodeConfig,
        *,
        formatting: Formatting | None = None,
        metrics: Metrics | None = None,
        rules: Rules | None = None,
        apis: ApiTable | None = None,
        moved: Mapping[int, tuple[str, int]] | None = None,
        ended: Collection[int] = (),
    ) -> None:
        """Does no I/O. ``moved``: the addresses of brokers whose metadata is that of a snapshot, by id. ``ended``: the
        brokers whose incarnation in that metadata has ended. Raises ConfigError if ``controller.quorum.voters`` names
        other voters."""
        self.runtime = runtime
        self.config = config
        self.node_id = NodeId(config.node_id)
        self.metrics = metrics or Metrics()
        self.ready = False
        self.followers = Followers()
        self.polls = LongPolls(runtime.clock, runtime.contained)
        self.supported_features = supported_features(config.release)
        self.api_versions = ApiVersionsAnswers(Role.CONTROLLER, self.supported_features, release=config.release)
        self.incarnation = runtime.random.uuid()
        self.rules = rules or Rules(runtime.clock, uuid_namer(lambda: self.state.image.topics_by_id), runtime.random)
        self.server = Server(
            runtime,
            self,
            node_id=self.node_id,
            role=Role.CONTROLLER,
            endpoints=config.controller_listeners,
            apis=apis or controller_apis(),
            limits=ServerLimits.of(config),
            metrics=self.metrics,
            rules=self.rules,
            holding=True,  # until serve()
            release=config.release,
        )
        self._moved = moved or {}
        self._ended = ended
        self._formatting = formatting or Formatting.parse(release=config.release)
        self._tasks = runtime.new_tasks(f"controller {self.node_id}")
        self.log = get_logger("controller", node=self.node_id)
        self.client_log = LimitedLog(self.log, runtime.clock.monotonic)
        """For events that clients and other nodes can cause without limit."""
        self._directory = LogDir(config.metadata_log_dir, LogContext(runtime.disk, runtime.clock))
        self._state: ControllerState | None = None
        self._metadata: MetadataLog | None = None
        self._keeper: SnapshotKeeper | None = None
        self._background: Background | None = None
        self._features_known_at = Offset(-1)
        """The offset of the last change of features that ApiVersions shows."""
        self._all_fenced = asyncio.Event()
        if config.quorum_voters and list(config.quorum_voters) != [self.node_id]:
            raise ConfigError(
                f"controller.quorum.voters names {', '.join(map(str, config.quorum_voters))}: "
                f"only node {self.node_id} itself can be a voter, quorums of several voters are not supported yet"
            )

    @property
    def state(self) -> ControllerState:
        assert self._state is not None, "the controller has not started"
        return self._state

    @cached_property
    def lab_commands(self) -> LabCommands:
        """The controller's lab commands."""
        from milena.controller.lab_commands import ControllerLabCommands
        from milena.node.links.links import link_commands
        from milena.node.serving.lab_commands import LabCommands

        own = ControllerLabCommands(self).table() | link_commands(self.runtime.network)
        return LabCommands(self.rules, own, [one.name for one in self.config.controller_listeners])

    @property
    def metadata(self) -> MetadataLog:
        """The metadata log; its ``log``, ``snapshots`` and ``on_commit`` serve a broker of the same process."""
        assert self._metadata is not None, "the controller has not started"
        return self._metadata

    @property
    def background(self) -> Background:
        assert self._background is not None, "the controller has not started"
        return self._background

    @property
    def cluster_id(self) -> str:
        return self.state.cluster_id

    @property
    def bound_listeners(self) -> dict[str, tuple[str, int]]:
        return dict(self.server.bound)

    async def start(self) -> None:
        """Return when the controller is active and serves requests.

        Raises OSError, which names the address or the file; DirectoryError if the directory must not be used or its
        content is damaged.
        """
        await self.server.start()
        try:
            cluster_id = self._format()
            timeout = self.config.get_int("broker.session.timeout.ms") / 1000
            self._state = ControllerState(cluster_id, self.config, Sessions(timeout))
            self._metadata = MetadataLog(self.runtime, self.config, self._state, [self.node_id])
            self._open(self._metadata)
            self._check_features(self._metadata, self._state)
            self._metadata.lead(self._tasks)
            await self._activate(self._metadata, self._state)
        except OSError as error:  # that of a full disk has no file name
            path = error.filename or self.config.metadata_log_dir
            raise OSError(error.errno, error.strerror or str(error), path) from error
        policy = SnapshotPolicy(
            record_bytes=self.config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            interval_ms=self.config.get_int("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=self.config.get_int("metadata.max.retention.bytes"),
            retention_ms=self.config.get_int("metadata.max.retention.ms"),
        )
        log, snapshots = self._metadata.log, self._metadata.snapshots
        self._keeper = SnapshotKeeper(self.runtime, self._metadata, log, snapshots, policy, node_id=self.node_id)
        self._metadata.on_commit(self._committed)
        self._committed()
        self._tasks.keep(self._maintain_log, name="idle records and snapshots")
        self._background = Background(self, self._tasks)
        self._background.start()
        register_gauges(self, self.metrics)
        self.server.serve()
        self.ready = True
        self.log.info(
            "controller active", cluster=cluster_id, epoch=self._metadata.epoch, offset=self._state.next_offset
        )

    def _format(self) -> str:
        """Lock the directory and format it for this node if it is new. Return the cluster id."""
        directory, disk = self._directory, self.runtime.disk
        directory.open()
        if directory.meta is None:
            cluster_id = self._formatting.cluster_id or to_text(self.runtime.random.uuid())
            write_bootstrap(disk, directory.path, self._formatting, self.runtime.clock.time_ms())
            self.log.info("cluster formatted", cluster=cluster_id, directory=directory.path)
        else:
            cluster_id = self._formatting.cluster_id or directory.meta.cluster_id
        directory.format(cluster_id, self.node_id, self.runtime.random.uuid)
        if self.config.is_broker and self.config.metadata_log_dir in self.config.log_dirs:
            directory.unlock()  # the broker of this process locks all its log directories, including this one
        return cluster_id

    def _open(self, metadata: MetadataLog) -> None:
        try:
            metadata.open()
        except ValueError as error:  # damaged batches, snapshots, records and quorum states raise subclasses of it
            raise DirectoryError(f"the metadata log in {metadata.folder} cannot be used: {error}") from error

    def _check_features(self, metadata: MetadataLog, state: ControllerState) -> None:
        """Raise DirectoryError if a feature has a level that this node does not support
        (``FeatureControlManager.replay``)."""
        for name, level in state.image.features.items():
            low, high = self.supported_features.get(name, DISABLED)
            if not low <= level <= high:
                shown = f"{level} ({metadata_version_name(level)})" if name == METADATA_VERSION else str(level)
                limit = "" if self.config.release == NEWEST else f" with {KAFKA_VERSION}={self.config.release}"
                raise DirectoryError(
                    f"the metadata log in {metadata.folder} cannot be used: {name} is {shown}, "
                    f"and this node supports {low} to {high}{limit}"
                )

    async def _activate(self, metadata: MetadataLog, state: ControllerState) -> None:
        bootstrap = read_bootstrap(self.runtime.disk, self.config.metadata_log_dir)
        records = self._formatting.records() if bootstrap is None else bootstrap
        metadata.write(activation_records(state, records))
        if self._moved:
            metadata.write(with_addresses(state, self._moved))
        for broker in [one for one in state.image.brokers.values() if one.id in self._ended and not one.fenced]:
            metadata.write(fence_gone(state, broker).records, atomic=False)
        endpoints = [self._endpoint_image(name, address) for name, address in self.advertised().items()]
        committed = metadata.write(registration_records(state, self.incarnation, endpoints, self.supported_features))
        state.sessions.activate(state.image.brokers.values(), self.runtime.clock.monotonic())
        await committed

    def advertised(self) -> dict[str, tuple[str, int]]:
        """Return this controller's advertised addresses by listener name: as configured, with the bound ports, and this
        machine's name in place of a wildcard address."""
        advertised = {}
        for endpoint in self.config.advertised_controller_listeners or self.config.controller_listeners:
            host, port = self.server.bound.get(endpoint.name, (endpoint.host, endpoint.port))
            host = endpoint.host or host
            advertised[endpoint.name] = (gethostname() if host in ALL_ADDRESSES else host, endpoint.port or port)
        return advertised

    def _endpoint_image(self, name: str, address: tuple[str, int]) -> ListenerImage:
        protocol = SECURITY_PROTOCOLS.index(self.config.security_protocols.get(name, "PLAINTEXT"))
        return ListenerImage(name, *address, protocol)

    @property
    def healthy(self) -> bool:
        """Whether the controller is active."""
        return self.ready

    def current_leader(self) -> CurrentLeader:
        return CurrentLeader(self.node_id, self.metadata.epoch)

    def leader_endpoints(self, listener_name: str) -> tuple[NodeEndpoint, ...]:
        """Return this controller's address on the listener of a request."""
        address = self.advertised().get(listener_name)
        return () if address is None else (NodeEndpoint(self.node_id, *address),)

    def write(self, result: Result[T]) -> None:
        """Write a part of a command's records now; a later ``commit`` waits for them, too. Raises KafkaError."""
        self.metadata.write(result.records, atomic=result.atomic)

    def commit(self, result: Result[T], answer: Callable[[T], F]) -> F | Awaitable[F]:
        """Write a command's records now; the response is sent once they are committed. Raises KafkaError."""
        committed = self.metadata.write(result.records, atomic=result.atomic)
        fields = answer(result.response)
        return fields if committed.done() else _when(committed, fields)

    def commit_in_steps(
        self, decide: Callable[[], Result[T]], answer: Callable[[T], F]
    ) -> Cooperative[F | Awaitable[F]]:
        """Like ``commit`` with the result of ``decide``, for many records: yields between the decision, the encoding
        and the write. ``decide`` is called again if the metadata have changed before the write. Raises its errors."""
        for _ in range(ATTEMPTS_IN_STEPS):
            decided_at = self.state.next_offset
            result = decide()
            yield
            encoded = self.metadata.encode(result.records, atomic=result.atomic)
            yield
            if self.state.next_offset == decided_at:
                break
        else:  # other requests change the metadata all the time
            result = decide()
            encoded = self.metadata.encode(result.records, atomic=result.atomic)
        committed = self.metadata.write(result.records, atomic=result.atomic, encoded=encoded)
        yield
        fields = answer(result.response)
        return fields if committed.done() else _when(committed, fields)

    def now(self) -> float:
        return self.runtime.clock.monotonic()

    def _committed(self) -> None:
        """Called after the high watermark has advanced."""
        state = self.state
        changed_at = state.features_changed_at
        if self._features_known_at < changed_at < self.metadata.high_watermark:
            self.api_versions.set_finalized(state.image.features, changed_at)
            self._features_known_at = changed_at
        self.polls.commit()
        if self.metadata.idle and all(broker.fenced for broker in state.image.brokers.values()):
            self._all_fenced.set()
        else:
            self._all_fenced.clear()

    async def _maintain_log(self) -> None:
        """Append NoOpRecords while nothing else is written, and create and delete snapshots."""
        idle = self.config.get_int("metadata.max.idle.interval.ms") / 1000
        while True:
            await self.runtime.clock.sleep(idle or 1.0)
            if idle and self.now() - self.metadata.last_append >= idle / 2:
                await self.metadata.write([NoOpRecord()])
            if self.metadata.idle and self._keeper is not None:
                await self._keeper.maintain()

    async def wait_until_all_fenced(self, timeout: float) -> None:
        """Wait until every broker is fenced, as after controlled shutdowns, for at most ``timeout`` seconds."""
        if self.ready:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._all_fenced.wait()

    async def stop(self) -> None:
        """Idempotent. Raises OSError, KafkaError if the log cannot be closed cleanly."""
        self.ready = False
        if self._background is not None:
            self._background.stop()
        await self.server.stop()
        self.polls.stop()
        await self._tasks.stop()
        if self._metadata is not None:
            await self._metadata.close()
        self._directory.unlock()


async def _when(committed: Awaitable[None], fields: F) -> F:
    await committed
    return fields
