"""Transactions of clients in Python and Go, against three brokers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.clients.transactional import (
    GO_LIBRARIES,
    PYTHON_CLIENTS,
    Piped,
    TransactionalClient,
)
from tests.wire.command import program
from tests.wire.transaction_cases import (
    a_second_producer_fences_the_first,
    offsets_are_committed_with_the_records,
    only_committed_records_are_read,
)

GO_PROGRAM = Path(__file__).parent / "clients" / "go"


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("go") / "transactions"
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    subprocess.run([program("go"), "build", "-o", built, "."], cwd=GO_PROGRAM, env=environment, check=True)
    return built


@pytest.fixture(
    params=[*PYTHON_CLIENTS, *(pytest.param(name, marks=pytest.mark.slow) for name in GO_LIBRARIES)],
    ids=lambda client: client if isinstance(client, str) else client.name,
)
def client(request: pytest.FixtureRequest) -> TransactionalClient:
    """A Python library, or a Go library by its name."""
    found: TransactionalClient | str = request.param
    if isinstance(found, str):
        return Piped(found, [str(request.getfixturevalue("go_program")), found])
    return found


def test_only_committed_records_are_read(client: TransactionalClient, cluster: LocalCluster, topic: str) -> None:
    only_committed_records_are_read(client, cluster.bootstrap, topic)


def test_offsets_are_committed_with_the_records(client: TransactionalClient, cluster: LocalCluster, topic: str) -> None:
    offsets_are_committed_with_the_records(client, cluster.bootstrap, topic)


def test_a_second_producer_fences_the_first(client: TransactionalClient, cluster: LocalCluster, topic: str) -> None:
    a_second_producer_fences_the_first(client, cluster.bootstrap, topic)
