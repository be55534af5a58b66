"""Automatic creation of topics, like Kafka's AutoTopicCreationManager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from milena.broker.controller_link.controller_link import ControllerLink
from milena.config.node_config import NodeConfig
from milena.node.metadata.image import MetadataImage
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import OFFSETS_TOPIC, TRANSACTION_TOPIC
from milena.runtime.limited_log import LimitedLog
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.protocol.apis import CreatableTopicFields, CreateTopicsResponse

MAX_IN_FLIGHT: Final = 1000
_CLUSTER_DEFAULT: Final = -1
"""The number of partitions or replicas in a request that leaves it to the controller's defaults."""


class AutoCreation:
    """Sends CreateTopics requests for missing topics, at most one per topic at a time."""

    def __init__(
        self,
        controller: ControllerLink,
        tasks: Tasks,
        config: Callable[[], NodeConfig],
        image: Callable[[], MetadataImage],
        log: LimitedLog,
    ) -> None:
        self._controller = controller
        self._tasks = tasks
        self._config = config
        self._image = image
        self._in_flight: set[str] = set()
        self._failures: dict[str, str] = {}
        self._log = log

    def create(self, names: Iterable[str]) -> bool:
        """Start creating topics for a client. Returns False if ``auto.create.topics.enable`` is false or no topic is
        being created."""
        return self._config().get_bool("auto.create.topics.enable") and self.create_internal(names)

    def create_internal(self, names: Iterable[str]) -> bool:
        """Start creating internal topics, whatever ``auto.create.topics.enable`` is."""
        missing = [name for name in names if name not in self._in_flight]
        for name in missing[: MAX_IN_FLIGHT - len(self._in_flight)]:
            self._in_flight.add(name)
            self._tasks.attempt(self._create(name), name=f"create {name}")
        return bool(missing) or bool(self._in_flight)

    async def _create(self, name: str) -> None:
        try:
            response: CreateTopicsResponse = await self._controller.request(
                ApiKey.CREATE_TOPICS,
                topics=[self._creatable(name)],
                timeout_ms=self._config().get_int("request.timeout.ms"),
                validate_only=False,
                timeout=self._config().get_int("request.timeout.ms") / 1000,
            )
            if len(response.topics) != 1:
                self._failed(name, f"the controller's response has {len(response.topics)} topics instead of one")
                return
            topic = response.topics[0]
            error = ErrorCode(int(topic.error_code))
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._failures.pop(name, None)
            else:
                self._failed(name, f"{error.name}: {topic.error_message}")
        except (KafkaError, ConnectionError) as failure:
            self._failed(name, str(failure))
        finally:
            self._in_flight.discard(name)

    def _failed(self, name: str, reason: str) -> None:
        """Log a failure, unless the last one of the topic had the same reason: clients retry often."""
        if self._failures.get(name) == reason:
            return
        if len(self._failures) >= MAX_IN_FLIGHT:
            self._failures.clear()
        self._failures[name] = reason
        self._log.warning("topic not created", topic=name, reason=reason)

    def _creatable(self, name: str) -> CreatableTopicFields:
        config = self._config()
        if name == OFFSETS_TOPIC:
            return _topic(
                name,
                config.get_int("offsets.topic.num.partitions"),
                config.get_int("offsets.topic.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
                },
            )
        if name == TRANSACTION_TOPIC:
            return _topic(
                name,
                config.get_int("transaction.state.log.num.partitions"),
                config.get_int("transaction.state.log.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
                    "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
                    "unclean.leader.election.enable": "false",
                },
            )
        return _topic(name, _CLUSTER_DEFAULT, _CLUSTER_DEFAULT, {})


def _topic(name: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> CreatableTopicFields:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
