"""Clusters for the wire tests: one of three brokers for the whole session, others through ``milena_start``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.clients import WireClient, all_clients

RECORDS = int(os.environ.get("MILENA_RECORDS", "5000"))
"""How many records the kill tests send. CI's long form sends 100,000."""

REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
"""Default topic settings of clusters of three brokers."""


for library in ("aiokafka", "kafka"):
    # these libraries log each refused connection while a broker is down
    logging.getLogger(library).propagate = False
    logging.getLogger(library).addHandler(logging.NullHandler())


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers with replication factor 3, shared by all tests that do not stop or damage brokers."""
    with LocalCluster.start(tmp_path_factory.mktemp("wire"), brokers=3, overrides=REPLICATED) as running:
        yield running


@pytest.fixture(params=all_clients(), ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> WireClient:
    found: WireClient = request.param
    return found


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    return f"{name[:200]}-{os.urandom(3).hex()}"
