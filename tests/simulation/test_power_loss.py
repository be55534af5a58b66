"""Power loss and other damage to the end of a log: synced records stay, the rest is truncated at a batch boundary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.power import Inode
from milena.lab.world.world import World, simulate
from tests.simulation.steps import QUICK, batches_in, create, seeds, storage_of, values, write

RECORDS = 60


def on_a_cluster(scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], *, seed: int = 1) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


def segments(cluster: SimulatedCluster) -> dict[str, Inode]:
    """The log files of ``t-0``, in order."""
    files = storage_of(cluster, 1).files
    return {path: files[path] for path in sorted(files) if path.startswith("/data/t-0/") and path.endswith(".log")}


def log_end(cluster: SimulatedCluster) -> int:
    log = cluster.brokers[1].logs.get("t", 0)
    assert log is not None
    return log.log_end_offset


async def check_log(cluster: SimulatedCluster, client: Cluster, kept: int) -> None:
    """Check that ``kept`` records are there, and that further records follow them."""
    assert log_end(cluster) == kept
    assert await values(client, kept) == list(range(kept))
    await write(client, 5, first=kept)
    assert await values(client, kept + 5) == list(range(kept + 5))


@pytest.mark.parametrize("seed", seeds(8))
def test_a_power_loss_loses_only_records_that_were_not_synced(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, configs={"internal.segment.bytes": "4000"})
        await write(client, RECORDS)
        before = segments(cluster)
        assert len(before) > 2
        synced = sum(len(batches_in(bytes(inode.data[: inode.synced]))) for inode in before.values())
        assert 0 < synced < RECORDS
        await cluster.lose_power(host_of(1))
        await cluster.start_broker(1)
        assert synced <= log_end(cluster) <= RECORDS
        await check_log(cluster, client, log_end(cluster))

    on_a_cluster(scenario, seed=seed)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_power_loss_loses_no_record_if_each_append_is_synced(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, configs={"internal.segment.bytes": "4000", "flush.messages": "1"})
        await write(client, RECORDS)
        await cluster.lose_power(host_of(1))
        await cluster.start_broker(1)
        await check_log(cluster, client, RECORDS)

    on_a_cluster(scenario, seed=seed)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_power_loss_after_a_controlled_shutdown_loses_no_record(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client)
        await write(client, RECORDS)
        await cluster.stop_broker(1)
        await cluster.lose_power(host_of(1))
        await cluster.start_broker(1)
        await check_log(cluster, client, RECORDS)

    on_a_cluster(scenario, seed=seed)


@pytest.mark.parametrize("seed", seeds(8))
def test_a_power_loss_does_not_restore_the_marker_of_a_former_clean_shutdown(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client)
        await write(client, RECORDS)
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
        assert all(directory.was_clean for directory in cluster.brokers[1].logs.dirs)
        await cluster.lose_power(host_of(1))
        await cluster.start_broker(1)
        assert not any(directory.was_clean for directory in cluster.brokers[1].logs.dirs)

    on_a_cluster(scenario, seed=seed)


def torn_batch(inode: Inode) -> None:
    """Only a part of the last batch was written."""
    del inode.data[-40:]


def half_a_header(inode: Inode) -> None:
    last = batches_in(bytes(inode.data))[-1]
    del inode.data[len(inode.data) - last.size_in_bytes + 30 :]


def zeros_in_the_last_batch(inode: Inode) -> None:
    """The file system allocated the bytes of the last batch and lost their content."""
    inode.data[-40:] = bytes(40)


def wrong_byte(inode: Inode) -> None:
    inode.data[-5] ^= 0x40


def zero_tail(inode: Inode) -> None:
    """The file is longer than its data, as a preallocated file is."""
    inode.data += bytes(10_000)


def garbage(inode: Inode) -> None:
    inode.data += b"no batch at all " * 20


@pytest.mark.parametrize(
    ("damage", "lost"),
    [(torn_batch, 1), (half_a_header, 1), (zeros_in_the_last_batch, 1), (wrong_byte, 1), (zero_tail, 0), (garbage, 0)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_damaged_end_is_truncated_at_a_batch_boundary(
    damage: Callable[[Inode], None], lost: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, configs={"internal.segment.bytes": "4000"})
        await write(client, RECORDS)
        await cluster.kill(host_of(1))
        damage(list(segments(cluster).values())[-1])
        capsys.readouterr()
        await cluster.start_broker(1)
        said = [line for line in capsys.readouterr().err.splitlines() if "log truncated in recovery" in line]
        assert len(said) == 1 and '"topic": "t"' in said[0] and f'"next_offset": {RECORDS - lost}' in said[0]
        await check_log(cluster, client, RECORDS - lost)

    on_a_cluster(scenario)


def test_a_log_is_truncated_at_damage_in_its_middle() -> None:
    """The damage is in the part that was not synced, as after a power loss that wrote pages out of order."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client)
        await write(client, RECORDS)
        await cluster.kill(host_of(1))
        (inode,) = segments(cluster).values()
        size = batches_in(bytes(inode.data))[0].size_in_bytes
        inode.data[20 * size + 70] ^= 1
        await cluster.start_broker(1)
        await check_log(cluster, client, 20)

    on_a_cluster(scenario)


@pytest.mark.parametrize("name", ["index", "timeindex", "snapshot", "leader-epoch-checkpoint", "partition.metadata"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_damaged_files_that_can_be_rebuilt_are_rebuilt(name: str, damage: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, configs={"internal.segment.bytes": "4000", "index.interval.bytes": "100"})
        await write(client, RECORDS)
        await cluster.kill(host_of(1))
        files = storage_of(cluster, 1).files
        damaged = [path for path in files if path.startswith("/data/t-0/") and path.endswith(name)]
        assert damaged
        for path in damaged:
            if damage == "missing":
                del files[path]
            else:
                files[path].data[:] = b"" if damage == "empty" else b"\xff" * 77
        await cluster.start_broker(1)
        await check_log(cluster, client, RECORDS)

    on_a_cluster(scenario)
