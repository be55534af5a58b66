"""What transactions of every client must do, for the tests of each of them."""

from __future__ import annotations

import json

import pytest

from tests.wire.clients.transactional import FencedError, TransactionalClient, transactional
from tests.wire.command import milena


def only_committed_records_are_read(client: TransactionalClient, bootstrap: str, topic: str) -> None:
    """Every second transaction is aborted: its records are read only with read_uncommitted."""
    milena("topic", "create", topic, "--partitions", "2", "-b", bootstrap)
    with transactional(client, bootstrap, topic) as producer:
        for number in range(6):
            producer.begin()
            for partition in (0, 1):
                producer.send(topic, b"%d" % number, partition)
            if number % 2:
                producer.abort()
            else:
                producer.commit()
    assert client.committed(bootstrap, topic, 3) == [b"0", b"2", b"4"]
    read = ("consume", topic, "--from-beginning", "--exit", "-b", bootstrap)
    assert sorted(milena(*read).out.split()) == sorted("001122334455")
    assert sorted(milena(*read, "--isolation-level", "read_committed").out.split()) == sorted("002244")


def offsets_are_committed_with_the_records(client: TransactionalClient, bootstrap: str, topic: str) -> None:
    """A member of a group copies records: its offsets are committed with the copies, or not at all."""
    target, group = f"{topic}-target", f"{topic}-group"
    milena("topic", "create", topic, "--partitions", "2", "-b", bootstrap)
    milena("topic", "create", target, "-b", bootstrap)
    milena("produce", topic, "--partition", "0", "-b", bootstrap, stdin="a\nb\nc\n")
    for ends in ("abort", "commit"):
        with transactional(client, bootstrap, topic) as producer:
            producer.begin()
            producer.copy(topic, target, group, 3)
            assert committed(bootstrap, group) == {}
            getattr(producer, ends)()
        assert committed(bootstrap, group) == ({} if ends == "abort" else {0: 3})
    assert client.committed(bootstrap, target, 3) == [b"a", b"b", b"c"]


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """Return the committed offsets of a group by partition, if they are not 0."""
    found = json.loads(milena("group", "describe", group, "--json", "-b", bootstrap).out)
    return {one["partition"]: one["committed"] for one in found["offsets"] if one["committed"]}


def a_second_producer_fences_the_first(client: TransactionalClient, bootstrap: str, topic: str) -> None:
    """A producer cannot commit after another was initialized with its transactional id."""
    milena("topic", "create", topic, "-b", bootstrap)
    with transactional(client, bootstrap, topic) as first:
        first.begin()
        first.send(topic, b"first")
        with transactional(client, bootstrap, topic) as second:
            second.begin()
            second.send(topic, b"second")
            with pytest.raises(FencedError):
                first.commit()
            second.commit()
    assert client.committed(bootstrap, topic, 1) == [b"second"]
