"""Topics, broker configurations and group coordinators through librdkafka's admin client."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import KafkaError, KafkaException, NewTopic

from tests.wire.waiting import wait_until


def create_topic(
    bootstrap: str, name: str, partitions: int = 3, replicas: int = -1, config: dict[str, str] | None = None
) -> None:
    """Create a topic. ``replicas`` -1: default.replication.factor of the brokers."""
    _create(bootstrap, NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config or {}))


def place_topic(
    bootstrap: str, name: str, replicas: Sequence[Sequence[int]], config: dict[str, str] | None = None
) -> None:
    """Create a topic with these replicas for each partition; the first replica of each is its leader."""
    plan = [list(ids) for ids in replicas]
    _create(bootstrap, NewTopic(name, num_partitions=len(plan), replica_assignment=plan, config=config or {}))


def alter_topic(bootstrap: str, name: str, config: Mapping[str, str]) -> None:
    """Set some of a topic's configs; return when the controller has applied them."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    admin = _admin(bootstrap)
    admin.incremental_alter_configs([resource])[resource].result(30)


def alter_broker(
    bootstrap: str, broker: int, operation: AlterConfigOpType, key: str, value: str | None
) -> KafkaError | None:
    """Change a key of a broker's dynamic configuration. Return the error of the response, None if there is none."""
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
    admin = _admin(bootstrap)  # held in a variable: its requests end when it is collected
    try:
        admin.incremental_alter_configs([resource])[resource].result(30)
    except KafkaException as error:
        found = error.args[0]
        assert isinstance(found, KafkaError)
        return found
    return None


def _create(bootstrap: str, topic: NewTopic) -> None:
    admin = _admin(bootstrap)  # held in a variable: its requests end when it is collected
    admin.create_topics([topic], operation_timeout=10)[topic.topic].result(20)


class Place(NamedTuple):
    """Leader, replicas and ISR of a partition in a broker's metadata. ``leader`` is -1 if there is none."""

    leader: int
    isr: frozenset[int]


class Places:
    """The places of a topic's partitions, from a new Metadata request each time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._client = _admin(bootstrap)
        self._topic = topic

    def now(self) -> list[Place]:
        partitions = self._client.list_topics(self._topic, timeout=20).topics[self._topic].partitions
        return [Place(partitions[index].leader, frozenset(partitions[index].isrs)) for index in sorted(partitions)]

    def all_have(self, broker: int) -> bool:
        """Whether the broker is in the ISR of all partitions, and all have a leader."""
        return all(broker in place.isr and place.leader != -1 for place in self.now())

    def wait_until_led(self, leader: int, isr: Collection[int]) -> None:
        """Wait until all partitions have this leader and ISR."""
        wait_until(
            lambda: all(place.leader == leader and place.isr == set(isr) for place in self.now()),
            f"{leader} to lead {sorted(isr)}",
        )

    def none_has(self, broker: int) -> bool:
        """Whether the broker is in the ISR of no partition, and all partitions have a leader."""
        return all(broker not in place.isr and place.leader != -1 for place in self.now())


def coordinator_of(bootstrap: str, group: str) -> int:
    """Return the id of the broker that coordinates the group."""
    admin = _admin(bootstrap)
    found: int = admin.describe_consumer_groups([group])[group].result(20).coordinator.id
    return found


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
