"""Log directories that come back with another id, without one, or empty."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from milena.client.cluster import Cluster
from milena.lab.cluster import CONTROLLER, NodeEnded, SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.features import ELR_VERSION
from milena.protocol.types import NodeId
from milena.storage.files.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from tests.simulation.steps import (
    OF_BROKERS,
    QUICK,
    create,
    directory_of,
    partition_image,
    storage_of,
    until,
    values,
    write,
)

RECORDS = 30


def on_a_broker(scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK, of_brokers=OF_BROKERS)
        async with cluster.client() as client:
            await create(client, partitions=2)
            await write(client, RECORDS)
            await scenario(cluster, client)

    simulate(run, seed=1)


def test_partitions_of_a_directory_with_a_new_id_are_led_again() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        home = directory_of(cluster, 1)
        former = partition_image(cluster).directories
        await cluster.kill(host_of(1))
        properties = storage_of(cluster, 1).files[f"{home}/meta.properties"].data
        meta = decode_meta_properties(bytes(properties))
        properties[:] = encode_meta_properties(MetaProperties(meta.cluster_id, meta.node_id, None))
        await cluster.start_broker(1)
        await until(lambda: partition_image(cluster).leader == 1, 10)
        assert partition_image(cluster).directories != former
        assert await values(client, RECORDS) == list(range(RECORDS))
        await write(client, RECORDS, first=RECORDS)
        cluster.check_alive()

    on_a_broker(scenario)


@pytest.mark.parametrize("elr", [False, True], ids=["isr", "elr"])
def test_an_empty_directory_in_the_place_of_the_last_replicas_is_not_elected(elr: bool) -> None:
    """With KIP-966 an unclean shutdown leaves only the id of the last leader in the metadata."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        if elr:
            update = {"feature": ELR_VERSION, "max_version_level": 1, "upgrade_type": 1}
            answer = await client.ask_any(ApiKey.UPDATE_FEATURES, feature_updates=[update], timeout_ms=5000)
            assert answer.error_code == 0
        home = directory_of(cluster, 1)
        await cluster.kill(host_of(1))
        storage = storage_of(cluster, 1)
        away = {path: storage.files.pop(path) for path in list(storage.files) if path.startswith(home)}
        folders = [path for path in storage.folders if path.startswith(home)]
        for path in folders:
            del storage.folders[path]
        for _ in range(2):
            await cluster.start_broker(1)
            await asyncio.sleep(5)
            assert partition_image(cluster).leader == -1
            assert not any("/t-0/" in path for path in storage.files)
            await cluster.kill(host_of(1))
        for path in [path for path in storage.files if path.startswith(home)]:
            del storage.files[path]
        storage.files.update(away)
        storage.folders.update(dict.fromkeys(folders))
        await cluster.start_broker(1)
        await until(lambda: partition_image(cluster).leader == 1, 10)
        assert await values(client, RECORDS) == list(range(RECORDS))

    on_a_broker(scenario)


@pytest.mark.parametrize("machine", [CONTROLLER, host_of(1)])
def test_a_node_refuses_to_start_with_logs_in_a_directory_without_meta_properties(machine: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        home = "/data" if machine == CONTROLLER else directory_of(cluster, 1)
        start = cluster.start_controller if machine == CONTROLLER else lambda: cluster.start_broker(1)
        await cluster.kill(machine)
        files = cluster.world.machine(machine).storage.files
        lost = files.pop(f"{home}/meta.properties")
        with pytest.raises(NodeEnded, match=rf"log directory {home} has logs .* but there is no meta\.properties"):
            await start()
        # A meta.properties that is written by hand, without a directory id, is accepted.
        meta = decode_meta_properties(bytes(lost.data))
        lost.data[:] = encode_meta_properties(MetaProperties(meta.cluster_id, NodeId(meta.node_id), None))
        files[f"{home}/meta.properties"] = lost
        cluster.world.machine(machine).failures.clear()
        await start()
        assert await values(client, RECORDS) == list(range(RECORDS))
        cluster.check_alive()

    on_a_broker(scenario)


@pytest.mark.parametrize("wiped", [True, False])
def test_a_broker_with_an_empty_directory_logs_how_many_replicas_it_had(wiped: bool) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 2, QUICK)
        async with cluster.client() as client:
            await create(client, "alone", partitions=4)
            await create(client, "both", replicas=2)
            await write(client, 1, topic="both")
            assert cluster.controller is not None
            image = cluster.controller.state.image
            alone = sum(partition.replicas == (1,) for partition in image.topics["alone"].partitions.values())
            await cluster.stop_broker(1)
            if wiped:
                cluster.wipe(host_of(1))
            with capture_logs() as lines:
                await cluster.start_broker(1)
            found = [line for line in lines if line["event"].startswith("log directories are empty")]
            said = [(line["log_level"], line["directories"], line["replicas"], line["last_in_sync"]) for line in found]
            assert said == ([("error", ["/data"], alone + 1, alone)] if wiped else [])
        cluster.check_alive()

    simulate(scenario, seed=1)
