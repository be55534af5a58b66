"""Elections that are asked for, and the controller's own (docs/kafka-semantics.md: Partition changes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from milena.controller.commands import leader_elections
from milena.controller.commands.leader_elections import (
    ElectionType,
    Swept,
    balance,
    elect_leaders,
    elect_unclean,
)
from milena.lab.world.world import simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import ConfigRecord, PartitionChangeRecord
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.simulated import Site, scenario

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def on_three(*isr: int, name: str = "t", features: dict[str, int] | None = None) -> Cluster:
    """Three brokers, one partition on 1, 2, 3 led by 1 with this ISR."""
    cluster = Cluster(3, features=features)
    add(cluster, name, *isr)
    return cluster


def add(cluster: Cluster, name: str, *isr: int) -> None:
    topic = cluster.assign_topic(1, 2, 3, name=name)
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, isr=isr)])


def elect(cluster: Cluster, kind: int, wanted: Sequence[tuple[str, Sequence[int]]] | None) -> dict[str, dict[int, str]]:
    outcomes = cluster.commit(elect_leaders(cluster.state, kind, wanted))
    return {topic: {n: error.code.name if error else "NONE" for n, error in results} for topic, results in outcomes}


def allow_unclean(cluster: Cluster, name: str) -> None:
    key = "unclean.leader.election.enable"
    cluster.write([ConfigRecord(resource_type=2, resource_name=name, name=key, value="true")])


def fence_and_return(cluster: Cluster, broker: int) -> None:
    cluster.beat(broker, want_fence=True)
    cluster.beat(broker)


def test_the_preferred_replica_leads_again_with_the_next_leader_epoch() -> None:
    cluster = on_three(1, 2, 3)
    fence_and_return(cluster, 1)
    topic = cluster.state.image.topics["t"].id
    assert cluster.partition().leader == 2
    assert elect(cluster, PREFERRED, [("t", [0])]) == {"t": {0: "PREFERRED_LEADER_NOT_AVAILABLE"}}, "not in sync"
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, isr=(2, 3, 1))])
    before = cluster.partition()
    assert elect(cluster, PREFERRED, [("t", [0])]) == {"t": {0: "NONE"}}
    after = cluster.partition()
    assert (after.leader, after.leader_epoch) == (1, before.leader_epoch + 1)
    assert elect(cluster, PREFERRED, [("t", [0])]) == {"t": {0: "ELECTION_NOT_NEEDED"}}


@pytest.mark.parametrize("wanted", [("none", [0]), ("t", [1])])
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_what_there_is_not_cannot_be_elected(kind: int, wanted: tuple[str, list[int]]) -> None:
    name, numbers = wanted
    assert elect(on_three(1), kind, [wanted]) == {name: {numbers[0]: "UNKNOWN_TOPIC_OR_PARTITION"}}


def test_an_unknown_kind_of_election_is_refused_as_a_whole() -> None:
    with pytest.raises(KafkaError) as failure:
        elect_leaders(on_three(1).state, 2, None)
    assert failure.value.code is ErrorCode.INVALID_REQUEST


def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    cluster = on_three(1)
    assert elect(cluster, UNCLEAN, [("t", [0])]) == {"t": {0: "ELECTION_NOT_NEEDED"}}
    cluster.beat(1, want_fence=True)
    assert cluster.partition().leader == -1
    assert elect(cluster, UNCLEAN, [("t", [0])]) == {"t": {0: "NONE"}}
    after = cluster.partition()
    assert (after.leader, after.isr, after.recovery_state) == (2, (2,), 1)


def test_without_any_replica_an_unclean_election_finds_no_leader() -> None:
    cluster = on_three(1)
    for broker in (1, 2, 3):
        cluster.beat(broker, want_fence=True)
    assert elect(cluster, UNCLEAN, [("t", [0])]) == {"t": {0: "ELIGIBLE_LEADERS_NOT_AVAILABLE"}}


def test_a_preferred_election_of_a_leaderless_partition_may_find_another_clean_leader() -> None:
    cluster = on_three(1, 2)
    topic = cluster.state.image.topics["t"].id
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, leader=-1, isr=(2,))])
    assert elect(cluster, PREFERRED, [("t", [0])]) == {"t": {0: "NONE"}}, "as in Kafka: something could be elected"
    assert cluster.partition().leader == 2


def test_for_all_only_those_are_returned_that_needed_an_election() -> None:
    cluster = on_three(1, 2, 3, name="a")
    add(cluster, "b", 1, 2, 3)
    topic = cluster.state.image.topics["b"].id
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, leader=2)])
    assert elect(cluster, PREFERRED, None) == {"a": {}, "b": {0: "NONE"}}
    assert cluster.partition("b").leader == 1


def test_for_all_those_are_returned_that_could_not_be_elected() -> None:
    cluster = on_three(1, 2, 3, name="a")
    topic = cluster.state.image.topics["a"].id
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, isr=(2, 3), leader=2)])
    assert elect(cluster, PREFERRED, None) == {"a": {0: "PREFERRED_LEADER_NOT_AVAILABLE"}}


@pytest.mark.parametrize("limit", [1, 2])
def test_a_request_elects_as_many_leaders_as_one_batch_holds(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(leader_elections, "MAX_RECORDS_PER_BATCH", limit)
    cluster = Cluster(3)
    for name in "ab":
        add(cluster, name, 1, 2, 3)
        topic = cluster.state.image.topics[name].id
        cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, leader=2)])
    if limit == 2:
        assert elect(cluster, PREFERRED, None) == {"a": {0: "NONE"}, "b": {0: "NONE"}}
    else:
        with pytest.raises(KafkaError) as failure:
            elect_leaders(cluster.state, PREFERRED, None)
        assert failure.value.code is ErrorCode.POLICY_VIOLATION


def test_leadership_is_balanced_where_the_preferred_replica_is_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_elections, "MAX_ELECTIONS", 2)
    cluster = Cluster(3)
    for name in "abcd":
        add(cluster, name, *((1, 2) if name == "b" else (1, 2, 3)))
        topic = cluster.state.image.topics[name].id
        isr = (2, 3) if name == "b" else (2, 3, 1)
        cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, leader=2, isr=isr)])
    assert cluster.state.index.imbalanced_count == 4
    assert cluster.commit(balance(cluster.state)) == Swept(2, more=True)
    assert cluster.commit(balance(cluster.state)) == Swept(1, more=False)
    assert [cluster.partition(name).leader for name in "abcd"] == [1, 2, 1, 1]
    assert cluster.commit(balance(cluster.state)) == Swept(0, more=False)


def test_the_sweep_elects_uncleanly_where_the_topic_allows_it() -> None:
    cluster = on_three(1, name="a")
    add(cluster, "b", 1)
    cluster.beat(1, want_fence=True)
    allow_unclean(cluster, "b")
    assert cluster.commit(elect_unclean(cluster.state)) == Swept(1, more=False)
    assert (cluster.partition("a").leader, cluster.partition("b").leader) == (-1, 2)


def test_with_elr_who_left_the_isr_below_its_minimum_is_elected_cleanly() -> None:
    """KIP-966."""
    cluster = on_three(1, 2, features={"eligible.leader.replicas.version": 1})
    cluster.write([ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")])
    cluster.beat(2, want_fence=True)
    assert (cluster.partition().isr, cluster.partition().elr) == ((1,), (2,))
    cluster.beat(1, want_fence=True)
    without = cluster.partition()
    assert (without.leader, without.isr, without.elr, without.last_known_elr) == (-1, (), (1, 2), (1,))
    cluster.beat(2)
    after = cluster.partition()
    assert (after.leader, after.isr, after.elr, after.recovery_state) == (2, (2,), (1,), 0)
    assert after.last_known_elr == ()


def test_with_elr_an_unclean_restart_ends_eligibility_and_a_clean_one_does_not() -> None:
    for clean in (False, True):
        cluster = on_three(1, 2, features={"eligible.leader.replicas.version": 1})
        cluster.write([ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")])
        cluster.beat(2, want_fence=True)
        former = cluster.state.image.brokers[2].epoch
        cluster.now += 10
        cluster.beat(1)
        cluster.register(2, run=1, previous_epoch=former if clean else -1)
        assert cluster.partition().elr == ((2,) if clean else ())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_over_the_wire(version: int) -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        await site.create("t")
        kind: dict[str, Any] = {} if version == 0 else {"election_type": 0}
        for partitions, expected in (
            ([{"topic": "t", "partitions": [0, 7]}], {"t": [84, 3]}),
            ([], {}),
            (None, {"t": []}),
        ):
            answer = await site.ask(ApiKey.ELECT_LEADERS, version, topic_partitions=partitions, timeout_ms=1000, **kind)
            found = {r.topic: [p.error_code for p in r.partition_result] for r in answer.replica_election_results}
            assert found == expected
        if version:
            bad = await site.ask(
                ApiKey.ELECT_LEADERS,
                version,
                topic_partitions=[{"topic": "t", "partitions": [0]}],
                timeout_ms=1000,
                election_type=5,
            )
            assert bad.error_code == ErrorCode.INVALID_REQUEST
            assert bad.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST

    simulate(scenario(steps), seed=53)
