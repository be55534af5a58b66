"""The headers of records that a log has several times are read from the cluster."""

from __future__ import annotations

from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.lab.chaos.ending import copies_of
from milena.lab.cluster import start_cluster
from milena.lab.histories.copies import Copies
from milena.lab.world.world import World, simulate
from tests.simulation.steps import create


def test_copies_have_the_producer_id_the_epoch_and_their_own_sequence_number() -> None:
    """The second copy is the last of three records of one batch; a record without a producer id is left out."""

    async def scenario(world: World) -> Copies:
        cluster = await start_cluster(world)
        async with cluster.client() as client:
            return await sent(client)

    async def sent(client: Cluster) -> Copies:
        await create(client)
        first, second = Producer(client), Producer(client)
        await first.send("t", b"a", partition=0)
        futures = [await second.enqueue("t", value, partition=0) for value in (b"b", b"c", b"a")]
        for future in futures:
            await future
        plain = Producer(client, idempotent=False)
        await plain.send("t", b"a", partition=0)
        for producer in (first, second, plain):
            await producer.close()
        return await copies_of(client, ("t", 0), "a", [0, 3, 4])

    (one, another) = simulate(scenario, seed=1).copies
    assert (one[0], one[2:]) == (0, (0, 0))
    assert (another[0], another[2:]) == (3, (0, 2))
    assert one[1] != another[1]
