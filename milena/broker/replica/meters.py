"""The broker's metrics by topic: Kafka's BrokerTopicMetrics."""

from __future__ import annotations

from functools import partial
from typing import Final

from milena.node.metrics import Counter, Metrics
from milena.node.topic_meters import MetersByTopic

_PREFIX: Final = "kafka_server_brokertopicmetrics"


class TopicMeters:
    """The counters of one topic. The hot path adds to ``value`` directly."""

    __slots__ = ("bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetches", "messages_in", "produces")

    def __init__(self, metrics: Metrics, topic: str) -> None:
        def counter(name: str, text: str) -> Counter:
            return metrics.counter(f"{_PREFIX}_{name}_total", text, topic=topic)

        self.messages_in = counter("messagesinpersec", "Records appended for producers.")
        self.bytes_in = counter("bytesinpersec", "Bytes appended for producers.")
        self.bytes_out = counter("bytesoutpersec", "Bytes sent to consumers.")
        self.produces = counter("totalproducerequestspersec", "Partitions of produce requests.")
        self.fetches = counter("totalfetchrequestspersec", "Partitions of fetch requests.")
        self.failed_produces = counter("failedproducerequestspersec", "Partitions of produce requests that failed.")
        self.failed_fetches = counter("failedfetchrequestspersec", "Partitions of fetch requests that failed.")


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
        super().__init__(partial(TopicMeters, metrics), partial(metrics.remove_where, "topic"))
