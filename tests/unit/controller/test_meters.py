"""Controller metrics under Kafka's names."""

from __future__ import annotations

from typing import Any

from milena.controller.meters import ElectionMeters
from milena.lab.world.world import simulate
from milena.node.metrics import Metrics
from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import iter_batches
from milena.protocol.types import Offset
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


def test_raft_metrics_are_those_of_the_leader() -> None:
    async def steps(site: Site) -> None:
        def raft(name: str) -> float:
            return site.controller.metrics.value(f"kafka_server_raft_metrics_{name}")

        await site.register(1)
        node = site.controller.node_id
        assert (raft("current_leader"), raft("current_vote"), raft("current_epoch")) == (node, node, 1)
        assert raft("high_watermark") == raft("log_end_offset") == site.controller.state.next_offset
        assert raft("append_records_rate") > 0 and raft("fetch_records_rate") == 0
        assert raft("commit_latency_max") >= raft("commit_latency_avg") > 0
        assert (raft("number_of_voters"), raft("number_of_observers")) == (1, 0)
        assert site.controller.metadata.meters.commits.count == len(
            list(
                iter_batches(
                    site.controller.metadata.log.read(Offset(0), 1 << 20, upper=Offset(1 << 40), min_one=True).read()
                )
            )
        )

    simulate(scenario(steps), seed=57)


def test_requests_are_events_of_the_controller() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        events = site.controller.metrics.value("kafka_controller_controllereventmanager_eventqueuetimems")
        assert events >= 2, "ApiVersions and BrokerRegistration"

    simulate(scenario(steps), seed=58)
