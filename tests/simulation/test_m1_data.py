"""The data folder of M1 on simulated disks, at the time when it was written: after a clean shutdown and a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from milena.client.cluster import Cluster
from milena.client.group_consumer import GroupConsumer
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.errors import ErrorCode
from tests.fixtures.inventory import inventory
from tests.fixtures.m1 import BROKER_DIRS, LONG, load, manifest
from tests.fixtures.make_m1_data import BATCH_RECORDS, numbered_batch
from tests.simulation.steps import create, send_batch

Scenario = Callable[[SimulatedCluster, Cluster], Awaitable[None]]


def on_the_data_of_m1(scenario: Scenario, prepare: Callable[[World], None] = lambda world: None) -> None:
    async def run(world: World) -> None:
        load(world)
        prepare(world)
        of_brokers: dict[str, object] = {key.replace(".", "_"): value for key, value in LONG.items()}
        cluster = await start_cluster(world, 1, of_brokers=of_brokers | {"log_dirs": ",".join(BROKER_DIRS)})
        async with cluster.client() as client:
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=1)


async def everything_is_there(cluster: SimulatedCluster, client: Cluster) -> None:
    assert await inventory(client) == manifest()["inventory"]


def test_all_data_of_m1_is_there_after_a_clean_shutdown() -> None:
    on_the_data_of_m1(everything_is_there)


@pytest.mark.parametrize(
    "lost", [".kafka_cleanshutdown", "index", ".snapshot", "-offset-checkpoint", "leader-epoch-checkpoint"]
)
def test_all_data_of_m1_is_there_after_a_crash_that_lost_files(lost: str) -> None:
    """All segments are recovered, with one kind of files missing."""

    def crash(world: World) -> None:
        files = world.machine(host_of(1)).storage.files
        # If a log starts within a segment, only the checkpoint has its start.
        kept = ("__cluster_metadata", "/log-start-offset-checkpoint")
        for path in list(files):
            if path.endswith((".kafka_cleanshutdown", lost)) and not any(name in path for name in kept):
                del files[path]

    on_the_data_of_m1(everything_is_there, crash)


def test_a_cluster_continues_with_the_data_of_m1() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        member = GroupConsumer(client, "readers", ["segments"], auto_commit=False)
        records = await member.poll(30)
        assert min(record.offset for record in records if record.partition == 0) == 60
        await member.close()
        producer = Producer(client)
        assert (await producer.send("trimmed", b"new")).offset == 150
        assert (await producer.send("segments", b"new", partition=1)).offset == 100
        await producer.close()
        await create(client, "new")
        assert len((await client.metadata()).topics) == len(manifest()["inventory"]["topics"]) + 2

    on_the_data_of_m1(scenario)


def test_the_state_of_the_idempotent_producer_of_m1_is_known() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        known = manifest()["producer"]
        channel, _, _ = await client.leader("idempotent", 0)

        async def send(sequence: int) -> tuple[ErrorCode, int]:
            answer = await send_batch(channel, numbered_batch(known["id"], known["epoch"], sequence), "idempotent")
            return ErrorCode(answer.error_code), answer.base_offset

        end = known["last_offset"] + BATCH_RECORDS
        assert await send(known["last_sequence"]) == (ErrorCode.NONE, known["last_offset"])
        assert await send(known["last_sequence"] + 2 * BATCH_RECORDS) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await send(known["last_sequence"] + BATCH_RECORDS) == (ErrorCode.NONE, end)

    on_the_data_of_m1(scenario)
