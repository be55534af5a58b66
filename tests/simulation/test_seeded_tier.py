"""The invariants of the tier: a correct cluster has no violations, planted violations are found, and seeds with faults
of the tier have no violations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from milena.client import admin, replicas
from milena.client.cluster import Cluster
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.health import Health
from milena.lab.chaos.simulated.insight import WatchedCluster
from milena.lab.chaos.simulated.seeds import run_seed
from milena.lab.chaos.simulated.tier_faults import TierFaults
from milena.lab.cluster import BROKER_PORT, SimulatedCluster, host_of, start_cluster
from milena.lab.invariants.broken import InvariantBroken
from milena.lab.world.power import Inode
from milena.lab.world.tiering import FOLDER
from milena.lab.world.trace import Trace
from milena.lab.world.world import World, simulate
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.randomness import Randomness
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.store.remote_storage import REQUIRED
from milena.tiered.store.tier_names import ROOT
from tests.simulation.final_logs import final_log
from tests.simulation.steps import seeds, until, values, write
from tests.simulation.tiered_topics import TIER, TIERED, WITH_TIER, bases, known_segments, log_of, replica, with_tier

RECORDS = 22
PASSING = [Kind.TIER_ERRORS, Kind.TIER_FULL, Kind.MISSING_OBJECTS]
"""Faults of the tier that lose no data."""


def run(plant: Callable[[SimulatedCluster], None] | None, **configs: str) -> None:
    """Create a leader with five segments in the tier and a local one of two records, plant a violation, and return what
    the check finds."""

    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, WITH_TIER, watched=True)
        async with cluster.client() as client:
            topic = admin.NewTopic("t", 1, 1, configs=TIERED | configs)
            assert await admin.create_topics(client, [topic]) == {"t": None}
            await until(lambda: cluster.brokers[1].partitions.find("t", 0) is not None, 30)
            await write(client, RECORDS)
            await until(lambda: bases(cluster) == [20])
            if plant is not None:
                plant(cluster)
            await asyncio.sleep(0.1)
            assert cluster.watch is not None
            cluster.watch.check_all()

    simulate(scenario, seed=1)


async def inject(faults: TierFaults, kinds: Sequence[Kind]) -> None:
    """Inject one fault after the other."""
    for kind in kinds:
        await asyncio.sleep(2)
        mend = faults.inject(kind)
        await asyncio.sleep(4)
        mend()


def object_of(cluster: SimulatedCluster, suffix: str) -> str:
    """The path of an object of the third segment."""
    return [path for path in sorted(cluster.world.tier.files) if path.endswith(suffix)][2]


def lost_object(suffix: str) -> Callable[[SimulatedCluster], None]:
    def plant(cluster: SimulatedCluster) -> None:
        del cluster.world.tier.files[object_of(cluster, suffix)]

    plant.__name__ = f"lost{suffix}"
    return plant


def cut_object(cluster: SimulatedCluster) -> None:
    del cluster.world.tier.files[object_of(cluster, ".log")].data[-1:]


def other_records(cluster: SimulatedCluster) -> None:
    cluster.world.tier.corrupt(object_of(cluster, ".log"), 17)


def other_epoch(cluster: SimulatedCluster) -> None:
    cluster.world.tier.files[object_of(cluster, ".leader_epoch_checkpoint")].data[:] = b"0\n1\n3 0\n"


def forgotten_segment(cluster: SimulatedCluster) -> None:
    cache = known_segments(cluster)
    cache._remove(cache.segments()[2])
    cache.changes += 1


def log_starts_early(cluster: SimulatedCluster) -> None:
    """Delete a segment before the log start offset advances."""
    forgotten_segment(cluster)
    replica(cluster).changed()


def log_starts_late(cluster: SimulatedCluster) -> None:
    log_of(cluster).increment_log_start(Offset(8))
    replica(cluster).changed()


def deleted_locally(cluster: SimulatedCluster) -> None:
    """Delete local segments that are not in the tier yet, though the log assumes that they are."""
    log = log_of(cluster)
    log.raise_highest_offset_in_remote_storage(Offset(RECORDS - 1))
    log.move_local_start(Offset(RECORDS))


def wrong_lineage(cluster: SimulatedCluster) -> None:
    """Remove the epochs of the first copied segments from the leader epoch checkpoint."""
    log_of(cluster).epochs._entries = [EpochEntry(LeaderEpoch(0), Offset(12))]


def test_a_leader_that_copies_to_its_tier_has_no_violations() -> None:
    run(None)


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (lost_object(".log"), "which it needs, is not in the tier"),
        (lost_object(".snapshot"), "which it needs, is not in the tier"),
        (lost_object(".index"), "which it needs, is not in the tier"),
        (cut_object, r"has \d+ of \d+ bytes"),
        (other_records, "the tier has .* is committed"),
        (other_epoch, "the tier's checkpoint of 8 says"),
        (forgotten_segment, "locally at 20, and 8 is not in the tier"),
        (log_starts_early, "locally at 20, and 8 is not in the tier"),
        (log_starts_late, "its log starts at 8 after 0, but retention is unlimited"),
        (deleted_locally, "locally at 22, and 20 is not in the tier"),
        (wrong_lineage, "locally at 20, and 0 is not in the tier"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_planted_violation_of_the_tier_is_found(plant: Callable[[SimulatedCluster], None], text: str) -> None:
    with pytest.raises(InvariantBroken, match=text):
        run(plant)


def test_deleting_more_segments_than_retention_allows_is_found() -> None:
    def plant(cluster: SimulatedCluster) -> None:
        log_of(cluster).increment_log_start(Offset(16))
        replica(cluster).changed()

    with pytest.raises(InvariantBroken, match=r"has \d+ bytes; retention.bytes is 3500"):
        run(plant, **{"retention.bytes": "3500"})
    run(None, **{"retention.bytes": "3500"})


def test_an_object_that_a_fault_has_removed_temporarily_may_be_missing() -> None:
    def plant(cluster: SimulatedCluster) -> None:
        assert cluster.watch is not None
        path = object_of(cluster, ".log")
        cluster.watch.tier.away[path] = None
        del cluster.world.tier.files[path]

    run(plant)


@pytest.mark.parametrize("suffix", [".log", ".index", ".leader_epoch_checkpoint", ".snapshot"])
def test_only_an_object_that_a_fault_has_lost_for_good_may_be_missing(suffix: str) -> None:
    def plant(cluster: SimulatedCluster, other: bool = False) -> None:
        assert cluster.watch is not None
        path = object_of(cluster, suffix)
        cluster.watch.tier.lost[path] = None
        del cluster.world.tier.files[path]
        losses = WatchedCluster(cluster)
        holes = [losses.hole_at(("t", 0), offset) for offset in (7, 8, 11, 12, 20)]
        assert holes == ([None, (8, 11), (11, 11), None, None] if suffix == ".log" else [None] * 5)
        if other:
            lost_object(".timeindex")(cluster)

    run(plant)
    with pytest.raises(InvariantBroken, match="which it needs, is not in the tier"):
        run(lambda cluster: plant(cluster, True))


def test_records_that_clients_delete_may_be_missing_and_no_later_ones() -> None:
    def plant(cluster: SimulatedCluster, start: int = 8) -> None:
        assert cluster.watch is not None
        cluster.watch.tier.freed.before["t", 0] = 8
        log_of(cluster).increment_log_start(Offset(start))
        replica(cluster).changed()

    run(plant)
    with pytest.raises(InvariantBroken, match="retention is unlimited"):
        run(lambda cluster: plant(cluster, 9))


def test_a_replica_may_lack_the_records_in_the_tier_after_remote_storage_is_disabled() -> None:
    def plant(cluster: SimulatedCluster, topic: str = "t") -> None:
        assert cluster.watch is not None
        cluster.watch.tier.freed.switched_off[topic] = None
        cache = known_segments(cluster)
        for segment in cache.segments():
            cache._remove(segment)
        cache.changes += 1

    run(plant)
    with pytest.raises(InvariantBroken, match="locally at 20, and 0 is not in the tier"):
        run(lambda cluster: plant(cluster, "another"))


def test_reading_a_lost_log_is_an_error_and_later_segments_can_be_read() -> None:
    """A follower that needs the lost checkpoint stays out of the ISR, which is not a violation."""

    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 2, WITH_TIER, watched=True)
        async with cluster.client() as client:
            topic = admin.NewTopic("t", assignments={0: [1]}, configs=TIERED)
            assert await admin.create_topics(client, [topic]) == {"t": None}
            await until(lambda: cluster.brokers[1].partitions.find("t", 0) is not None, 30)
            await write(client, RECORDS)
            await until(lambda: bases(cluster) == [20])
            assert cluster.watch is not None
            paths = sorted(cluster.world.tier.files)
            checkpoints = [path for path in paths if path.endswith(".leader_epoch_checkpoint")]
            for path in (object_of(cluster, ".log"), checkpoints[-1]):
                cluster.watch.tier.lost[path] = None
                del cluster.world.tier.files[path]
            losses = WatchedCluster(cluster)
            log = await final_log(client, ("t", 0), losses)
            assert log.holes == ((8, 11),)
            assert [offset for offset, _, _ in log.records] == [*range(8), *range(12, RECORDS)]
            assert not losses.excuses(("t", 0), 2)
            await replicas.alter_reassignments(client, {("t", 0): [NodeId(1), NodeId(2)]})
            await until(lambda: losses.excuses(("t", 0), 2))
            bootstrap = [(host_of(number), BROKER_PORT) for number in (1, 2)]
            await Health(client, [1, 2], bootstrap, [], losses).in_sync(30)

    simulate(scenario, seed=1)


def test_the_lab_and_the_tests_use_the_same_folder() -> None:
    assert FOLDER == TIER


def test_seeds_have_all_faults_of_the_tier_and_no_violations() -> None:
    trace = Trace()

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        faults = TierFaults(cluster.world.tier, {}, {}, trace.note, Randomness(1))
        await write(client, RECORDS)
        async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
            tasks.create_task(inject(faults, PASSING * 8))
            tasks.create_task(write(client, RECORDS, first=RECORDS))
        await until(lambda: bases(cluster) == [40])
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))

    with_tier(scenario)
    output = "\n".join(trace.lines)
    for text in (
        "the tier fails: ",
        "free bytes",
        "is read-only",
        "is removed",
        "is truncated",
        "objects in the tier are restored",
    ):
        assert text in output, output


def test_objects_are_lost_for_good_one_at_a_time() -> None:
    trace, lost = Trace(), dict[str, None]()

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        await until(lambda: bases(cluster) == [20])
        before = {path: len(inode.data) for path, inode in cluster.world.tier.files.items()}
        await inject(TierFaults(cluster.world.tier, {}, lost, trace.note, cluster.world.random), [Kind.LOST_OBJECT] * 4)
        now = {path: len(inode.data) for path, inode in cluster.world.tier.files.items()}
        assert {path for path, size in before.items() if now.get(path) != size} == set(lost)

    with_tier(scenario)
    assert lost


def test_a_seed_can_be_given_a_tier() -> None:
    report = run_seed(2, steps=0, tier=True)
    assert not report.violations
    assert any("tiered topics: " in line for line in report.trace)


@pytest.mark.parametrize("seed", seeds(12))
def test_removed_objects_return_even_if_all_objects_of_a_segment_were_removed(seed: int) -> None:
    """Objects of a segment that was deleted meanwhile do not return: such a segment has no objects left."""

    async def scenario(world: World) -> None:
        objects = {f"{FOLDER}/{ROOT}/t-0-x/0-y{suffix}": suffix.encode() for suffix in sorted(REQUIRED)}
        for path, data in objects.items():
            world.tier.files[path] = Inode(0)
            world.tier.files[path].data += data
        await inject(TierFaults(world.tier, {}, {}, Trace().note, Randomness(seed)), [Kind.MISSING_OBJECTS] * 3)
        assert {path: bytes(inode.data) for path, inode in world.tier.files.items()} == objects

    simulate(scenario, seed=seed)
