"""What `milena transactions` and `milena produce --transactional-id` say about options that select nothing."""

from __future__ import annotations

import pytest

from milena.testing.local_cluster import LocalCluster
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
