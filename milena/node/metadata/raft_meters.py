"""Metrics of the metadata quorum (Kafka's raft-metrics, raft-channel-metrics and broker-metadata-metrics)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from milena.node.links.outgoing import Traffic
from milena.node.metadata.image import MetadataImage
from milena.node.metrics import Metrics, Timing
from milena.node.rate import Rate
from milena.runtime.clock import Clock

NONE: Final = -1
"""The leader and the vote of a node that knows no leader, or has not voted."""
LEADER: Final = "leader"
OBSERVER: Final = "observer"
_RAFT: Final = "kafka_server_raft_metrics_"
_CHANNEL: Final = "kafka_server_raft_channel_metrics_"
_BROKER: Final = "kafka_server_broker_metadata_metrics_"


class RaftMeters:
    """What a node counts for these metrics."""

    def __init__(self, clock: Clock) -> None:
        self.appended = Rate(clock)
        """Records that this node has appended as the leader."""
        self.fetched = Rate(clock)
        """Records that this node has fetched from the leader."""
        self.commits = Timing()
        """From the append of a batch by this leader until its commit."""
        self.elections = Timing()
        """The elections of this node."""
        self.traffic = Traffic()
        """Requests of this node to the quorum's leader."""


class RaftView(NamedTuple):
    """The state of a node in the quorum."""

    state: str
    leader: int
    epoch: int
    vote: int
    high_watermark: int
    log_end_offset: int
    log_end_epoch: int


def register_raft(metrics: Metrics, view: Callable[[], RaftView], meters: RaftMeters) -> None:
    """Register the metrics of a controller, or of a broker without a controller in its process."""

    def gauge(name: str, read: Callable[[], float], text: str) -> None:
        metrics.gauge(_RAFT + name, read, text)

    gauge("current_leader", lambda: view().leader, "The leader of the metadata log; -1 if it is not known.")
    gauge("current_epoch", lambda: view().epoch, "The leader epoch of the metadata log.")
    gauge("current_vote", lambda: view().vote, "The node that this node has voted for; -1 for none.")
    gauge("high_watermark", lambda: view().high_watermark, "The first offset that is not known to be committed.")
    gauge("log_end_offset", lambda: view().log_end_offset, "The offset of the next record of the metadata log.")
    gauge("log_end_epoch", lambda: view().log_end_epoch, "The leader epoch of the last record of the metadata log.")
    gauge("append_records_rate", meters.appended.per_second, "Records per second that this leader appends.")
    gauge("fetch_records_rate", meters.fetched.per_second, "Records per second that this node fetches.")
    for name, timing, text in (
        ("commit_latency", meters.commits, "from the append of a batch by this leader until its commit"),
        ("election_latency", meters.elections, "of the elections of this node"),
    ):
        gauge(f"{name}_avg", partial(_mean, timing), f"Mean time {text}, of the last 1,000, in ms.")
        gauge(
            f"{name}_max",
            partial(_longest, timing),
            f"Longest time {text}, of the last 1,000, in ms.",
        )

    def state() -> Iterator[tuple[Mapping[str, str], float]]:
        yield {"current_state": view().state}, 1

    metrics.gauge_of_each(f"{_RAFT}current_state", state, "1, with the state of this node in the quorum as the label.")
    _register_channel(metrics, meters.traffic)


def _register_channel(metrics: Metrics, traffic: Traffic) -> None:
    for name, read, text in (
        ("incoming_byte", lambda: traffic.received_bytes, "Bytes received from the quorum's leader."),
        ("outgoing_byte", lambda: traffic.sent_bytes, "Bytes sent to the quorum's leader."),
        ("request", lambda: traffic.requests, "Requests sent to the quorum's leader."),
        ("response", lambda: traffic.responses, "Responses of the quorum's leader."),
    ):
        metrics.counter_of(f"{_CHANNEL}{name}_total", read, text)


def register_applied(metrics: Metrics, image: Callable[[], MetadataImage], clock: Clock) -> None:
    """Register up to where a broker has applied the metadata log."""

    def gauge(name: str, read: Callable[[], float], text: str) -> None:
        metrics.gauge(_BROKER + name, read, text)

    gauge("last_applied_record_offset", lambda: image().offset, "Offset of the last record that is applied.")
    gauge("last_applied_record_timestamp", lambda: image().timestamp_ms, "Its timestamp, in ms since 1970.")
    gauge(
        "last_applied_record_lag_ms",
        lambda: max(clock.time_ms() - image().timestamp_ms, 0),
        "Milliseconds since that timestamp. An idle controller appends a record every metadata.max.idle.interval.ms.",
    )


def _longest(timing: Timing) -> float:
    """Return the largest of the recent durations; NaN, as in Kafka, if there are none."""
    return max(timing.recent(), default=math.nan)


def _mean(timing: Timing) -> float:
    recent = timing.recent()
    return sum(recent) / len(recent) if recent else math.nan
