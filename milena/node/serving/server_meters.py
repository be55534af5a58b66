"""Metrics of a server's connections and queues (Kafka's socket-server-metrics and RequestChannel)."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol

from milena.node.api import Caller
from milena.node.metrics import Metrics
from milena.node.rate import Rate
from milena.runtime.clock import Clock

PREFIX: Final = "kafka_server_socket_server_metrics_"
MAX_SOFTWARE: Final = 100
"""The number of combinations of client software, version and listener that are shown; clients choose the names."""
ONE_PROCESSOR: Final = "0"
"""The label ``networkprocessor``: one event loop serves all connections."""


class Connected(Protocol):
    """What the metrics read of a connection."""

    @property
    def caller(self) -> Caller: ...

    @property
    def has_stored_requests(self) -> bool: ...

    @property
    def waiting_answers(self) -> int: ...


class ConnectionMeters:
    """Counts the connections of each listener of one server."""

    def __init__(self, metrics: Metrics, clock: Clock, listeners: Iterable[str]) -> None:
        self._created = {name: Rate(clock) for name in listeners}
        self._closed = {name: Rate(clock) for name in self._created}
        for name in self._created:
            self._register(metrics, name)

    def created(self, listener: str) -> None:
        self._created[listener].count += 1

    def closed(self, listener: str) -> None:
        self._closed[listener].count += 1

    def _register(self, metrics: Metrics, listener: str) -> None:
        labels = {"listener": listener, "networkprocessor": ONE_PROCESSOR}
        created, closed = self._created[listener], self._closed[listener]
        metrics.gauge(f"{PREFIX}connection_count", lambda: created.count - closed.count, "Open connections.", **labels)
        metrics.counter_of(
            "kafka_network_acceptor_acceptorblockedpercent_total",
            lambda: 0,
            "Always 0: a connection is accepted without waiting for a network thread.",
            listener=listener,
        )
        for name, rate, text in (("creation", created, "opened"), ("close", closed, "closed")):
            metrics.gauge(
                f"{PREFIX}connection_{name}_rate",
                rate.per_second,
                f"Connections {text} per second, in about the last minute.",
                **labels,
            )
            metrics.counter_of(
                f"{PREFIX}connection_{name}_total", partial(_count, rate), f"Connections {text}.", **labels
            )


def _count(rate: Rate) -> float:
    return rate.count


def register_connections(metrics: Metrics, connections: Collection[Connected]) -> None:
    """Register the gauges that are computed from the open connections of a server."""

    def by_software() -> Iterator[tuple[Mapping[str, str], float]]:
        tally = Tally((c.caller.software_name, c.caller.software_version, c.caller.listener_name) for c in connections)
        for (name, version, listener), count in tally.most_common(MAX_SOFTWARE):
            yield (
                {
                    "clientsoftwarename": name,
                    "clientsoftwareversion": version,
                    "listener": listener,
                    "networkprocessor": ONE_PROCESSOR,
                },
                count,
            )

    metrics.gauge_of_each(f"{PREFIX}connections", by_software, "Open connections by the software of their clients.")
    metrics.gauge_part(
        "kafka_network_requestchannel_requestqueuesize",
        lambda: sum(connection.has_stored_requests for connection in connections),
        "Connections with requests that were read and wait for their turn.",
    )
    metrics.gauge_part(
        "kafka_network_requestchannel_responsequeuesize",
        lambda: sum(connection.waiting_answers for connection in connections),
        "Answers that wait for those of earlier requests of their connection.",
    )
