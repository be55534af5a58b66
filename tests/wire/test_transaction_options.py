"""What `milena transactions` and `milena produce --transactional-id` say about options that select nothing, and what a
signal does."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from milena.testing.local_cluster import LIMIT, MILENA, LocalCluster
from tests.wire.command import milena, refused

STATES = "Empty, Ongoing, PrepareCommit, PrepareAbort, PrepareEpochFence, CompleteCommit, CompleteAbort"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("list", "--state", "ongoing"), 2, f"--state ongoing: one of {STATES}"),
        (
            ("list", "--transactional-id-pattern", "("),
            1,
            "--transactional-id-pattern (: not a regular expression (RE2)",
        ),
        (("force-terminate", "unknown"), 1, "no coordinator knows the transactional id unknown"),
    ],
)
def test_an_option_that_selects_nothing_is_named(
    cluster: LocalCluster, options: tuple[str, ...], code: int, said: str
) -> None:
    assert refused("transactions", *options, "-b", cluster.bootstrap, code=code) == said


def test_an_empty_transactional_id_is_refused_before_anything_is_sent(topic: str) -> None:
    said = refused("produce", topic, "--transactional-id", "", "-b", "127.0.0.1:1", code=2)
    assert said == "--transactional-id is empty"


def test_force_terminate_says_whether_a_transaction_was_open(cluster: LocalCluster, topic: str) -> None:
    server = ("-b", cluster.bootstrap)
    milena("topic", "create", topic, *server)
    milena("produce", topic, "--transactional-id", topic, *server, stdin="one\n")
    said = milena("transactions", "force-terminate", topic, *server).out
    assert said == f"{topic}: no transaction was open, and the producer is fenced\n"


@contextmanager
def open_transaction(bootstrap: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A producer whose transaction has the record ``lost``; its transactional id is the topic's name."""
    milena("topic", "create", topic, "-b", bootstrap)
    command = [*MILENA, "produce", topic, "--transactional-id", topic, "-b", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None
        producer.stdin.write("lost\n")
        producer.stdin.flush()
        assert milena("consume", topic, "--from-beginning", "--max", "1", "-b", bootstrap).out == "lost\n"
        yield producer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_aborts_the_transaction_of_a_producer(
    cluster: LocalCluster, topic: str, number: signal.Signals
) -> None:
    with open_transaction(cluster.bootstrap, topic) as producer:
        producer.send_signal(number)
        assert producer.wait(LIMIT) == 128 + number  # although its input is still open
        assert producer.stderr is not None
        assert producer.stderr.read() == f"milena: interrupted; the transaction of {topic} is aborted\n"
    described = json.loads(milena("transactions", "describe", topic, "--json", "-b", cluster.bootstrap).out)
    assert described["state"] in ("PrepareAbort", "CompleteAbort")


def test_the_error_of_a_fenced_producer_names_the_possible_causes(cluster: LocalCluster, topic: str) -> None:
    with open_transaction(cluster.bootstrap, topic) as producer:
        milena("produce", topic, "--transactional-id", topic, "-b", cluster.bootstrap, stdin="another\n")
        assert producer.stdin is not None and producer.stderr is not None
        producer.stdin.close()
        assert producer.wait(LIMIT) == 1
        said = producer.stderr.read()
    assert said.startswith(f"milena: the producer of {topic} is fenced: its transaction was open for more than")
    assert "another producer uses this transactional id (PRODUCER_FENCED)" in said
