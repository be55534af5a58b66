"""Automatic creation of topics: what the controller is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milena.broker.controller_link.auto_create import AutoCreation
from milena.config.node_config import NodeConfig
from milena.protocol.api_keys import ApiKey

CONFIG = NodeConfig.of(
    process_roles="broker",
    node_id=1,
    listeners="PLAINTEXT://h:9092",
    controller_listener_names="CONTROLLER",
    controller_quorum_voters="100@h:9093",
    offsets_topic_num_partitions=7,
    offsets_topic_replication_factor=2,
    transaction_state_log_num_partitions=5,
    transaction_state_log_replication_factor=4,
    transaction_state_log_min_isr=3,
    transaction_state_log_segment_bytes=12345,
)


class Controller:
    """Keeps the topics of CreateTopics requests, and creates them."""

    def __init__(self) -> None:
        self.topics: list[dict[str, Any]] = []

    async def request(self, key: ApiKey, *, topics: list[dict[str, Any]], **_: object) -> SimpleNamespace:
        assert key is ApiKey.CREATE_TOPICS
        self.topics += topics
        return SimpleNamespace(topics=[SimpleNamespace(error_code=0, error_message=None)])


class Tasks:
    """Runs what never waits."""

    def attempt(self, work: Any, *, name: str) -> None:
        with pytest.raises(StopIteration):
            work.send(None)


def created(name: str) -> tuple[int, int, dict[str, str]]:
    """The number of partitions and of replicas, and the configuration, with which the topic is created."""
    controller = Controller()
    creation: Any = AutoCreation
    creation(controller, Tasks(), lambda: CONFIG, lambda: None, None).create_internal([name])
    (topic,) = controller.topics
    assert (topic["name"], topic["assignments"]) == (name, [])
    return topic["num_partitions"], topic["replication_factor"], {one["name"]: one["value"] for one in topic["configs"]}


def test_the_offsets_topic_has_kafkas_configuration() -> None:
    assert created("__consumer_offsets") == (
        7,
        2,
        {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    )


def test_the_topic_of_transactions_has_kafkas_configuration() -> None:
    assert created("__transaction_state") == (
        5,
        4,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "3",
            "segment.bytes": "12345",
            "unclean.leader.election.enable": "false",
        },
    )


def test_other_topics_have_the_clusters_defaults() -> None:
    assert created("orders") == (-1, -1, {})
