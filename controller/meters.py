"""The controller's gauges, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from node.metrics import Metrics

if TYPE_CHECKING:
    from controller.server import Controller


def register_gauges(controller: Controller, metrics: Metrics) -> None:
    """Call once the controller leads."""
    state, metadata = controller.state, controller.metadata

    def gauge(group: str, name: str, read: Callable[[], float], help_text: str) -> None:
        metrics.gauge(f"kafka_controller_{group}_{name}", read, help_text)

    gauge("kafkacontroller", "activecontrollercount", lambda: int(controller.ready), "1 on the controller that leads.")
    gauge(
        "kafkacontroller",
        "activebrokercount",
        lambda: sum(not broker.fenced for broker in state.image.brokers.values()),
        "Registered brokers that are not fenced.",
    )
    gauge(
        "kafkacontroller",
        "fencedbrokercount",
        lambda: sum(broker.fenced for broker in state.image.brokers.values()),
        "Registered brokers that are fenced.",
    )
    gauge("kafkacontroller", "globaltopiccount", lambda: len(state.image.topics), "Topics of the cluster.")
    gauge(
        "kafkacontroller", "globalpartitioncount", lambda: state.image.partition_count(), "Partitions of the cluster."
    )
    gauge(
        "kafkacontroller",
        "offlinepartitionscount",
        lambda: state.index.leaderless_count,
        "Partitions without a leader.",
    )
    gauge(
        "kafkacontroller",
        "lastappliedrecordoffset",
        lambda: state.next_offset - 1,
        "Offset of the last record of the metadata log.",
    )
    gauge(
        "kafkacontroller",
        "lastcommittedrecordoffset",
        lambda: metadata.high_watermark - 1,
        "Offset of the last committed record of the metadata log.",
    )
