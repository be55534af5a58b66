"""What seeds with a tier have found, each as a scenario of its own."""

from __future__ import annotations

from lab.cluster import SimulatedCluster, host_of
from node.client.cluster import Cluster
from tests.simulation.steps import storage_of, until, write
from tests.simulation.test_tier_followers import joined, records, state_of
from tests.simulation.test_tier_trouble import leader_of
from tests.simulation.tiered_topics import bases, finished, log_of, replica, with_unclean_elections

A, B = 1, 2


def test_a_follower_without_epochs_keeps_its_records_until_its_leader_has_told_it_more() -> None:
    """Seed 11: it is elected uncleanly, with records that the tier lacks. What it had dropped before was a hole that
    nobody could read, and no follower could build its state behind it."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 6)
        await until(lambda: finished(cluster) == [(0, 3)] and bases(cluster, B) == [4])
        folder = log_of(cluster, B).folder
        await cluster.kill(host_of(B))
        await until(lambda: joined(cluster, A))
        del storage_of(cluster, B).files[f"{folder}/leader-epoch-checkpoint"]
        cluster.world.machine(host_of(A)).pause()
        await cluster.start_broker(B)
        await until(lambda: state_of(cluster, B) == "LocatingLocalStart")
        assert await records(cluster, B) == {4: 4, 5: 5}
        await until(lambda: leader_of(cluster) == B and replica(cluster, B).is_leader, 30)
        cluster.world.machine(host_of(A)).resume()
        await until(lambda: joined(cluster, A, B), 30)
        await write(client, 2, first=6)
        for broker in (A, B):
            found = await records(cluster, broker)
            assert {offset: found[offset] for offset in range(4, 8)} == {4: 4, 5: 5, 6: 6, 7: 7}

    with_unclean_elections(scenario, 1)
