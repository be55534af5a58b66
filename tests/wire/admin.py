"""Topics by librdkafka's admin client."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def create_topic(
    bootstrap: str, name: str, partitions: int = 3, replicas: int = 1, config: dict[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config or {})
    admin.create_topics([topic], operation_timeout=10)[name].result(20)
