"""A replica with a broken invariant: only this replica goes offline, and the log has the reason with its numbers."""

from __future__ import annotations

import gc
import warnings

import pytest
from structlog.testing import capture_logs

from milena.lab.chaos.simulated.seeds import run_seed
from milena.lab.cluster import start_cluster
from milena.lab.invariants.broken import InvariantBroken
from milena.lab.world.loop import SimulatedLoop
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


def test_a_run_that_ends_with_an_error_awaits_all_its_coroutines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of groups, among others, are about to do something a moment later."""
    run_once = SimulatedLoop._run_once

    def until(loop: SimulatedLoop) -> None:
        run_once(loop)
        if loop.after_event is not None and loop.time() >= 0.05:
            raise InvariantBroken("planted")

    monkeypatch.setattr(SimulatedLoop, "_run_once", until)
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(InvariantBroken, match="planted"):
            run_seed(1)
        gc.collect()
    assert [str(one.message) for one in caught] == []
