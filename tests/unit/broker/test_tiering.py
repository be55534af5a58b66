"""The address by which the tier's clients connect to their own broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from milena.broker.tiering import TieringNode, _metadata
from milena.config.node_config import NodeConfig
from milena.lab.world.world import World, simulate


@pytest.mark.parametrize("bound", ["::", "0.0.0.0"])
def test_the_tier_client_reaches_a_broker_on_all_addresses_without_ipv6(bound: str) -> None:
    config = NodeConfig.of(
        process_roles="broker",
        node_id=1,
        listeners="PLAINTEXT://:9092",
        controller_listener_names="CONTROLLER",
        controller_quorum_voters="1000@controller:9093",
    )

    async def steps(world: World) -> None:
        runtime = world.machine("broker").start()
        node = SimpleNamespace(runtime=runtime, node_id=1, bound_listeners={"PLAINTEXT": (bound, 9092)})
        assert _metadata(cast(TieringNode, node), config)._addresses() == [("localhost", 9092)]

    simulate(steps, seed=1)
