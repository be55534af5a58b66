"""One cluster with three replicas of everything for all of Kafka's tools; skipped where Kafka cannot be run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.oracle import kafka
from tests.oracle.tools import Tools

RECORDS = int(os.environ.get("MILENA_RECORDS", "2000"))
"""How many records go through the clients. `make oracle` without SHORT=1 sends 100,000."""

REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
"""What a topic has by default in clusters of three brokers."""


@pytest.fixture(scope="session", autouse=True)
def kafka_answers() -> None:
    """Java and the jars are there, or the reason is told."""
    try:
        kafka.jars()
    except kafka.NoKafka as reason:
        pytest.skip(f"Kafka's tools cannot be run: {reason}")


@pytest.fixture(scope="session")
def tools(kafka_answers: None) -> Iterator[Tools]:
    found = Tools()
    yield found
    found.close()


@pytest.fixture(scope="session")
def cluster(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    # Groups of one member need not wait for others.
    overrides = REPLICATED | {"group.initial.rebalance.delay.ms": "0"}
    with LocalCluster.start(tmp_path_factory.mktemp("oracle"), brokers=3, overrides=overrides) as running:
        yield running


@pytest.fixture
def server(cluster: LocalCluster) -> tuple[str, str]:
    """The words that tell a tool where the cluster is."""
    return "--bootstrap-server", cluster.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return "".join(one if one.isalnum() else "-" for one in request.node.name)[:200]
