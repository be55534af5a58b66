"""A step of a metadata publication that fails: the other steps are carried out, and the broker keeps running."""

from __future__ import annotations

import pytest

from milena.broker.groups.coordinator import GroupCoordinator
from milena.broker.hosting.config_store import ConfigStore
from milena.broker.replica.partition import Partition
from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate
from milena.node.metadata.image import Delta
from tests.simulation.steps import QUICK, create, write


def fail(*_: object) -> None:
    raise ValueError("unforeseen")


@pytest.mark.parametrize(
    ("owner", "part"), [(ConfigStore, "publish"), (Partition, "check_isr"), (GroupCoordinator, "topics_deleted")]
)
def test_the_other_steps_of_a_publication_are_carried_out_if_one_fails(
    monkeypatch: pytest.MonkeyPatch, owner: type, part: str
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        broker = cluster.brokers[1]
        applier = broker._applier
        async with cluster.client() as client:
            await create(client, "t")
            monkeypatch.setattr(broker.runtime.contained, "_unforeseen", None)  # as on a real broker
            monkeypatch.setattr(owner, part, fail)
            applier.applied_offset = -1
            topic = broker.image.topics["t"]
            applier.publish(Delta(brokers={1}, deleted_topics=[topic]))
            assert applier.applied_offset == broker.image.offset
            await create(client, "u")
            await write(client, 1, topic="u")
        assert broker.runtime.contained.count > 0
        cluster.check_alive()

    simulate(scenario, seed=1)
