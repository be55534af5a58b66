"""Transactions of each Python client, and of the commands, against three brokers."""

from __future__ import annotations

import json

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.clients.transactional import PYTHON_CLIENTS, FencedError, TransactionalClient, transactional
from tests.wire.command import milena


@pytest.fixture(params=PYTHON_CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> TransactionalClient:
    found: TransactionalClient = request.param
    return found


@pytest.fixture
def made(cluster: LocalCluster, topic: str) -> str:
    milena("topic", "create", topic, "--partitions", "2", "-b", cluster.bootstrap)
    return topic


def test_only_committed_records_are_read(client: TransactionalClient, cluster: LocalCluster, made: str) -> None:
    with transactional(client, cluster.bootstrap, made) as producer:
        for number in range(6):
            producer.begin()
            for partition in (0, 1):
                producer.send(made, b"%d" % number, partition)
            if number % 2:
                producer.abort()
            else:
                producer.commit()
    assert client.committed(cluster.bootstrap, made, 3) == [b"0", b"2", b"4"]
    read = ("consume", made, "--from-beginning", "--exit", "-b", cluster.bootstrap)
    assert sorted(milena(*read).out.split()) == sorted("001122334455")
    assert sorted(milena(*read, "--isolation-level", "read_committed").out.split()) == sorted("002244")


def test_offsets_are_committed_with_the_records(client: TransactionalClient, cluster: LocalCluster, made: str) -> None:
    target, group = f"{made}-target", f"{made}-group"
    milena("topic", "create", target, "-b", cluster.bootstrap)
    milena("produce", made, "--partition", "0", "-b", cluster.bootstrap, stdin="a\nb\nc\n")
    for ends in ("abort", "commit"):
        with transactional(client, cluster.bootstrap, made) as producer:
            producer.begin()
            producer.copy(made, target, group, 3)
            assert committed(cluster, group) == {}
            getattr(producer, ends)()
        assert committed(cluster, group) == ({} if ends == "abort" else {0: 3})
    assert client.committed(cluster.bootstrap, target, 3) == [b"a", b"b", b"c"]


def committed(cluster: LocalCluster, group: str) -> dict[int, int]:
    """Return the committed offsets of a group by partition, if they are not 0."""
    found = json.loads(milena("group", "describe", group, "--json", "-b", cluster.bootstrap).out)
    return {one["partition"]: one["committed"] for one in found["offsets"] if one["committed"]}


def test_a_second_producer_fences_the_first(client: TransactionalClient, cluster: LocalCluster, made: str) -> None:
    with transactional(client, cluster.bootstrap, made) as first:
        first.begin()
        first.send(made, b"of the first")
        with transactional(client, cluster.bootstrap, made) as second:
            second.begin()
            second.send(made, b"of the second")
            with pytest.raises(FencedError):
                first.commit()
            second.commit()
    assert client.committed(cluster.bootstrap, made, 1) == [b"of the second"]
