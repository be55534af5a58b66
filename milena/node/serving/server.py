"""The socket server of a node: listeners, connection limits, closing of idle connections (Kafka's ``SocketServer``).

One server serves one role on one or more listeners. A combined node has two servers, which share no state.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from milena.config.listeners import ip_overrides
from milena.config.node_config import NodeConfig
from milena.node.api import ApiTable
from milena.node.metrics import Metrics
from milena.node.request_meters import event_times
from milena.node.rules.rules import Rules
from milena.node.serving.connection import ServerConnection
from milena.node.serving.dispatch import Dispatcher
from milena.node.serving.server_meters import ConnectionMeters, register_connections
from milena.node.serving.turns import Turns
from milena.protocol.requests.frames import ReceiveBuffers
from milena.protocol.requests.memory_budget import MemoryBudget
from milena.protocol.schemas.registry import Role
from milena.releases import NEWEST
from milena.runtime.clock import Timer
from milena.runtime.context import Runtime
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from milena.runtime.network import ConnectionHandler, Framer, Listener

DEFAULT_QUEUED_BYTES: Final = 512 << 20
"""Limit of partial request frames of all connections together if ``queued.max.request.bytes`` is -1. Only received
bytes count, so announced lengths alone never reach it."""
UNSENT_BYTES: Final = 512 << 20
"""Limit of unread answers in memory, of all connections together."""
MAX_SWEEP_INTERVAL: Final = 30.0


class ListenAddress(Protocol):
    """The address of a listener, as ``config`` has parsed it."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of one server, in Kafka's units. With a negative ``idle_ms`` idle connections are never closed."""

    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms: int = 600_000
    max_request_bytes: int = 100 << 20
    queued_bytes: int = DEFAULT_QUEUED_BYTES
    unsent_bytes: int = UNSENT_BYTES

    @classmethod
    def of(cls, config: NodeConfig) -> ServerLimits:
        queued = config.get_int("queued.max.request.bytes")
        return cls(
            max_connections=config.get_int("max.connections"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            per_ip_overrides=ip_overrides(config.get_str("max.connections.per.ip.overrides")),
            idle_ms=config.get_int("connections.max.idle.ms"),
            max_request_bytes=config.get_int("socket.request.max.bytes"),
            queued_bytes=queued if queued > 0 else DEFAULT_QUEUED_BYTES,
        )


class Server:
    """Accepts connections on ``endpoints`` and runs their requests against ``node``."""

    def __init__(
        self,
        runtime: Runtime,
        node: object,
        *,
        node_id: int,
        role: Role,
        endpoints: Sequence[ListenAddress],
        apis: ApiTable,
        limits: ServerLimits,
        metrics: Metrics,
        rules: Rules,
        holding: bool = False,
        inter_broker: str | None = None,
        release: str = NEWEST,
    ) -> None:
        """``holding``: connections are accepted, but their requests wait for ``serve``. ``inter_broker``: the name of
        the inter-broker listener; if it is not the only listener, its connections take precedence over clients'.
        ``release``: the release whose versions are served."""
        self.holding = holding
        self.runtime = runtime
        self.rules = rules
        self.monotonic = runtime.clock.monotonic
        self.bound: dict[str, tuple[str, int]] = {}
        """Listener name to its bound host and port (the actual port if 0 was configured)."""
        log = get_logger("network", node=node_id)
        self._log = log
        self._cut_off_log = LimitedLog(log, self.monotonic)
        self._endpoints = endpoints
        names = [endpoint.name for endpoint in endpoints]
        protected = names if role is Role.CONTROLLER else [inter_broker] if len(names) > 1 else []
        self._for_nodes = frozenset(protected)
        self._apis = apis
        self.limits = limits
        self._tasks = runtime.new_tasks(f"{role.name.lower()} requests")
        self.dispatcher = Dispatcher(runtime, node, role, apis, metrics, self._tasks, rules, release)
        self.buffers = ReceiveBuffers(MemoryBudget(limits.queued_bytes, self.monotonic))
        """Memory of requests that are incomplete or stored for a later turn."""
        self.answers = MemoryBudget(limits.unsent_bytes, self.monotonic)
        """Memory of responses that clients read more slowly than they send requests."""
        self.turns = Turns(runtime.clock)
        self._listeners: list[Listener] = []
        self._connections: dict[ServerConnection, None] = {}
        self._per_host: dict[str, int] = {}
        self._sweep_timer: Timer | None = None
        self._closed_for_cause = metrics.counter(
            "kafka_server_socketservermetrics_connections_closed_for_cause_total",
            "Connections closed because of invalid input or a limit.",
            role=role.name.lower(),
        )
        metrics.gauge(
            "milena_contained_errors",
            lambda: runtime.contained.count,
            "Unexpected errors, each of which failed one request, connection, partition or task.",
        )
        self.event_times = event_times(metrics) if role is Role.CONTROLLER else None
        """Of a controller: the times of all requests except fetches."""
        self._meters = ConnectionMeters(metrics, runtime.clock, names)
        register_connections(metrics, self._connections.keys())

    async def start(self) -> None:
        """Bind all listeners. Raises OSError naming the listener and its address if one cannot be bound."""
        for endpoint in self._endpoints:
            accept = functools.partial(self._accept, endpoint.name)
            try:
                listener = await self.runtime.network.listen(
                    endpoint.host, endpoint.port, accept, for_nodes=endpoint.name in self._for_nodes
                )
            except OSError as error:
                self.stop_accepting()
                raise OSError(error.errno, f"listener {endpoint.name}: {error.strerror or error}") from error
            self._listeners.append(listener)
            self.bound[endpoint.name] = (listener.host, listener.port)
        self._schedule_sweep()
        self._apis.preload()

    def serve(self) -> None:
        """Run requests from now on, first those that arrived while the server was holding requests."""
        self.holding = False
        for connection in list(self._connections):
            connection.serving_started()

    def stop_accepting(self) -> None:
        """Close the listeners; connections stay open."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def stop(self) -> None:
        """Stop accepting, close every connection, cancel running requests. Idempotent."""
        self.stop_accepting()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for connection in list(self._connections):
            connection.close("the node is shutting down")
        self.rules.stop()
        await self._tasks.stop()

    def connections(self) -> Iterable[ServerConnection]:
        return self._connections.keys()

    def admit(self, connection: ServerConnection) -> None:
        """Count a new connection, or close it if a limit is reached.

        Kafka leaves connections beyond ``max.connections`` in the kernel's queue; here they are closed immediately. A
        new connection on the inter-broker listener replaces the client connection that was idle longest, as in Kafka
        (KIP-402).
        """
        host = connection.caller.client_host
        self._meters.created(connection.caller.listener_name)
        count = self._per_host.get(host, 0) + 1
        self._per_host[host] = count
        self._connections[connection] = None
        if len(self._connections) > self.limits.max_connections and not self._close_longest_idle_client(connection):
            self.note_close(connection, "max.connections is reached")
            connection.abort()
        elif count > self.limits.per_ip_overrides.get(host, self.limits.max_connections_per_ip):
            self.note_close(connection, "max.connections.per.ip is reached")
            connection.abort()

    def _close_longest_idle_client(self, connection: ServerConnection) -> bool:
        """Close the client connection that was idle longest, if ``connection`` is on the inter-broker listener. Returns
        False if none was closed."""
        if connection.caller.listener_name not in self._for_nodes:
            return False
        nodes = self._for_nodes
        clients = (
            client for client in self._connections if not client.closed and client.caller.listener_name not in nodes
        )
        idlest = min(clients, key=lambda client: client.last_active, default=None)
        if idlest is None:
            return False
        self.note_close(idlest, "max.connections is reached, replaced by an inter-broker connection")
        idlest.abort()
        return True

    def forget(self, connection: ServerConnection) -> None:
        """Stop counting a connection that was closed. Idempotent."""
        if self._connections.pop(connection, self) is self:
            return
        self._meters.closed(connection.caller.listener_name)
        host = connection.caller.client_host
        remaining = self._per_host[host] - 1
        if remaining:
            self._per_host[host] = remaining
        else:
            del self._per_host[host]

    def note_close(self, connection: ServerConnection, reason: str) -> None:
        """Count and log a connection that this node closes. Call once per connection."""
        self._closed_for_cause.value += 1
        caller = connection.caller
        self._log.debug("connection closed", client=caller.client_host, listener=caller.listener_name, reason=reason)

    def note_cut_off(self, connection: ServerConnection, reason: str) -> None:
        """Like ``note_close``, with a warning, for a connection that uses memory that others need or makes no
        progress."""
        self.note_close(connection, reason)
        self._cut_off_log.warning("connection cut", client=connection.caller.client_host, reason=reason)

    def _accept(self, listener_name: str) -> tuple[Framer, ConnectionHandler]:
        connection = ServerConnection(self, listener_name)
        return connection.framer, connection

    def _schedule_sweep(self) -> None:
        interval = MAX_SWEEP_INTERVAL
        if self.limits.idle_ms >= 0:
            interval = min(interval, max(self.limits.idle_ms / 2000, 0.01))
        self._sweep_timer = self.runtime.clock.call_later(interval, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle too long or make no progress. One timer serves all connections."""
        oldest = self.monotonic() - self.limits.idle_ms / 1000 if self.limits.idle_ms >= 0 else -math.inf
        for connection in list(self._connections):
            connection.check_progress()
            if not connection.closed and connection.stalled_since_last_sweep() and connection.last_active < oldest:
                self.note_close(connection, "idle for connections.max.idle.ms")
                connection.abort()
        self._schedule_sweep()
