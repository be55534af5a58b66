"""A controller that has lost metadata: brokers with more metadata wait, and no acknowledged record is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from milena.__main__ import run as command
from milena.client.cluster import Cluster
from milena.lab.cluster import CONTROLLER, NodeEnded, SimulatedCluster, host_of, start_cluster
from milena.lab.world.disk import Storage
from milena.lab.world.power import Inode
from milena.lab.world.world import World, simulate
from milena.node.metadata.committed_offset import FILE_NAME as COMMITTED
from milena.protocol.records.batch import iter_batches
from milena.storage.files.names import EPOCHS
from tests.simulation.steps import QUICK, broker_image, create, partition_image, until, values, write

FOLDER = "/data/__cluster_metadata-0"
LOG = f"{FOLDER}/{0:020d}.log"
RECORDS = 30


def on_a_cluster(scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], *, seed: int = 1) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 2, QUICK)
        async with cluster.client() as client:
            await create(client, "early", replicas=2)
            await create(client, "t", replicas=2)
            await create(client, "later", replicas=2)
            await write(client, RECORDS)
            await scenario(cluster, client)

    simulate(run, seed=seed)


def storage(cluster: SimulatedCluster, name: str = CONTROLLER) -> Storage:
    return cluster.world.machine(name).storage


def put_out(files: Storage, place: Path) -> Path:
    """Write the files of a simulated metadata log to the disk of the machine that runs the tests."""
    for path, inode in files.files.items():
        if path.startswith(FOLDER):
            target = place / path.removeprefix("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(inode.data)
    return place / "data"


def put_back(files: Storage, place: Path) -> None:
    for path in [path for path in files.files if path.startswith(FOLDER)]:
        del files.files[path]
    for found in (place / FOLDER.removeprefix("/")).iterdir():
        inode = files.files[f"{FOLDER}/{found.name}"] = Inode(0)
        inode.data += found.read_bytes()
        inode.synced = len(inode.data)


def lose(files: Storage, topic: str) -> bytes:
    """Truncate the metadata log before the batch with the topic, without a trace; return the former log."""
    whole = bytes(files.files[LOG].data)
    position = 0
    while True:
        size = int.from_bytes(whole[position + 8 : position + 12], "big") + 12
        if topic.encode() in whole[position : position + size]:
            break
        position += size
    del files.files[LOG].data[position:]
    files.files.pop(f"{FOLDER}/{COMMITTED}", None)
    return whole


async def is_waiting(cluster: SimulatedCluster, broker: int) -> bool:
    await asyncio.sleep(5)
    cluster.check_alive()
    return broker_image(cluster, broker).fenced


def test_a_flipped_byte_is_repaired_from_the_copy_of_a_broker(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await cluster.kill(CONTROLLER)
        files = storage(cluster)
        files.corrupt(LOG, files.files[LOG].data.index(b"later"))
        with pytest.raises(NodeEnded, match="are lost"):
            await cluster.start_controller()
        cluster.world.machine(CONTROLLER).failures.clear()
        # Brokers serve with the metadata that they have.
        await write(client, RECORDS, first=RECORDS)
        ours = put_out(files, tmp_path / "controller")
        copy = put_out(storage(cluster, host_of(1)), tmp_path / "broker")
        assert command(["metadata", "check", str(ours)]) == 1
        assert command(["metadata", "repair", str(ours), "--from", str(copy)]) == 0
        put_back(files, tmp_path / "controller")
        await cluster.start_controller()
        await until(lambda: not broker_image(cluster, 1).fenced and not broker_image(cluster, 2).fenced)
        assert {"early", "t", "later"} <= set(cluster.brokers[1].image.topics)
        await create(client, "new", replicas=2)
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))
        cluster.check_alive()

    on_a_cluster(scenario)


@pytest.mark.parametrize(("epoch", "at"), [(epoch, at) for epoch in (1, 2) for at in (4, 7, 13, 15, 70)])
def test_a_broker_with_a_flipped_byte_in_its_copy_fetches_it_again(epoch: int, at: int) -> None:
    """The byte is in a base offset, a leader epoch (no checksum covers these) or the content: of the batch of a record,
    or of the batch that begins an epoch."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await cluster.kill(CONTROLLER)
        await cluster.start_controller()
        await create(client, "more", replicas=2)
        end = cluster.brokers[1].image.offset
        await until(lambda: broker_image(cluster, 1).epoch > 0 and cluster.brokers[1].image.offset > end)
        await cluster.kill(host_of(1))
        files = storage(cluster, host_of(1))
        found, position = [], 0
        for batch in iter_batches(memoryview(bytes(files.files[LOG].data))):
            found.append((position, batch))
            position += batch.size_in_bytes
        begins = next(number for number, (_, batch) in enumerate(found) if batch.is_control and batch.base_offset)
        position, _ = found[begins if epoch == 2 else begins - 3]
        files.corrupt(LOG, position + at)
        await asyncio.wait_for(cluster.start_broker(1), 60)
        assert {"early", "t", "later", "more"} <= set(cluster.brokers[1].image.topics)
        assert await values(client, RECORDS) == list(range(RECORDS))
        cluster.check_alive()

    on_a_cluster(scenario)


def test_brokers_with_more_metadata_than_the_controller_wait_and_keep_their_metadata() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await cluster.kill(CONTROLLER)
        whole = lose(storage(cluster), "later")
        await cluster.start_controller()
        assert await is_waiting(cluster, 1)
        assert "later" in cluster.brokers[1].image.topics
        # A restarted broker waits too, although its metadata has passed the offset of its registration.
        await cluster.kill(host_of(1))
        again = asyncio.ensure_future(cluster.start_broker(1))
        assert await is_waiting(cluster, 1)
        assert not again.done() and "/data/later-0" in storage(cluster, host_of(1)).folders
        # The lost metadata is put back.
        await cluster.kill(CONTROLLER)
        storage(cluster).files[LOG].data[:] = whole
        for name in (COMMITTED, EPOCHS):
            del storage(cluster).files[f"{FOLDER}/{name}"]
        await cluster.start_controller()
        await asyncio.wait_for(again, 60)
        await until(lambda: not broker_image(cluster, 2).fenced)
        await write(client, RECORDS, first=RECORDS)
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))
        assert partition_image(cluster, "later").leader in (1, 2)
        cluster.check_alive()

    on_a_cluster(scenario)


def test_a_broker_without_its_copy_accepts_the_metadata_of_the_controller() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await cluster.kill(CONTROLLER)
        lose(storage(cluster), "later")
        await cluster.start_controller()
        for broker in (1, 2):
            await cluster.kill(host_of(broker))
            files = storage(cluster, host_of(broker)).files
            for path in [path for path in files if path.startswith(FOLDER)]:
                del files[path]
            await cluster.start_broker(broker)
        assert await values(client, RECORDS) == list(range(RECORDS))
        folders = storage(cluster, host_of(1)).folders
        assert any(path.startswith("/data/later-0.") and path.endswith("-stray") for path in folders)

    on_a_cluster(scenario)
