"""A Kafka node and a Milena cluster of one broker, for all comparisons of responses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.testing.local_cluster import LocalCluster
from tests.oracle.differential.pair import Answers, Pair, eventually
from tests.oracle.differential.sides import Side
from tests.oracle.kafka_node import running_kafka

CONFIG = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "3",
    # The tests' records have timestamps of 1970.
    "log.retention.ms": "-1",
    # Nothing is rolled, expired or cleaned after some time while responses are compared.
    "log.initial.task.delay.ms": "7200000",
    "log.cleaner.backoff.ms": "7200000",
    "producer.id.expiration.check.interval.ms": "7200000",
}
FEATURES = {
    "group.version": 0,
    "transaction.version": 2,
    "share.version": 0,
    "streams.version": 0,
    "eligible.leader.replicas.version": 0,
}
"""The feature levels of a new Milena cluster."""


@pytest.fixture(scope="session")
def sides(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("differential")
    overrides = {key.replace(".", "_"): value for key, value in CONFIG.items()}
    with (
        LocalCluster.start(folder / "milena", overrides=CONFIG, options=["--no-tier"]) as cluster,
        running_kafka(folder / "kafka", features=FEATURES, static_voter=True, **overrides) as node,
    ):
        host, _, port = cluster.bootstrap.rpartition(":")
        found = Side("Kafka", *node.broker, node.node_id), Side("Milena", host, int(port), cluster.brokers[0].id)
        make_ready(Pair(found))
        yield found


def make_ready(pair: Pair) -> None:
    """Read the cluster ids, and wait until both sides have loaded the groups and a block of producer ids."""
    answers = pair.ask(ApiKey.METADATA, 12, topics=[])
    for side, answer in zip(pair.sides, answers.both, strict=True):
        side.cluster_id = answer["cluster_id"]
    groups = [f"group-{index}" for index in range(10)]
    eventually(lambda: _no_errors(pair.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=groups)))
    eventually(lambda: _no_errors(pair.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=groups)))
    eventually(lambda: _no_errors(pair.ask(ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None)))
    eventually(lambda: _no_errors(pair.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=groups)))
    eventually(lambda: _unknown_ids(pair.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=groups)))
    pair.close()


def _unknown_ids(answers: Answers) -> None:
    """All coordinators have loaded: they answer that the ids are unknown."""
    for answer in answers.both:
        for one in answer["transaction_states"]:
            assert one["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, one


def _no_errors(answers: Answers) -> None:
    for answer in answers.both:
        assert not answer.get("error_code")
        for one in answer.get("coordinators", ()) or answer.get("groups", ()):
            assert not one["error_code"], one


@pytest.fixture
def pair(sides: tuple[Side, Side]) -> Iterator[Pair]:
    for side in sides:
        side.forget()
    found = Pair(sides)
    yield found
    found.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    return "".join(one if one.isalnum() else "-" for one in request.node.name)[:200]
