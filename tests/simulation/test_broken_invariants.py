"""A replica with a broken invariant: only this replica goes offline, and the log has the reason with its numbers."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.errors import KafkaError
from milena.protocol.types import NodeId
from tests.simulation.steps import QUICK, create, write

STRANGER = NodeId(9)


def test_a_replica_with_a_broken_invariant_goes_offline_and_its_broker_keeps_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        broker = cluster.brokers[1]
        async with cluster.client() as client:
            await create(client, "t")
            await create(client, "u")
            partition = broker.partitions.get("t", 0)
            partition.registration.maximal_isr = (NodeId(1), STRANGER)
            monkeypatch.setattr(broker.runtime.contained, "_unforeseen", None)  # as on a real broker
            with capture_logs() as lines, pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):  # given up
                await write(client, 1, topic="t")
            await write(client, 1, topic="u")
        (line,) = [line for line in lines if line["event"].startswith("partition is offline")]
        assert line["invariant"] == "high watermark 1, but ISR member 9 has log end offset None"
        assert (line["maximal_isr"], line["log_end_offset"], line["high_watermark"]) == ([1, 9], 1, 0)
        assert partition.log is None
        cluster.check_alive()

    simulate(scenario, seed=1)
