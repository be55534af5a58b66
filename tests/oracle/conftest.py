"""One cluster with replication factor 3 for all of Kafka's tools. Its tests are skipped if Kafka cannot be run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.oracle import kafka
from tests.oracle.tools import Tools

RECORDS = int(os.environ.get("MILENA_RECORDS", "2000"))
"""How many records go through the clients. `make oracle` without SHORT=1 sends 100,000."""

LIMIT = 300
"""Seconds that a test may take with the start of clusters and Java programs, which it may be the first to need."""

REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
"""Default topic settings of clusters of three brokers."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder ``LIMIT``, unless they have a limit of their own."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session", autouse=True)
def kafka_answers() -> None:
    """Skip the tests, with the reason, unless Java and Kafka's jars are available."""
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
    # The first rebalance of a group need not wait for more members.
    overrides = REPLICATED | {"group.initial.rebalance.delay.ms": "0"}
    with LocalCluster.start(tmp_path_factory.mktemp("oracle"), brokers=3, overrides=overrides) as running:
        yield running


@pytest.fixture
def server(cluster: LocalCluster) -> tuple[str, str]:
    """The arguments by which a tool connects to the cluster."""
    return "--bootstrap-server", cluster.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    return "".join(one if one.isalnum() else "-" for one in request.node.name)[:200]
