"""One cluster with some data for all of Kafka's tools; everything is skipped where Kafka cannot be run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milena.local_cluster import LocalCluster
from tests.oracle import kafka


@pytest.fixture(scope="session", autouse=True)
def kafka_answers() -> None:
    """Java and the jars are there, or the reason is told."""
    try:
        kafka.jars()
    except kafka.NoKafka as reason:
        pytest.skip(f"Kafka's tools cannot be run: {reason}")


@pytest.fixture(scope="session")
def cluster(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("oracle"), brokers=3) as running:
        yield running
