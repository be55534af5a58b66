"""Dynamic configurations are checked and written."""

from __future__ import annotations

import pytest

from milena.controller.commands.configs import Change, Op, alter_incrementally, replace
from milena.controller.state.result import Result
from milena.node.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import ConfigRecord
from tests.unit.controller.cluster import Cluster

TOPIC = (TOPIC_RESOURCE, "t")
ALL_BROKERS = (BROKER_RESOURCE, "")
BROKER = (BROKER_RESOURCE, "1")


def cluster_with_topic(**options: int) -> Cluster:
    cluster = Cluster(1, features=options)
    cluster.create_topic()
    return cluster


def alter(cluster: Cluster, resource: tuple[int, str], key: str, op: Op, value: str | None) -> ErrorCode | None:
    outcomes = cluster.commit(alter_incrementally(cluster.state, {resource: {key: Change(op, value)}}))
    outcome = outcomes[resource]
    return outcome.code if isinstance(outcome, KafkaError) else None


def test_a_topics_key_is_set_and_deleted() -> None:
    cluster = cluster_with_topic()
    assert alter(cluster, TOPIC, "retention.ms", Op.SET, "5000") is None
    assert cluster.state.image.config(*TOPIC) == {"retention.ms": "5000"}
    before = cluster.state.next_offset
    assert alter(cluster, TOPIC, "retention.ms", Op.SET, "5000") is None
    assert cluster.state.next_offset == before
    assert alter(cluster, TOPIC, "retention.ms", Op.DELETE, None) is None
    assert cluster.state.image.config(*TOPIC) == {}


def test_lists_grow_and_shrink_from_the_default_on() -> None:
    cluster = cluster_with_topic()
    assert alter(cluster, TOPIC, "cleanup.policy", Op.APPEND, "compact") is None
    assert cluster.state.image.config(*TOPIC) == {"cleanup.policy": "delete,compact"}
    assert alter(cluster, TOPIC, "cleanup.policy", Op.SUBTRACT, "delete") is None
    assert cluster.state.image.config(*TOPIC) == {"cleanup.policy": "compact"}
    assert alter(cluster, TOPIC, "retention.ms", Op.APPEND, "1") is ErrorCode.INVALID_CONFIG


def test_a_list_takes_an_item_once_and_loses_the_first_of_each_that_is_given() -> None:
    cluster = cluster_with_topic()
    throttled = "leader.replication.throttled.replicas"
    assert alter(cluster, TOPIC, throttled, Op.SET, "0:1,1:1,0:1,2:1") is None
    assert alter(cluster, TOPIC, throttled, Op.APPEND, "1:1,3:1,3:1") is None
    assert cluster.state.image.config(*TOPIC) == {throttled: "0:1,1:1,0:1,2:1,3:1"}
    assert alter(cluster, TOPIC, throttled, Op.SUBTRACT, "0:1,2:1,9:1") is None
    assert cluster.state.image.config(*TOPIC) == {throttled: "1:1,0:1,3:1"}
    for text in ("1:1,", ",", ",,"):
        assert alter(cluster, TOPIC, throttled, Op.APPEND, text) is None
    assert cluster.state.image.config(*TOPIC) == {throttled: "1:1,0:1,3:1"}


@pytest.mark.parametrize("texts", [["*,*"], ["*", "*,,*"]])
def test_a_list_of_throttled_replicas_is_one_asterisk_or_pairs(texts: list[str]) -> None:
    cluster = cluster_with_topic()
    throttled = "leader.replication.throttled.replicas"
    *before, last = (alter(cluster, TOPIC, throttled, Op.SET, text) for text in texts)
    assert (before, last) == ([None] * len(before), ErrorCode.INVALID_CONFIG)


@pytest.mark.parametrize("key", ["retention.ms", "min.insync.replicas", "min.cleanable.dirty.ratio"])
@pytest.mark.parametrize("text", ["9" * 5_000, "-" + "9" * 5_000, "1_000", "--1"])
def test_a_number_that_is_none_or_far_too_long_is_an_invalid_value(key: str, text: str) -> None:
    if key != "min.cleanable.dirty.ratio" or "9" not in text:
        assert alter(cluster_with_topic(), TOPIC, key, Op.SET, text) is ErrorCode.INVALID_CONFIG
    assert alter(cluster_with_topic(), (BROKER_RESOURCE, text), "log.retention.ms", Op.SET, "1") in (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    )


@pytest.mark.parametrize(
    ("resource", "key", "value", "expected"),
    [
        (TOPIC, "retention.ms", "often", ErrorCode.INVALID_CONFIG),
        (TOPIC, "no.such.key", "1", ErrorCode.INVALID_CONFIG),
        (TOPIC, "cleanup.policy", "d" * 32_768, ErrorCode.INVALID_CONFIG),
        ((TOPIC_RESOURCE, "u"), "retention.ms", "1", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC_RESOURCE, ""), "retention.ms", "1", ErrorCode.INVALID_REQUEST),
        ((TOPIC_RESOURCE, "u/v"), "retention.ms", "1", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((BROKER_RESOURCE, "x"), "log.retention.ms", "1", ErrorCode.INVALID_REQUEST),
        ((BROKER_RESOURCE, "-2"), "log.retention.ms", "1", ErrorCode.INVALID_REQUEST),
        ((BROKER_RESOURCE, "9"), "log.retention.ms", "1", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "log.retention.ms", "often", ErrorCode.INVALID_REQUEST),
        (BROKER, "node.id", "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "log.retention.ms", "1", None),
        ((99, "t"), "retention.ms", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_taken_and_what_is_refused(
    resource: tuple[int, str], key: str, value: str, expected: ErrorCode | None
) -> None:
    assert alter(cluster_with_topic(), resource, key, Op.SET, value) is expected


def test_a_value_of_a_broker_is_written_again_so_that_it_reloads_files() -> None:
    cluster = cluster_with_topic()
    alter(cluster, BROKER, "log.retention.ms", Op.SET, "1")
    before = cluster.state.next_offset
    alter(cluster, BROKER, "log.retention.ms", Op.SET, "1")
    assert cluster.state.next_offset == before + 1


@pytest.mark.parametrize("resource", [ALL_BROKERS, BROKER, TOPIC])
def test_a_key_of_earlier_versions_can_be_deleted_and_not_set(resource: tuple[int, str]) -> None:
    key = "remote.log.compaction.work.orders.enable"
    cluster = cluster_with_topic()
    assert alter(cluster, resource, key, Op.SET, "true") is ErrorCode.INVALID_CONFIG
    outcome = cluster.commit(replace(cluster.state, {resource: {key: "true"}}))[resource]
    assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.INVALID_CONFIG
    kind, name = resource
    cluster.commit(Result([ConfigRecord(resource_type=kind, resource_name=name, name=key, value="true")], None))
    if resource != TOPIC:
        assert alter(cluster, resource, "log.retention.ms", Op.SET, "1") is None
    assert alter(cluster, resource, key, Op.DELETE, None) is None
    assert key not in cluster.state.image.config(*resource)


def test_alter_configs_leaves_only_what_it_names() -> None:
    cluster = cluster_with_topic()
    alter(cluster, TOPIC, "retention.ms", Op.SET, "1")
    cluster.commit(replace(cluster.state, {TOPIC: {"retention.bytes": "2"}}))
    assert cluster.state.image.config(*TOPIC) == {"retention.bytes": "2"}


def test_a_refused_resource_changes_nothing_and_does_not_hinder_others() -> None:
    cluster = cluster_with_topic()
    changes = {
        TOPIC: {"retention.ms": Change(Op.SET, "1"), "flush.ms": Change(Op.SET, "no")},
        ALL_BROKERS: {"log.retention.ms": Change(Op.SET, "2")},
    }
    outcomes = cluster.commit(alter_incrementally(cluster.state, changes))
    assert isinstance(outcomes[TOPIC], KafkaError)
    assert outcomes[ALL_BROKERS] is None
    assert cluster.state.image.configs == {ALL_BROKERS: {"log.retention.ms": "2"}}


def test_the_defaults_of_all_brokers_count_for_what_the_controller_decides() -> None:
    cluster = cluster_with_topic()
    assert not cluster.state.unclean_elections("t")
    alter(cluster, ALL_BROKERS, "unclean.leader.election.enable", Op.SET, "true")
    assert cluster.state.unclean_elections("t")
    alter(cluster, TOPIC, "unclean.leader.election.enable", Op.SET, "false")
    assert not cluster.state.unclean_elections("t")


def test_with_elr_the_clusters_min_isr_stays_and_changing_one_clears_the_elrs() -> None:
    cluster = Cluster(2, features={"eligible.leader.replicas.version": 1})
    cluster.assign_topic(1, 2)
    assert alter(cluster, ALL_BROKERS, "min.insync.replicas", Op.SET, "2") is None
    assert alter(cluster, ALL_BROKERS, "min.insync.replicas", Op.DELETE, None) is ErrorCode.INVALID_CONFIG
    assert alter(cluster, BROKER, "min.insync.replicas", Op.SET, "2") is ErrorCode.INVALID_CONFIG
    cluster.beat(1, want_fence=True)
    assert cluster.partition().elr == (1,)
    assert alter(cluster, TOPIC, "min.insync.replicas", Op.SET, "1") is None
    assert cluster.partition().elr == ()


@pytest.mark.parametrize(
    ("resource", "key", "value", "expected"),
    [
        ((GROUP_RESOURCE, "g"), "consumer.session.timeout.ms", "50000", None),
        ((GROUP_RESOURCE, "g"), "consumer.session.timeout.ms", "1000", ErrorCode.INVALID_CONFIG),
        ((GROUP_RESOURCE, "g"), "retention.ms", "1000", ErrorCode.INVALID_CONFIG),
        ((GROUP_RESOURCE, ""), "consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
        ((CLIENT_METRICS_RESOURCE, "m"), "match", "client_id=a.*", None),
        ((CLIENT_METRICS_RESOURCE, "m"), "match", r"client_id=\p{L}+", None),
        ((CLIENT_METRICS_RESOURCE, "m"), "match", "client_id=" + "(" * 20_000, ErrorCode.INVALID_CONFIG),
        ((CLIENT_METRICS_RESOURCE, "m"), "interval.ms", "1", ErrorCode.INVALID_REQUEST),
        ((CLIENT_METRICS_RESOURCE, "m"), "no.such.key", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_groups_and_client_metrics(resource: tuple[int, str], key: str, value: str, expected: ErrorCode | None) -> None:
    cluster = Cluster(1)
    assert alter(cluster, resource, key, Op.SET, value) is expected
    assert cluster.state.image.config(*resource) == ({} if expected else {key: value})
