"""Metrics of a broker's tier: the remote part of Kafka's BrokerTopicMetrics (docs/kafka-semantics.md: Metrics)."""

from __future__ import annotations

from functools import partial
from typing import Final

from milena.node.metrics import Counter, Metrics
from milena.node.topic_meters import MetersByTopic

_PREFIX: Final = "kafka_server_brokertopicmetrics"


_COUNTERS: Final = {
    "copied_bytes": ("remotecopybytes", "Bytes copied to the tier."),
    "copy_requests": ("remotecopyrequests", "Copies of segments to the tier that were started."),
    "copy_errors": ("remotecopyerrors", "Copies to the tier that failed."),
    "fetched_bytes": ("remotefetchbytes", "Bytes read from the tier."),
    "fetch_requests": ("remotefetchrequests", "Reads from the tier."),
    "fetch_errors": ("remotefetcherrors", "Reads from the tier that failed."),
    "delete_requests": ("remotedeleterequests", "Deletions of segments in the tier that were started."),
    "delete_errors": ("remotedeleteerrors", "Deletions in the tier that failed."),
    "cleaned_bytes": ("remotecleanbytes", "Bytes of segments in the tier that were read to be cleaned."),
    "clean_requests": ("remotecleanrequests", "Passes of cleaning in the tier that were started."),
    "clean_errors": ("remotecleanerrors", "Passes of cleaning in the tier that failed."),
    "aux_state_requests": (
        "buildremotelogauxstaterequests",
        "Builds of a follower's auxiliary state from the tier.",
    ),
    "aux_state_errors": (
        "buildremotelogauxstateerrors",
        "Failed builds of a follower's auxiliary state from the tier.",
    ),
}
"""Name and help text of each counter of a topic."""


def _metric(name: str) -> str:
    return f"{_PREFIX}_{name}persec_total"


class TopicTierMeters:
    """The counters of one topic."""

    __slots__ = (
        "aux_state_errors",
        "aux_state_requests",
        "clean_errors",
        "clean_requests",
        "cleaned_bytes",
        "copied_bytes",
        "copy_errors",
        "copy_requests",
        "delete_errors",
        "delete_requests",
        "fetch_errors",
        "fetch_requests",
        "fetched_bytes",
    )

    def __init__(self, metrics: Metrics, topic: str) -> None:
        def counter(attribute: str) -> Counter:
            name, text = _COUNTERS[attribute]
            return metrics.counter(_metric(name), text, topic=topic)

        self.copied_bytes = counter("copied_bytes")
        self.copy_requests = counter("copy_requests")
        self.copy_errors = counter("copy_errors")
        self.fetched_bytes = counter("fetched_bytes")
        self.fetch_requests = counter("fetch_requests")
        self.fetch_errors = counter("fetch_errors")
        self.delete_requests = counter("delete_requests")
        self.delete_errors = counter("delete_errors")
        self.cleaned_bytes = counter("cleaned_bytes")
        self.clean_requests = counter("clean_requests")
        self.clean_errors = counter("clean_errors")
        self.aux_state_requests = counter("aux_state_requests")
        self.aux_state_errors = counter("aux_state_errors")


class TierMeters(MetersByTopic[TopicTierMeters]):
    """Metrics by topic, created on first use and removed when no work on the topic is left."""

    def __init__(self, metrics: Metrics) -> None:
        counters = {attribute: (_metric(name), text) for attribute, (name, text) in _COUNTERS.items()}
        super().__init__(metrics, partial(TopicTierMeters, metrics), partial(_remove, metrics), counters)
        self.copy_throttle_time = metrics.timing(
            "kafka_server_remotelogmanager_remote_copy_throttle_time",
            "Time that copies were delayed because of their quota (ms).",
        )
        self.fetch_throttle_time = metrics.timing(
            "kafka_server_remotelogmanager_remote_fetch_throttle_time",
            "Throttle time of reads that were rejected because of their quota (ms).",
        )


def _remove(metrics: Metrics, topic: str) -> None:
    for name, _ in _COUNTERS.values():
        metrics.remove(_metric(name), topic=topic)
