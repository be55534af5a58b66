"""The states of followers as a metric and as the lab command ``follower_transitions``, and the pause of a follower that
its leader sends to the tier again."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster
from milena.node.metadata.image import TOPIC_RESOURCE
from tests.simulation.joining_replicas import A, B, add_replica, call, joined, state_of
from tests.simulation.steps import until, write
from tests.simulation.tiered_topics import bases, finished, with_tier

WHOLE = {"internal.segment.bytes": "1000000", "local.retention.bytes": "-2"}
"""Segments are rolled only when a test requests it."""


def partitions_in(cluster: SimulatedCluster, state: str) -> float:
    return cluster.brokers[B].metrics.value("milena_follower_partitions", state=state)


def test_a_follower_that_begins_in_the_tier_reports_each_state_and_the_segment_of_its_epochs() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 3)
        await call(cluster, A, "roll", topic="t", partition=0)
        await write(client, 2, first=3)
        await until(lambda: finished(cluster) == [(0, 2)])
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"local.retention.bytes": "1"})
        await until(lambda: bases(cluster, A) == [3], 5)
        located = (await call(cluster, A, "hold", api="LIST_OFFSETS", peer=B))["rule"]
        await add_replica(client, A, B)
        await call(cluster, A, "wait", rule=located, hits=1, seconds=5)
        assert partitions_in(cluster, "LocatingLocalStart") == 1
        fetching = partitions_in(cluster, "Fetching")
        await call(cluster, A, "release", rule=located)
        await until(lambda: joined(cluster, A, B), 5)
        assert partitions_in(cluster, "LocatingLocalStart") == 0
        assert partitions_in(cluster, "Fetching") == fetching + 1
        changes = [one for one in await call(cluster, B, "follower_transitions") if one["topic"] == "t"]
        assert [(one["from"], one["to"], one["event"], one["offset"]) for one in changes] == [
            (None, "Fetching", None, 0),
            ("Fetching", "LocatingLocalStart", "MOVED_TO_TIER", 0),
            ("LocatingLocalStart", "BuildingRemoteLogAux", "LOCATED", 0),
            ("BuildingRemoteLogAux", "Fetching", "BUILT", 3),
        ]
        (segment,) = await call(cluster, A, "remote_segments", topic="t", partition=0)
        assert changes[-1]["segment"] == {key: segment[key] for key in ("id", "start_offset", "end_offset")}
        times = [one["at"] for one in changes]
        assert times == sorted(times)
        assert times[-1] > times[0]
        later = await call(cluster, B, "follower_transitions", since=changes[1]["number"])
        assert [one for one in later if one["topic"] == "t"] == changes[2:]

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)


def test_a_follower_that_is_sent_to_the_tier_again_and_again_pauses_longer_and_longer() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 3)
        refused = (await call(cluster, A, "fail", api="FETCH", topic="t", error="OFFSET_MOVED_TO_TIERED_STORAGE"))[
            "rule"
        ]
        asked = (await call(cluster, A, "trace", api="LIST_OFFSETS", peer=B))["rule"]
        await add_replica(client, A, B)
        await call(cluster, A, "wait", rule=refused, hits=1, seconds=5)
        await asyncio.sleep(2)
        exchanges = await call(cluster, A, "traced", rule=asked)
        assert 6 <= len(exchanges) <= 16, "two for each of at most eight attempts"
        begun = [one["at"] for one in exchanges[::2]]
        gaps = [later - earlier for earlier, later in pairwise(begun)]
        assert gaps == sorted(gaps)
        await call(cluster, A, "release", rule=refused)
        await until(lambda: joined(cluster, A, B), 5)
        assert state_of(cluster) == "Fetching"

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)
