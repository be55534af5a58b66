"""Three brokers of Kafka and three of Milena, with two log directories each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milena.protocol.api_keys import ApiKey
from milena.testing.local_cluster import LocalCluster
from tests.oracle.differential.conftest import FEATURES
from tests.oracle.differential.replicated.trio import BROKERS, Trio
from tests.oracle.differential.sides import Side
from tests.oracle.kafka_cluster import running_kafka_cluster

CONFIG = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    # The tests' records have timestamps of 1970.
    "log.retention.ms": "-1",
}


@pytest.fixture(scope="session")
def trio_sides(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, tuple[Side, Side]]]:
    folder = tmp_path_factory.mktemp("replicated")
    with (
        LocalCluster.start(folder / "milena", brokers=3, overrides=CONFIG) as cluster,
        running_kafka_cluster(folder / "kafka", features=FEATURES, overrides=CONFIG) as theirs,
    ):
        ours = {node.id: node.listeners["PLAINTEXT"].rpartition(":") for node in cluster.brokers}
        found = {
            broker: (
                Side("Kafka", *theirs.brokers[broker], broker),
                Side("Milena", ours[broker][0], int(ours[broker][2]), broker),
            )
            for broker in BROKERS
        }
        for broker in BROKERS[1:]:
            for side, first in zip(found[broker], found[1], strict=True):
                side.names = first.names
                first.ports.add(side.port)
                side.ports = first.ports
        yield found


@pytest.fixture
def trio(trio_sides: dict[int, tuple[Side, Side]]) -> Iterator[Trio]:
    found = Trio(trio_sides)
    answers = found.at(1).ask(ApiKey.METADATA, 12, topics=[])
    for side, answer in zip(answers.sides, answers.both, strict=True):
        side.forget()
        side.cluster_id = answer["cluster_id"]
    yield found
    found.close()
