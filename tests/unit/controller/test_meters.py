"""Controller metrics under Kafka's names."""

from __future__ import annotations

from typing import Any

from milena.controller.meters import ElectionMeters
from milena.lab.world.world import simulate
from milena.node.metrics import Metrics
from milena.protocol.api_keys import ApiKey
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.simulated import Site, scenario

UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelectionspersec_total"
FROM_ELR = "kafka_controller_controllerstats_electionfromeligibleleaderreplicaspersec_total"


def counted(cluster: Cluster) -> Metrics:
    metrics = Metrics()
    cluster.state.index.changed = ElectionMeters(metrics).changed
    return metrics


def test_clean_elections_are_not_counted_unclean_ones_are() -> None:
    cluster = Cluster(3, unclean_leader_election_enable="true")
    metrics = counted(cluster)
    cluster.assign_topic(1, 2, 3, isr=[1, 2])
    cluster.beat(1, want_fence=True)
    assert (cluster.partition().leader, metrics.value(UNCLEAN)) == (2, 0)
    cluster.beat(2, want_fence=True)
    assert (cluster.partition().leader, metrics.value(UNCLEAN), metrics.value(FROM_ELR)) == (3, 1, 0)


def test_elections_of_eligible_replicas_are_counted() -> None:
    cluster = Cluster(2, features={"eligible.leader.replicas.version": 1})
    metrics = counted(cluster)
    cluster.assign_topic(1, 2, isr=[1])
    cluster.beat(1, want_fence=True)
    assert cluster.partition().elr == (1,)
    cluster.beat(1)
    assert (metrics.value(UNCLEAN), metrics.value(FROM_ELR)) == (0, 1)


def test_gauges_follow_brokers_and_partitions() -> None:
    async def steps(site: Site) -> None:
        def gauges() -> dict[str, float]:
            names = (
                "activebrokercount",
                "fencedbrokercount",
                "offlinepartitionscount",
                "preferredreplicaimbalancecount",
            )
            return {name: site.controller.metrics.value(f"kafka_controller_kafkacontroller_{name}") for name in names}

        epochs = [await site.register(broker) for broker in (1, 2)]
        assignment: list[dict[str, Any]] = [{"partition_index": 0, "broker_ids": [1, 2]}]
        await site.create("t", num_partitions=-1, replication_factor=-1, assignments=assignment)
        assert list(gauges().values()) == [2, 0, 0, 0]
        await site.beat(1, epochs[0], want_fence=True)
        assert list(gauges().values()) == [1, 1, 0, 1]
        await site.beat(2, epochs[1], want_fence=True)
        assert list(gauges().values()) == [0, 2, 1, 1]
        assert (await site.ask(ApiKey.UNREGISTER_BROKER, broker_id=2)).error_code == 0
        assert list(gauges().values()) == [0, 1, 1, 1]

    simulate(scenario(steps), seed=56)
