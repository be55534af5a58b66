"""The process of one node: starting and stopping its roles, the control page, and status reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final

from milena import VERSION
from milena.command_line.errors import reason_of
from milena.config.node_config import NodeConfig
from milena.config.providers import hide
from milena.config.values import ConfigError
from milena.form import running
from milena.node.metrics import Metrics
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.decompression import load_codecs
from milena.protocol.uuids import from_text, to_text
from milena.runtime.descriptors import DescriptorWatch
from milena.runtime.logging import get_logger
from milena.runtime.process import PARENT_GONE, Stop, settle_memory
from milena.runtime.tcp.hosts import from_here
from milena.storage.manager.log_dir import DirectoryError
from milena.up import channel, nodes_file, private_files
from milena.up.layout import ClusterDir
from milena.up.settings import bracketed

if TYPE_CHECKING:
    from uuid import UUID

    from milena.broker.metadata.metadata_source import SharedLog
    from milena.broker.server import Broker
    from milena.command_line.options import Values
    from milena.config.listeners import Endpoint
    from milena.config.node_config import NodeConfig
    from milena.controller.log.formatting import Formatting
    from milena.controller.server import Controller
    from milena.node.serving.control_http import ControlServer
    from milena.runtime.context import Runtime
    from milena.steering.lab import Lab
    from milena.up.snapshots import Brokers

CANNOT_START: Final = 1
CODECS_AFTER: Final = 1.0
"""Seconds after the start at which a broker imports its codecs, even if it has received no compressed batch."""
BROKERS_FIRST: Final = 5.0
"""Seconds that a controller waits for the brokers to stop first when the whole cluster stops; less than
runtime.process.ORPHAN_GRACE."""
STARTED_IN_KAFKA: Final = "Kafka Server started"
"""A message of Kafka's KafkaRaftServer, for which scripts and Testcontainers' classes wait, that for Rust on standard
output."""


class NodeProcess:
    """One node. ``run`` is the main coroutine of its process."""

    def __init__(self, config: NodeConfig, values: Values, cluster: ClusterDir | None, *, is_child: bool) -> None:
        """``is_child``: started by `milena up`. Raises ConfigError for contradictory options."""
        self._config = config
        self._cluster = cluster
        self._lab_dir = _lab_dir(config, values.lab, cluster)
        self._is_child = is_child
        self._control_address = None if values.control is None else (values.control_host, values.control)
        self._own_address_limit: float = values.own_address_limit
        self._unreached: str | None = None
        self._kafka_line: bool = values.kafka_line
        self._cluster_id = values.cluster_id or os.environ.get("CLUSTER_ID") or None
        self._formatting = self._read_formatting(values)
        self._metrics = Metrics()
        self._controller: Controller | None = None
        self._broker: Broker | None = None
        self._control: ControlServer | None = None
        self._lab: Lab | None = None
        self._has_served = False
        self._log = get_logger("node", node=config.node_id)

    def _read_formatting(self, values: Values) -> Formatting | None:
        if not self._config.is_controller:
            return None
        from milena.controller.log.formatting import Formatting

        return Formatting.parse(
            cluster_id=self._cluster_id,
            features=values.feature,
            release_version=values.release_version,
            release=self._config.release,
        )

    async def run(self, runtime: Runtime, stop: Stop) -> int:
        """Start, serve until the stop is requested, stop. Return the exit code."""
        self._log.info("node starts", version=VERSION, form=running())
        for warning in self._config.warnings:
            self._log.warning(warning)
        self._report(channel.STARTING)
        failure: Exception | str | None = None
        try:
            if self._lab_dir is not None:
                from milena.steering.lab import Lab

                self._lab = Lab(self._lab_dir, self._config, runtime, self._halt, self._reopen)
                runtime = self._lab.runtime
            if await _unless_stopped(stop, self._start(runtime)):
                self._announce()
                self._log.info("node serves", state=STARTED_IN_KAFKA)
                settle_memory()
                DescriptorWatch(runtime.clock, self._log).start()
                if self._broker is not None:
                    # Import the codecs now: earlier, the imports would delay the start; later, the first compressed
                    # batch would wait.
                    runtime.clock.call_later(CODECS_AFTER, load_codecs)
                checking = asyncio.ensure_future(self._check_own_address(stop))
                await stop.requested.wait()
                checking.cancel()
            self._log.info("node stops", reason=stop.reason)
        except (ConfigError, DirectoryError, KafkaError, OSError) as error:
            failure = error
        try:
            await self._stop(everything_ends=stop.reason == PARENT_GONE)
        except (KafkaError, OSError) as error:
            failure = failure or error
        if self._cluster is not None:
            nodes_file.mark_down(self._cluster.nodes, self._config.node_id, os.getpid())
        elif self._lab_dir is not None and self._has_served:
            nodes_file.mark_down(self._lab_dir.nodes, self._config.node_id, os.getpid())
        return self._end(failure or self._unreached)

    def _end(self, failure: Exception | str | None) -> int:
        """Print why the node ends, as its last line. Return the exit code."""
        if failure is None:
            return 0
        said = str(failure)
        if isinstance(failure, OSError):
            said = reason_of(failure)
        elif isinstance(failure, KafkaError) and failure.code is ErrorCode.KAFKA_STORAGE_ERROR:
            said = failure.message or said
        with contextlib.suppress(OSError):
            print(f"milena: {hide(said, self._config.hidden)}", file=sys.stderr, flush=True)
        return CANNOT_START

    async def _start(self, runtime: Runtime) -> None:
        """Start the roles. The broker listens first, so that connections wait instead of being refused. Then the
        controller starts, at which a broker in the same process registers."""
        if self._control_address is not None:
            await self._start_control(runtime, *self._control_address)
        if self._config.is_broker:
            self._broker = self.make_broker(runtime)
            if self._lab is not None:
                broker = self._broker
                await self._lab.open("broker", broker, lambda: broker.image)
            await self._broker.listen()
        if self._config.is_controller:
            self._controller = self.make_controller(runtime)
            if self._lab is not None:
                controller = self._controller
                await self._lab.open("controller", controller, lambda: controller.state.image)
            await self._controller.start()
        if self._broker is not None:
            await self._broker.start()
            if self._cluster is not None and self._broker.incarnation is not None:
                path = self._cluster.incarnation(f"broker-{self._config.node_id}")
                private_files.replace(path, to_text(self._broker.incarnation))

    async def _halt(self) -> None:
        """Stop the roles without writing anything, so that the log directories can be replaced."""
        if self._broker is not None:
            await self._broker.stop(abruptly=True)
        if self._controller is not None:
            await self._controller.stop()
        if self._control is not None:
            self._control.stop()
        self._broker = self._controller = self._control = None
        self._metrics = Metrics()

    async def _reopen(self, runtime: Runtime) -> None:
        """Start the roles again with what is in the log directories now. If that fails, the process ends."""
        try:
            await self._start(runtime)
        except (ConfigError, DirectoryError, KafkaError, OSError) as error:
            runtime.fatal("the node cannot serve again", error)

    async def _check_own_address(self, stop: Stop) -> None:
        """Stop a broker that cannot reach its own advertised address, as no other broker could. A combined node only
        prints the message: it is often the only node, and serves clients at its other listeners as in Kafka."""
        endpoint = inter_broker_address(self._config)
        if endpoint is None or self._own_address_limit == 0:
            return
        unreached = await fault_of(endpoint, self._own_address_limit)
        if unreached is not None and self._config.is_controller:
            print(f"milena: {unreached}", file=sys.stderr, flush=True)
        elif unreached is not None:
            self._unreached = unreached
            stop.request("advertised address unreachable")

    def make_broker(self, runtime: Runtime) -> Broker:
        """Create the broker. Test peers override it."""
        from milena.broker.server import Broker

        shared = self._shared_log if self._config.is_controller else None
        return Broker(
            runtime,
            self._config,
            metrics=self._metrics,
            shared=shared,
            cluster_id=self._cluster_id,
            incarnation=self._resumed_incarnation(),
        )

    def _resumed_incarnation(self) -> UUID | None:
        """Return the incarnation of the snapshot that this node was restored from; None for a new one."""
        text = self._taken_resume("broker")
        return None if text is None else from_text(text.strip())

    def _taken_resume(self, role: str) -> str | None:
        """Return the content of the role's file of a restored node, which is read once; None if there is none."""
        path = None if self._cluster is None else self._cluster.resume(f"{role}-{self._config.node_id}")
        if path is None or not os.path.exists(path):
            return None
        with open(path) as file:
            text = file.read()
        os.unlink(path)
        return text

    def make_controller(self, runtime: Runtime) -> Controller:
        """Create the controller. Test peers override it."""
        from milena.controller.server import Controller

        text = self._taken_resume("controller")
        brokers: Brokers = {"addresses": {}, "ended": []} if text is None else json.loads(text)
        return Controller(
            runtime,
            self._config,
            formatting=self._formatting,
            metrics=self._metrics,
            moved={int(broker): (host, port) for broker, (host, port) in brokers["addresses"].items()},
            ended=brokers["ended"],
        )

    def _shared_log(self) -> SharedLog:
        """Return the metadata log of the controller in this process, which its broker reads directly."""
        assert self._controller is not None
        from milena.broker.metadata.metadata_source import SharedLog

        metadata = self._controller.metadata
        host, port = next(iter(self._controller.bound_listeners.values()))
        address = (from_here(host), port)
        return SharedLog(address=address, log=metadata.log, snapshots=metadata.snapshots, on_commit=metadata.on_commit)

    async def _start_control(self, runtime: Runtime, host: str, port: int) -> None:
        from milena.node.process_metrics import register_disk, register_loop
        from milena.node.serving.control_http import ControlServer, health_page, metrics_page

        register_process(self._metrics)
        register_loop(self._metrics, runtime.clock)
        for is_role, server in (
            (self._config.is_broker, "kafkaserver"),
            (self._config.is_controller, "controllerserver"),
        ):
            if is_role:
                register_disk(self._metrics, server)
        names = self._config.get_str("milena.metrics.names")
        pages = {
            "/metrics": metrics_page(self._metrics, names),
            "/health": health_page(self._health, "healthy"),
            "/ready": health_page(self._health, "ready"),
        }
        self._control = ControlServer(runtime, pages)
        bound = await self._control.start(host, port)
        self._log.info("control page served", address=f"http://{bound[0]}:{bound[1]}")

    @property
    def _roles(self) -> list[Controller | Broker]:
        return [role for role in (self._controller, self._broker) if role is not None]

    def _health(self) -> dict[str, object]:
        """Return ``healthy``, whether to keep this process, and ``ready``, whether to send requests to it. A node that
        has served stays healthy while another node, such as the controller, is away: a new process would not help."""
        ready = len(self._roles) == len(self._config.roles) and all(role.healthy for role in self._roles)
        offline = [] if self._broker is None else [directory.path for directory in self._broker.logs.offline_dirs]
        return {
            "healthy": self._has_served and not offline,
            "ready": ready,
            "node": self._config.node_id,
            "roles": sorted(self._config.roles),
            "offline_log_dirs": offline,
        }

    def _announce(self) -> None:
        """Report that the node serves: to its supervisor, in nodes.json and on standard output."""
        self._has_served = True
        listeners = {
            name: f"{bracketed(host)}:{port}"
            for role in self._roles
            for name, (host, port) in role.bound_listeners.items()
        }
        listed = self._cluster or self._lab_dir
        if listed is not None and not self._is_child:
            nodes_file.renew(listed.nodes, self._entry(listeners))
        self._report(channel.READY)
        if not self._is_child:
            shown = " ".join(f"{name}://{address}" for name, address in listeners.items())
            print(f"ready node={self._config.node_id} {shown}", flush=True)
        if self._kafka_line:
            server = f"[KafkaRaftServer nodeId={self._config.node_id}]"
            print(f"{server} {STARTED_IN_KAFKA} (kafka.server.KafkaRaftServer)", flush=True)

    def _entry(self, bound: dict[str, str]) -> nodes_file.Entry:
        advertised = {
            endpoint.name: f"{bracketed(endpoint.host)}:{endpoint.port}"
            for endpoint in self._config.advertised_listeners
            if endpoint.host and endpoint.port
        }
        return {
            "id": self._config.node_id,
            "roles": sorted(self._config.roles),
            "pid": os.getpid(),
            "listeners": bound | advertised,
            "log.dirs": list(self._config.log_dirs),
            "ready": True,
        }

    def _report(self, event: str) -> None:
        if self._cluster is not None:
            channel.notify_supervisor(self._cluster, self._config.node_id, event)

    async def _stop(self, *, everything_ends: bool) -> None:
        """Stop the broker first: its controlled shutdown needs the controller. If all nodes of the cluster stop
        (``everything_ends``), as after the end of their supervisor, the controller also waits for the brokers in other
        processes."""
        if self._broker is not None:
            await self._broker.stop()
        if self._controller is not None:
            if everything_ends:
                await self._controller.wait_until_all_fenced(BROKERS_FIRST)
            await self._controller.stop()
        if self._control is not None:
            self._control.stop()
        if self._lab is not None:
            await self._lab.close()


def _lab_dir(config: NodeConfig, given: str | None, cluster: ClusterDir | None) -> ClusterDir | None:
    """Return the folder for the node's socket and spare files; None without lab mode. Raises ConfigError."""
    if given is None:
        return cluster if cluster is not None and cluster.is_lab() else None
    if not os.path.isabs(given):
        raise ConfigError(f"--lab {given}: not an absolute path of a folder")
    for log_dir in config.log_dirs:
        if os.path.commonpath((given, log_dir)) == log_dir:
            raise ConfigError(f"--lab {given} is in the log directory {log_dir}: it must be outside of it")
    return ClusterDir(given)


def register_process(metrics: Metrics) -> None:
    """Register build information, and the process metrics with the names of Prometheus' clients."""
    from milena.runtime import descriptors, process_figures

    what = {"version": VERSION, "form": running(), "python": sys.version.split()[0]}
    metrics.gauge("milena_build_info", lambda: 1.0, "Always 1: version and build flavour (compiled or pure).", **what)
    metrics.gauge("process_open_fds", descriptors.open_now, "Open file descriptors.")
    metrics.gauge("process_max_fds", descriptors.limit, "Maximum number of open file descriptors.")
    metrics.counter_of("process_cpu_seconds_total", process_figures.cpu_seconds, "User and system CPU time in seconds.")
    metrics.gauge("process_resident_memory_bytes", process_figures.resident_bytes, "Resident memory in bytes.")
    metrics.gauge("process_virtual_memory_bytes", process_figures.virtual_bytes, "Virtual memory in bytes.")
    metrics.gauge("process_start_time_seconds", process_figures.started_at, "Start time in seconds since 1970.")


async def _unless_stopped(stop: Stop, work: Coroutine[None, None, None]) -> bool:
    """Return whether the work ended before a stop was requested; if not, it is cancelled. Raises what the work
    raises."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.requested.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
        return True
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    return False


PAUSE: Final = 1.0
"""Seconds between two attempts, and the timeout of each."""


def inter_broker_address(config: NodeConfig) -> Endpoint | None:
    """Return the advertised inter-broker address; None if clients use the same listener, since an address for clients
    outside of the network need not be reachable from here."""
    if not config.is_broker or len(config.advertised_listeners) < 2:
        return None
    found = next(one for one in config.advertised_listeners if one.name == config.inter_broker_listener)
    return found if found.host and found.port else None


async def fault_of(endpoint: Endpoint, seconds: float) -> str | None:
    """Return an error message if no process accepts a connection at ``endpoint`` within ``seconds``; None as soon as
    one does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        why = await _refused(endpoint.host, endpoint.port)
        if why is None:
            return None
        if loop.time() >= deadline:
            where = f"{endpoint.name}://{bracketed(endpoint.host)}:{endpoint.port}"
            return (
                f"advertised.listeners: the advertised inter-broker address {where} cannot be reached "
                f"from this broker within {seconds:g} s ({why})"
            )
        await asyncio.sleep(PAUSE)


async def _refused(host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(PAUSE):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return reason_of(error)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None
