"""The controller's gauges and counters, with Kafka's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from milena.controller.rules.partition_change import RECOVERING
from milena.node.metadata.image import NO_LEADER, PartitionImage
from milena.node.metadata.raft_meters import register_raft
from milena.node.metrics import Metrics

if TYPE_CHECKING:
    from milena.controller.log.followers import Followers
    from milena.controller.log.metadata_log import MetadataLog
    from milena.controller.state.state import ControllerState
    from milena.runtime.context import Runtime


class Measured(Protocol):
    """The part of the controller that the gauges read."""

    @property
    def followers(self) -> Followers: ...
    @property
    def metadata(self) -> MetadataLog: ...
    @property
    def ready(self) -> bool: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def state(self) -> ControllerState: ...


def register_gauges(controller: Measured, metrics: Metrics) -> None:
    """Register the gauges. Call once the controller is active."""
    state, metadata = controller.state, controller.metadata

    def gauge(group: str, name: str, read: Callable[[], float], help_text: str) -> None:
        metrics.gauge(f"kafka_controller_{group}_{name}", read, help_text)

    gauge("kafkacontroller", "activecontrollercount", lambda: int(controller.ready), "1 on the active controller.")
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
    gauge(
        "kafkacontroller",
        "controlledshutdownbrokercount",
        lambda: sum(b.in_controlled_shutdown and not b.fenced for b in state.image.brokers.values()),
        "Brokers in controlled shutdown.",
    )
    gauge("kafkacontroller", "globaltopiccount", lambda: len(state.image.topics), "Topics in the cluster.")
    gauge(
        "kafkacontroller", "globalpartitioncount", lambda: state.image.partition_count(), "Partitions in the cluster."
    )
    gauge(
        "kafkacontroller",
        "offlinepartitionscount",
        lambda: state.index.leaderless_count,
        "Partitions without a leader.",
    )
    gauge(
        "kafkacontroller",
        "preferredreplicaimbalancecount",
        lambda: state.index.imbalanced_count,
        "Partitions whose leader is not the preferred replica.",
    )
    state.index.changed = ElectionMeters(metrics).changed
    _register_log_gauges(controller, metrics)
    register_raft(metrics, metadata.view, metadata.meters)
    metrics.gauge(
        "kafka_server_raft_metrics_number_of_voters", lambda: 1, "Voters of the quorum; only one is supported."
    )
    metrics.gauge(
        "kafka_server_raft_metrics_number_of_observers",
        lambda: len(list(controller.followers.present(controller.runtime.clock.time_ms()))),
        "Nodes that have fetched the metadata log in the last five minutes.",
    )


def _register_log_gauges(controller: Measured, metrics: Metrics) -> None:
    """Register up to where this controller has applied the metadata log."""
    state, metadata = controller.state, controller.metadata

    def gauge(name: str, read: Callable[[], float], help_text: str) -> None:
        metrics.gauge(f"kafka_controller_kafkacontroller_{name}", read, help_text)

    gauge(
        "lastappliedrecordoffset",
        lambda: state.next_offset - 1,
        "Offset of the last record of the metadata log.",
    )
    gauge(
        "lastcommittedrecordoffset",
        lambda: metadata.high_watermark - 1,
        "Offset of the last committed record of the metadata log.",
    )
    gauge(
        "lastappliedrecordtimestamp",
        lambda: state.image.timestamp_ms,
        "Timestamp of the last record of the metadata log, in ms since 1970.",
    )
    gauge(
        "lastappliedrecordlagms",
        lambda: 0,
        "Always 0, as on every active controller: it applies a record when it appends it.",
    )
    gauge(
        "metadataerrorcount",
        lambda: 0,
        "Always 0: an error in the metadata ends the controller.",
    )


class ElectionMeters:
    """Counts unclean elections and elections of eligible leader replicas since the start of this controller."""

    def __init__(self, metrics: Metrics) -> None:
        self._unclean = metrics.counter(
            "kafka_controller_controllerstats_uncleanleaderelectionspersec_total",
            "Unclean leader elections.",
        )
        self._eligible = metrics.counter(
            "kafka_controller_controllerstats_electionfromeligibleleaderreplicaspersec_total",
            "Elections of eligible leader replicas.",
        )

    def changed(self, before: PartitionImage, after: PartitionImage) -> None:
        leader = after.leader
        if leader in (NO_LEADER, before.leader) or leader in before.isr:
            return
        if leader in before.elr:
            self._eligible.add()
        elif after.recovery_state == RECOVERING:
            self._unclean.add()
