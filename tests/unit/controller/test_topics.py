"""Topics are created, grown and deleted, and refused as Kafka refuses them."""

from __future__ import annotations

import gc
import weakref
from typing import Any, cast
from uuid import UUID

import pytest

from milena.controller.commands.topics import (
    CreatedTopic,
    DoomedTopic,
    NewPartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import METADATA_TOPIC, NodeId
from milena.runtime.randomness import Randomness
from tests.unit.controller.cluster import Cluster, directory


def create(cluster: Cluster, **fields: Any) -> CreatedTopic | KafkaError:
    topic = NewTopic(**({"name": "t", "configs": {}} | fields))
    ((name, outcome),) = cluster.commit(create_topics(cluster.state, [topic], cluster.random))
    assert name == topic.name
    return outcome


def code(outcome: object) -> ErrorCode | None:
    return outcome.code if isinstance(outcome, KafkaError) else None


def test_a_topic_is_placed_on_its_replicas_and_led_by_the_first() -> None:
    cluster = Cluster(3)
    created = create(cluster, partitions=6, replication_factor=3)
    assert isinstance(created, CreatedTopic)
    assert (created.partitions, created.replication_factor) == (6, 3)
    topic = cluster.state.image.topics_by_id[created.id]
    for partition in topic.partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(directory(replica) for replica in partition.replicas)


def test_partitions_and_replication_factor_come_from_the_configuration() -> None:
    cluster = Cluster(2, num_partitions=5, default_replication_factor=2)
    created = create(cluster)
    assert isinstance(created, CreatedTopic)
    assert (created.partitions, created.replication_factor) == (5, 2)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "ä"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x\n"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 249}, None),
        ({"name": "old"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "a_b.c"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": METADATA_TOPIC}, ErrorCode.INVALID_REQUEST),
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"no.such.key": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
        ({"assignments": [(0, [1])], "partitions": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": [(0, [1])], "replication_factor": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": [(1, [1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [1]), (0, [2])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [1]), (1, [1, 2])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [1, 1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [9])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [2, 1]), (1, [1, 2])]}, None),
    ],
)
def test_what_is_taken_and_what_is_refused(fields: dict[str, Any], expected: ErrorCode | None) -> None:
    cluster = Cluster(2)
    cluster.create_topic("old")
    cluster.create_topic("a.b_c")
    assert code(create(cluster, **fields)) is expected
    assert (fields.get("name", "t") in cluster.state.image.topics) == (
        expected in (None, ErrorCode.TOPIC_ALREADY_EXISTS)
    )


def test_an_assignment_to_fenced_brokers_alone_is_refused_and_a_mixed_one_is_led_by_who_is_there() -> None:
    cluster = Cluster(2)
    cluster.beat(1, want_fence=True)
    assert code(create(cluster, assignments=[(0, [NodeId(1)])])) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.assign_topic(1, 2)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    cluster.beat(2, want_fence=True)
    assert code(create(cluster, name="u")) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topics_configs_come_with_it_and_go_with_it() -> None:
    cluster = Cluster(1)
    create(cluster, configs={"retention.ms": "1000"})
    assert cluster.state.image.config(TOPIC_RESOURCE, "t") == {"retention.ms": "1000"}
    cluster.commit(delete_topics(cluster.state, [DoomedTopic("t", None)]))
    assert not cluster.state.image.topics
    assert cluster.state.image.config(TOPIC_RESOURCE, "t") == {}


def test_each_topic_of_a_request_is_judged_alone_but_a_name_must_come_once() -> None:
    cluster = Cluster(1)
    wanted = [NewTopic(name=name, configs={}) for name in ("a", "twice", "b!", "twice", "c")]
    outcomes = cluster.commit(create_topics(cluster.state, wanted, cluster.random))
    assert {name: code(outcome) for name, outcome in outcomes} == {
        "a": None,
        "b!": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c": None,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert sorted(cluster.state.image.topics) == ["a", "c"]


def test_a_request_that_only_validates_writes_nothing() -> None:
    cluster = Cluster(1)
    result = create_topics(cluster.state, [NewTopic(name="t", configs={})], cluster.random, validate_only=True)
    assert not result.records
    assert isinstance(result.response[0][1], CreatedTopic)


@pytest.mark.parametrize("counts", [[10_001], [9_999, 9_999], [10_000]])
def test_a_request_is_limited_to_what_fits_one_batch(counts: list[int]) -> None:
    cluster = Cluster(1)
    wanted = [NewTopic(name=f"t{n}", partitions=count, configs={}) for n, count in enumerate(counts)]
    with pytest.raises(KafkaError) as failure:
        create_topics(cluster.state, wanted, cluster.random)
    assert failure.value.code is ErrorCode.POLICY_VIOLATION


def grow(cluster: Cluster, count: int, assignments: list[list[int]] | None = None, topic: str = "t") -> object:
    given = None if assignments is None else [[NodeId(r) for r in replicas] for replicas in assignments]
    wanted = [NewPartitions(topic, count, given)]
    ((_, outcome),) = cluster.commit(create_partitions(cluster.state, wanted, cluster.random))
    return outcome


def test_partitions_are_added_with_the_replication_factor_of_the_others() -> None:
    cluster = Cluster(3)
    cluster.create_topic(partitions=1, replicas=2)
    assert grow(cluster, 4) is None
    assert len(cluster.state.image.topics["t"].partitions) == 4
    assert all(len(cluster.partition(number=n).replicas) == 2 for n in range(4))
    assert grow(cluster, 5, [[3, 1]]) is None
    assert cluster.partition(number=4).replicas == (3, 1)


@pytest.mark.parametrize(
    ("count", "assignments", "topic", "expected"),
    [
        (2, None, "t", ErrorCode.INVALID_PARTITIONS),
        (1, None, "t", ErrorCode.INVALID_PARTITIONS),
        (3, None, "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (3, [[1], [1]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 2]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[9]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_is_none_or_badly_assigned_is_refused(
    count: int, assignments: list[list[int]] | None, topic: str, expected: ErrorCode
) -> None:
    cluster = Cluster(2)
    cluster.create_topic(partitions=2)
    assert code(grow(cluster, count, assignments, topic)) is expected


def test_topics_are_deleted_by_name_and_by_id_and_never_twice() -> None:
    cluster = Cluster(1)
    ids = {name: cluster.create_topic(name) for name in ("a", "b", "c", "d", "e")}
    unknown = UUID(int=77 << 64)
    wanted = [
        DoomedTopic("a", None),
        DoomedTopic(None, ids["b"]),
        DoomedTopic("c", None),
        DoomedTopic("c", None),
        DoomedTopic("d", None),
        DoomedTopic(None, ids["d"]),
        DoomedTopic("e", ids["e"]),
        DoomedTopic(None, None),
        DoomedTopic("z", None),
        DoomedTopic(None, unknown),
    ]
    outcomes = cluster.commit(delete_topics(cluster.state, wanted))
    got = [(outcome.name, outcome.id, code(outcome.error)) for outcome in outcomes]
    assert sorted(got, key=repr) == sorted(
        [
            ("a", ids["a"], None),
            ("b", ids["b"], None),
            ("c", None, ErrorCode.INVALID_REQUEST),
            ("d", ids["d"], ErrorCode.INVALID_REQUEST),
            ("e", ids["e"], ErrorCode.INVALID_REQUEST),
            (None, None, ErrorCode.INVALID_REQUEST),
            ("z", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ],
        key=repr,
    )
    assert sorted(cluster.state.image.topics) == ["c", "d", "e"]


def test_a_deleted_topic_concerns_no_broker_any_more() -> None:
    cluster = Cluster(1)
    cluster.create_topic(partitions=3)
    assert cluster.state.index.leads(1)
    cluster.commit(delete_topics(cluster.state, [DoomedTopic("t", None)]))
    assert not cluster.state.index.leads(1)
    assert cluster.state.index.in_isr(1) == []


def test_topics_grow_together_by_what_fits_one_batch_alone() -> None:
    """No more is placed than can be written: a thousand topics might grow by 10,000 partitions each."""
    cluster = Cluster(1)
    names = [f"t{n}" for n in range(40)]
    cluster.commit(create_topics(cluster.state, [NewTopic(name=n, configs={}) for n in names], cluster.random))
    drawn = CountedDraws(7)
    cluster.random = cast(Randomness, drawn)
    with pytest.raises(KafkaError) as failure:
        create_partitions(cluster.state, [NewPartitions(name, 6_000) for name in names], cluster.random)
    assert failure.value.code is ErrorCode.POLICY_VIOLATION
    assert drawn.count < 20, "two topics were placed, not forty"


class CountedDraws:
    """Each placement draws where it begins."""

    def __init__(self, seed: int) -> None:
        self.count = 0
        self._drawn = Randomness(seed)

    def below(self, bound: int) -> int:
        self.count += 1
        return self._drawn.below(bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drawn, name)


def test_refusals_are_gone_with_the_answer() -> None:
    """Without a garbage collection: errors that keep their frames made 300 MB of circles of one request."""
    cluster = Cluster()
    gc.disable()
    try:
        wanted = [NewPartitions(f"missing-{number}", 3) for number in range(5)]
        result = create_partitions(cluster.state, wanted, Randomness(1))
        [first, *_] = [weakref.ref(error) for _, error in result.response if error is not None]
        del result
        assert first() is None
    finally:
        gc.enable()
