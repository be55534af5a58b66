"""Topics by librdkafka's admin client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import KafkaError, KafkaException, NewTopic


def create_topic(
    bootstrap: str, name: str, partitions: int = 3, replicas: int = -1, config: dict[str, str] | None = None
) -> None:
    """``replicas`` -1: as many as is the brokers' default."""
    _create(bootstrap, NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config or {}))


def place_topic(
    bootstrap: str, name: str, replicas: Sequence[Sequence[int]], config: dict[str, str] | None = None
) -> None:
    """A topic with these replicas for each partition, the first of which leads."""
    plan = [list(ids) for ids in replicas]
    _create(bootstrap, NewTopic(name, num_partitions=len(plan), replica_assignment=plan, config=config or {}))


def alter_topic(bootstrap: str, name: str, config: Mapping[str, str]) -> None:
    """Set some of a topic's configs; return when the controller has them."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    admin = _admin(bootstrap)
    admin.incremental_alter_configs([resource])[resource].result(30)


def alter_broker(
    bootstrap: str, broker: int, operation: AlterConfigOpType, key: str, value: str | None
) -> KafkaError | None:
    """Change a key of a broker's dynamic configuration. Return the error of the answer."""
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
    admin = _admin(bootstrap)  # whose end would be that of its requests
    try:
        admin.incremental_alter_configs([resource])[resource].result(30)
    except KafkaException as error:
        found = error.args[0]
        assert isinstance(found, KafkaError)
        return found
    return None


def _create(bootstrap: str, topic: NewTopic) -> None:
    admin = _admin(bootstrap)  # whose end would be that of its requests
    admin.create_topics([topic], operation_timeout=10)[topic.topic].result(20)


class Place(NamedTuple):
    """Who has a partition, as a broker tells it. ``leader`` is -1 where there is none."""

    leader: int
    isr: frozenset[int]


class Places:
    """Where the partitions of a topic are, asked anew each time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._client = _admin(bootstrap)
        self._topic = topic

    def now(self) -> list[Place]:
        partitions = self._client.list_topics(self._topic, timeout=20).topics[self._topic].partitions
        return [Place(partitions[index].leader, frozenset(partitions[index].isrs)) for index in sorted(partitions)]

    def all_have(self, broker: int) -> bool:
        """Whether a broker is in the ISR of each partition, and each has a leader."""
        return all(broker in place.isr and place.leader != -1 for place in self.now())

    def none_has(self, broker: int) -> bool:
        """Whether a broker is in the ISR of no partition, and each has a leader."""
        return all(broker not in place.isr and place.leader != -1 for place in self.now())


def coordinator_of(bootstrap: str, group: str) -> int:
    """The broker that coordinates a group."""
    admin = _admin(bootstrap)
    found: int = admin.describe_consumer_groups([group])[group].result(20).coordinator.id
    return found


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
