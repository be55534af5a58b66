"""Metrics of a broker's tier: the remote part of Kafka's BrokerTopicMetrics (docs/kafka-semantics.md: Metrics)."""

from __future__ import annotations

from functools import partial
from typing import Final

from milena.node.metrics import Counter, Metrics
from milena.node.topic_meters import MetersByTopic

_PREFIX: Final = "kafka_server_brokertopicmetrics"


_NAMES: Final = (
    "remotecopybytes",
    "remotecopyrequests",
    "remotecopyerrors",
    "remotefetchbytes",
    "remotefetchrequests",
    "remotefetcherrors",
    "remotedeleterequests",
    "remotedeleteerrors",
    "remotecleanbytes",
    "remotecleanrequests",
    "remotecleanerrors",
    "buildremotelogauxstaterequests",
    "buildremotelogauxstateerrors",
)


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
        def counter(name: str, text: str) -> Counter:
            return metrics.counter(_metric(name), text, topic=topic)

        self.copied_bytes = counter("remotecopybytes", "Bytes copied to the tier.")
        self.copy_requests = counter("remotecopyrequests", "Copies of segments to the tier that were started.")
        self.copy_errors = counter("remotecopyerrors", "Copies to the tier that failed.")
        self.fetched_bytes = counter("remotefetchbytes", "Bytes read from the tier.")
        self.fetch_requests = counter("remotefetchrequests", "Reads from the tier.")
        self.fetch_errors = counter("remotefetcherrors", "Reads from the tier that failed.")
        self.delete_requests = counter("remotedeleterequests", "Deletions of segments in the tier that were started.")
        self.delete_errors = counter("remotedeleteerrors", "Deletions in the tier that failed.")
        self.cleaned_bytes = counter("remotecleanbytes", "Bytes of segments in the tier that were read to be cleaned.")
        self.clean_requests = counter("remotecleanrequests", "Passes of cleaning in the tier that were started.")
        self.clean_errors = counter("remotecleanerrors", "Passes of cleaning in the tier that failed.")
        self.aux_state_requests = counter(
            "buildremotelogauxstaterequests", "Builds of a follower's auxiliary state from the tier."
        )
        self.aux_state_errors = counter(
            "buildremotelogauxstateerrors", "Failed builds of a follower's auxiliary state from the tier."
        )


class TierMeters(MetersByTopic[TopicTierMeters]):
    """Metrics by topic, created on first use and removed when no work on the topic is left."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(partial(TopicTierMeters, metrics), partial(_remove, metrics))
        self.copy_throttle_time = metrics.timing(
            "kafka_server_remotelogmanager_remote_copy_throttle_time",
            "Time that copies were delayed because of their quota (ms).",
        )
        self.fetch_throttle_time = metrics.timing(
            "kafka_server_remotelogmanager_remote_fetch_throttle_time",
            "Throttle time of reads that were rejected because of their quota (ms).",
        )


def _remove(metrics: Metrics, topic: str) -> None:
    for name in _NAMES:
        metrics.remove(_metric(name), topic=topic)
