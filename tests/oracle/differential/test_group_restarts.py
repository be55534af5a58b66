"""Groups whose coordinator is killed: responses to their members after the restart has loaded the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.testing.local_cluster import LocalCluster
from tests.oracle.differential.conftest import CONFIG, FEATURES, make_ready
from tests.oracle.differential.members import enter, heartbeat, join, joining, settle
from tests.oracle.differential.pair import Pair
from tests.oracle.differential.sides import Name, Side
from tests.oracle.kafka_node import running_kafka, started_kafka

STATIC, DYNAMIC = "of-a-static-member", "of-members-that-die"
CHANGED = [{"name": "range", "metadata": b"\0\1\0\0\0\0\0\0\0\1x"}]
"""A subscription with other user data."""


@pytest.fixture(scope="module")
def restarted(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both nodes, which were killed after ``_make_groups``, and restarted."""
    folder = tmp_path_factory.mktemp("restarts")
    overrides = {key.replace(".", "_"): value for key, value in CONFIG.items()}
    with LocalCluster.start(folder / "milena", overrides=CONFIG, options=["--no-tier"]) as cluster, ExitStack() as life:
        kafka = running_kafka(folder / "kafka", features=FEATURES, static_voter=True, **overrides)
        with kafka as node:
            host, _, port = cluster.bootstrap.rpartition(":")
            sides = Side("Kafka", *node.broker, node.node_id), Side("Milena", host, int(port), cluster.brokers[0].id)
            pair = Pair(sides)
            make_ready(pair)
            _make_groups(pair)
            pair.close()
        cluster.kill(cluster.brokers[0].id)
        cluster.restart(cluster.brokers[0].id)
        life.enter_context(started_kafka(folder / "kafka" / "kafka.properties", node.broker))
        pair = Pair(sides)
        make_ready(pair)
        yield pair
        pair.close()


def _make_groups(pair: Pair) -> None:
    first = enter(pair, STATIC, "first", group_instance_id="i")
    settle(pair, STATIC, first)
    join(pair, 9, STATIC, member_id=first, group_instance_id="i", protocols=CHANGED)
    join(pair, 9, STATIC, group_instance_id="i", protocols=CHANGED).learn("second", lambda answer: answer["member_id"])
    settle(pair, DYNAMIC, enter(pair, DYNAMIC, "dead", session_timeout_ms=6_000))


def test_a_static_member_whose_new_generation_was_lost(restarted: Pair) -> None:
    """Kafka fences the member permanently, although no other has its instance id: the log has the previous member id.
    In Milena it joins again."""
    asked: dict[str, Any] = {
        "group_id": STATIC,
        "generation_id": 3,
        "member_id": Name("second"),
        "group_instance_id": "i",
    }
    answers = restarted.ask(ApiKey.HEARTBEAT, 4, **asked)
    codes = [ErrorCode(answer["error_code"]) for answer in answers.both]
    assert codes == [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION]


def test_a_new_member_waits_for_the_sessions_of_members_that_ended_with_the_coordinator(restarted: Pair) -> None:
    """The log has the ended members, and each gets one session timeout from the load on. If that is over before the new
    member joins, the group was empty for a generation."""
    newcomer = restarted.ask(ApiKey.JOIN_GROUP, 9, **joining(DYNAMIC)).learn("newcomer", lambda one: one["member_id"])
    joined = restarted.ask(ApiKey.JOIN_GROUP, 9, **joining(DYNAMIC, member_id=newcomer))
    joined.check("the newcomer joins", ignore=["generation_id"])
    assert {answer["generation_id"] for answer in joined.both} <= {2, 3}
    generation: Any = joined.learn("its generation", lambda answer: answer["generation_id"])
    settle(restarted, DYNAMIC, newcomer, generation)
    heartbeat(restarted, 4, DYNAMIC, member_id=newcomer, generation_id=generation)
    heartbeat(restarted, 4, DYNAMIC, member_id=Name("dead"))
