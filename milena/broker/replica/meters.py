"""The broker's metrics by topic: Kafka's BrokerTopicMetrics."""

from __future__ import annotations

from functools import partial
from typing import Final

from milena.node.metrics import Counter, Metrics
from milena.node.topic_meters import MetersByTopic

_PREFIX: Final = "kafka_server_brokertopicmetrics"
_COUNTERS: Final = {
    "messages_in": ("messagesinpersec", "Records appended for producers."),
    "bytes_in": ("bytesinpersec", "Bytes appended for producers."),
    "bytes_out": ("bytesoutpersec", "Bytes sent to consumers."),
    "produces": ("totalproducerequestspersec", "Partitions of produce requests."),
    "fetches": ("totalfetchrequestspersec", "Partitions of fetch requests."),
    "failed_produces": ("failedproducerequestspersec", "Partitions of produce requests that failed."),
    "failed_fetches": ("failedfetchrequestspersec", "Partitions of fetch requests that failed."),
}
"""Name and help text of each counter of a topic."""


class TopicMeters:
    """The counters of one topic. The hot path adds to ``value`` directly."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_out",
    )

    def __init__(self, metrics: Metrics, topic: str) -> None:
        def counter(attribute: str) -> Counter:
            name, text = _COUNTERS[attribute]
            return metrics.counter(f"{_PREFIX}_{name}_total", text, topic=topic)

        self.messages_in = counter("messages_in")
        self.bytes_in = counter("bytes_in")
        self.bytes_out = counter("bytes_out")
        self.produces = counter("produces")
        self.fetches = counter("fetches")
        self.failed_produces = counter("failed_produces")
        self.failed_fetches = counter("failed_fetches")
        self.replication_bytes_out = metrics.counter(
            f"{_PREFIX}_replicationbytesoutpersec_total", "Bytes sent to followers."
        )
        """One counter for all topics, as in Kafka."""


class IsrMeters:
    """Counts ISR changes of the partitions that this broker leads."""

    __slots__ = ("expands", "failed", "shrinks")

    def __init__(self, metrics: Metrics) -> None:
        def counter(name: str, text: str) -> Counter:
            return metrics.counter(f"kafka_server_replicamanager_{name}_total", text)

        self.expands = counter("isrexpandspersec", "Replicas added to an ISR.")
        self.shrinks = counter("isrshrinkspersec", "Changes that removed lagging replicas from an ISR.")
        self.failed = counter("failedisrupdatespersec", "Proposed ISRs that the controller did not accept.")


class BrokerMeters(MetersByTopic[TopicMeters]):
    """The counters of all topics. Those of a deleted topic are removed."""

    def __init__(self, metrics: Metrics) -> None:
        counters = {attribute: (f"{_PREFIX}_{name}_total", text) for attribute, (name, text) in _COUNTERS.items()}
        super().__init__(metrics, partial(TopicMeters, metrics), partial(_remove, metrics), counters)
        for kind in ("fetch", "produce"):
            metrics.counter_of(
                f"{_PREFIX}_{kind}messageconversionspersec_total",
                lambda: 0,
                "Always 0: records are never converted to another format.",
            )


def _remove(metrics: Metrics, topic: str) -> None:
    for name, _ in _COUNTERS.values():
        metrics.remove(f"{_PREFIX}_{name}_total", topic=topic)
