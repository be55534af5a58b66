"""Metrics of the process of a node: its event loop and its use of disks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from milena.node.metrics import Metrics
from milena.node.rate import Rate
from milena.runtime import process_figures
from milena.runtime.clock import Clock
from milena.runtime.loop_idle import MeasuredLoop

HANDLER: Final = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
NETWORK: Final = "kafka_network_socketserver_networkprocessoravgidlepercent"
NANOSECONDS: Final = 1_000_000_000


def register_loop(metrics: Metrics, clock: Clock) -> None:
    """Register how idle the event loop is, if it measures that (not uvloop). One loop handles requests and serves the
    network, so both of Kafka's metrics are its share of waiting."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, MeasuredLoop):
        return
    rate = Rate(clock)

    def last_minute() -> float:
        rate.count = loop.idle_seconds()
        return min(rate.per_second(), 1.0)

    metrics.counter_of(
        f"{HANDLER}_total",
        lambda: int(loop.idle_seconds() * NANOSECONDS),
        "Nanoseconds in which the event loop, which handles the requests, waited.",
    )
    metrics.gauge(
        f"{HANDLER}_meanrate", loop.idle_share, "Share of the time since the start in which the event loop waited."
    )
    metrics.gauge(
        f"{HANDLER}_oneminuterate", last_minute, "Share of about the last minute in which the event loop waited."
    )
    metrics.gauge(
        NETWORK,
        last_minute,
        "Share of about the last minute in which the event loop, which serves the network, waited.",
    )


def register_disk(metrics: Metrics, server: str) -> None:
    """Register the bytes read from and written to disks, if the system reports them. ``server`` is the type of Kafka's
    MBean, ``kafkaserver`` or ``controllerserver``."""
    for name, field, text in (
        ("read", "read_bytes", "Bytes that the process has read from disks."),
        ("write", "write_bytes", "Bytes that the process has caused to be written to disks."),
    ):
        if process_figures.disk_bytes(field) is not None:
            metrics.gauge(f"kafka_server_{server}_linux_disk_{name}_bytes", partial(_disk_bytes, field), text)


def _disk_bytes(field: str) -> float:
    return process_figures.disk_bytes(field) or 0
