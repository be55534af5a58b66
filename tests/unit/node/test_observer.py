"""An observer finds the leader, keeps its log, applies what is committed, and survives what leaders do."""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Awaitable, Callable

import pytest

from milena.lab.world.world import World, simulate
from milena.node.metadata.image import Delta, MetadataImage
from milena.node.metadata.raft_meters import RaftView, register_raft
from milena.node.metadata.snapshot_keeper import SnapshotPolicy
from milena.node.metrics import Metrics
from milena.protocol.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    TopicRecord,
)
from tests.unit.node.quorum import FOLDER, Follower, Leader, feature, follow, topic

Scenario = Callable[[World], Awaitable[None]]


def in_simulation(scenario: Scenario) -> Callable[[], None]:
    """Run a coroutine test in the simulated world; virtual seconds cost nothing."""

    def test() -> None:
        async def run(world: World) -> None:
            await scenario(world)

        simulate(run, seed=1)

    test.__name__ = scenario.__name__
    return test


async def leading(world: World, leader: Leader) -> Leader:
    await leader.start(world.machine(f"c{leader.id}").start())
    return leader


async def a_cluster(world: World) -> tuple[Leader, Follower]:
    leader = Leader(1)
    leader.begin()
    leader.append(feature("metadata.version", 30))
    await leading(world, leader)
    follower = follow(world)
    await asyncio.sleep(1)
    return leader, follower


@in_simulation
async def test_an_empty_observer_learns_the_leader_and_the_image(world: World) -> None:
    leader, follower = await a_cluster(world)
    assert follower.features == {"metadata.version": 30}
    assert (follower.observer.quorum.leader, follower.observer.quorum.epoch) == (1, 1)
    assert follower.observer.leader_address == ("c1", 9093)
    assert follower.loader.caught_up
    assert (follower.loader.image.offset, follower.loader.image.epoch) == (1, 1)
    first = leader.fetches[0]
    assert (first.replica_id, first.replica_epoch, first.cluster_id) == (1, -1, "cluster")
    wanted = first.topics[0][2][0]
    assert (wanted.fetch_offset, wanted.last_fetched_epoch, wanted.high_watermark) == (0, 0, -1)


@in_simulation
async def test_its_metrics_are_those_of_an_observer(world: World) -> None:
    leader, follower = await a_cluster(world)
    view = follower.observer.view()
    assert view == RaftView("observer", 1, 1, -1, follower.loader.high_watermark, leader.log_end, 1)
    metrics = Metrics()
    register_raft(metrics, follower.observer.view, follower.observer.meters)
    assert metrics.value("kafka_server_raft_metrics_current_state", current_state="observer") == 1
    assert metrics.value("kafka_server_raft_metrics_fetch_records_rate") > 0
    assert math.isnan(metrics.value("kafka_server_raft_metrics_commit_latency_avg"))
    channel = "kafka_server_raft_channel_metrics"
    requests, responses = (metrics.value(f"{channel}_{name}_total") for name in ("request", "response"))
    assert requests == responses + 1 == len(leader.fetches) + 1, "one more is the request for the versions"
    assert min(metrics.value(f"{channel}_{way}_byte_total") for way in ("incoming", "outgoing")) > 100


@in_simulation
async def test_new_records_arrive_while_it_waits(world: World) -> None:
    leader, follower = await a_cluster(world)
    seen: list[set[str]] = []
    follower.loader.subscribe(lambda image, delta: seen.append(delta.features))
    before = len(leader.fetches)
    leader.append(feature("a"))
    await asyncio.sleep(0.01)
    assert follower.features["a"] == 1 and seen == [{"a"}]
    assert len(leader.fetches) == before + 1


@in_simulation
async def test_what_is_not_committed_is_kept_and_not_applied(world: World) -> None:
    leader, follower = await a_cluster(world)
    leader.append(feature("a"), commit=False)
    await asyncio.sleep(1)
    assert follower.log.log_end_offset == leader.log_end and "a" not in follower.features
    leader.commit()
    await asyncio.sleep(0.1)
    assert follower.features["a"] == 1


@in_simulation
async def test_a_version_17_leader_is_followed_too(world: World) -> None:
    leader = Leader(1, newest_fetch=17)
    leader.begin()
    leader.append(feature("a"))
    await leading(world, leader)
    follower = follow(world)
    await asyncio.sleep(1)
    assert follower.features == {"a": 1}


@in_simulation
async def test_a_cut_batch_at_the_end_is_fetched_again(world: World) -> None:
    leader = Leader(1)
    leader.begin()
    for number in range(5):
        leader.append(feature(f"f{number}"))
    leader.cut_bytes = 3
    await leading(world, leader)
    follower = follow(world)
    await asyncio.sleep(0.3)
    assert "f3" in follower.features and "f4" not in follower.features
    leader.cut_bytes = 0
    leader.append(NoOpRecord())
    await asyncio.sleep(3)
    assert follower.features["f4"] == 1


@in_simulation
async def test_a_transaction_shows_at_its_end(world: World) -> None:
    leader, follower = await a_cluster(world)
    leader.append(BeginTransactionRecord(name="n"), feature("a"))
    await asyncio.sleep(0.1)
    assert "a" not in follower.features and follower.loader.in_transaction
    leader.append(EndTransactionRecord())
    await asyncio.sleep(0.1)
    assert follower.features["a"] == 1


@in_simulation
async def test_after_a_restart_it_continues_at_its_last_offset(world: World) -> None:
    leader, _ = await a_cluster(world)
    leader.append(topic("t", 1))
    await asyncio.sleep(0.5)
    world.machine("b1").kill()
    await world.machine("b1").wait_ended()
    leader.append(topic("u", 2))
    before = len(leader.fetches)
    again = follow(world)
    assert again.loader.image.topics == {}
    await asyncio.sleep(1)
    assert set(again.loader.image.topics) == {"t", "u"}
    assert leader.fetches[before].topics[0][2][0].fetch_offset == 3


@in_simulation
async def test_a_leader_of_a_later_epoch_takes_over(world: World) -> None:
    old, follower = await a_cluster(world)
    new = await leading(world, Leader(2, batches=list(old.batches), high_watermark=old.high_watermark))
    new.begin(2)
    new.append(feature("a"))
    old.epoch, old.leader = 2, 2
    old._wake()
    await asyncio.sleep(3)
    assert follower.features["a"] == 1
    assert (follower.observer.quorum.leader, follower.observer.quorum.epoch) == (2, 2)


@in_simulation
async def test_what_the_new_leader_lacks_is_truncated(world: World) -> None:
    old, follower = await a_cluster(world)
    shared = list(old.batches)
    for number in range(3):
        old.append(feature(f"lost{number}"), commit=False)
    await asyncio.sleep(0.5)
    assert follower.log.log_end_offset == 5
    new = await leading(world, Leader(2, batches=shared, high_watermark=2))
    new.begin(2)
    new.append(feature("kept"))
    old.epoch, old.leader = 2, 2
    old._wake()
    await asyncio.sleep(3)
    assert follower.features == {"metadata.version": 30, "kept": 1}
    assert follower.log.log_end_offset == new.log_end
    assert [tuple(entry) for entry in follower.log.epochs.entries] == [(1, 0), (2, 2)]


@in_simulation
async def test_a_leader_that_lost_committed_records_is_not_followed(world: World) -> None:
    old, follower = await a_cluster(world)
    new = await leading(world, Leader(2, batches=old.batches[:1]))
    new.begin(2)
    old.epoch, old.leader = 2, 2
    old._wake()
    await asyncio.sleep(3)
    asked = len(new.fetches)
    await asyncio.sleep(10)
    assert world.machine("b1").failures == []
    assert (follower.features, follower.log.log_end_offset) == ({"metadata.version": 30}, 2)
    assert len(new.fetches) - asked < 40, "it asks again with pauses"
    assert follower.observer.ahead


@in_simulation
async def test_after_a_restart_it_still_knows_what_was_committed(world: World) -> None:
    leader, _ = await a_cluster(world)
    leader.append(feature("lost"))
    await asyncio.sleep(1)
    world.machine("b1").kill()
    await world.machine("b1").wait_ended()
    kept, lost = leader.batches[:2], leader.batches[2:]
    leader.batches = list(kept)
    leader.begin(2)
    again = follow(world)

    def is_ahead() -> bool:
        return again.observer.ahead

    await asyncio.sleep(5)
    assert is_ahead() and again.log.log_end_offset == 3
    # The controller's log was mended, and it has become the leader of a new epoch.
    leader.batches = [*kept, *lost]
    leader.begin(3)
    await asyncio.sleep(5)
    assert not is_ahead()
    assert again.features == {"metadata.version": 30, "lost": 1}


@in_simulation
async def test_a_leader_of_a_lower_epoch_has_lost_metadata(world: World) -> None:
    leader, follower = await a_cluster(world)
    leader.begin(5)
    await asyncio.sleep(1)
    leader.batches = leader.batches[:2]
    leader.begin(2)
    leader._wake()
    await asyncio.sleep(10)
    assert follower.observer.ahead and follower.log.log_end_offset == 3
    assert world.machine("b1").failures == []


@in_simulation
async def test_answers_of_a_replaced_leader_do_not_count(world: World) -> None:
    old, follower = await a_cluster(world)
    new = await leading(world, Leader(2, batches=list(old.batches), high_watermark=old.high_watermark))
    new.begin(2)
    old.epoch, old.leader = 2, 2
    old._wake()
    await asyncio.sleep(1)
    old.epoch, old.leader = 1, None
    old.append(feature("stale"))
    world.machine("c2").kill()
    await asyncio.sleep(5)
    assert "stale" not in follower.features


@in_simulation
async def test_with_several_addresses_a_dead_one_is_skipped(world: World) -> None:
    leader = Leader(3)
    leader.begin()
    leader.append(feature("a"))
    await leading(world, leader)
    await leading(world, Leader(2, leader=3))
    world.machine("c1")
    follower = follow(world, (1, 2, 3))
    await asyncio.sleep(5)
    assert follower.features == {"a": 1}


@in_simulation
async def test_a_leader_that_restarts_is_found_again(world: World) -> None:
    leader, follower = await a_cluster(world)
    world.machine("c1").kill()
    await asyncio.sleep(5)
    leader.begin(2)
    leader.append(feature("a"))
    leader._waiting.clear()
    await leading(world, leader)
    await asyncio.sleep(5)
    assert follower.features["a"] == 1 and follower.observer.quorum.epoch == 2


@in_simulation
async def test_another_cluster_is_never_followed(world: World) -> None:
    leader = Leader(1, cluster_id="other")
    leader.begin()
    leader.append(feature("a"))
    await leading(world, leader)
    follower = follow(world)
    await asyncio.sleep(3)
    assert follower.features == {} and follower.log.log_end_offset == 0
    assert 3 < len(leader.fetches) < 30


@pytest.mark.parametrize("piece", [1 << 20, 50])
def test_a_log_that_begins_later_is_entered_by_its_snapshot(piece: int) -> None:
    async def scenario(world: World) -> None:
        leader = Leader(1, piece_bytes=piece)
        leader.begin()
        leader.append(topic("old", 9))
        taken = leader.take_snapshot([feature("metadata.version", 30), topic("t", 1)])
        leader.append(topic("u", 2))
        await leading(world, leader)
        follower = follow(world)
        await asyncio.sleep(3)
        assert set(follower.loader.image.topics) == {"t", "u"}
        assert follower.log.log_start_offset == taken.end_offset == 2
        assert follower.snapshots.ids == [taken]
        world.machine("b1").kill()
        await world.machine("b1").wait_ended()
        again = follow(world)
        await asyncio.sleep(3)
        assert set(again.loader.image.topics) == {"t", "u"}

    simulate(scenario, seed=2)


@in_simulation
async def test_subscribers_of_an_observer_that_lagged_get_the_changes(world: World) -> None:
    leader, follower = await a_cluster(world)
    leader.append(topic("gone", 1), topic("stays", 2))
    await asyncio.sleep(0.5)
    deltas: list[Delta] = []
    images: list[MetadataImage] = []

    def note(image: MetadataImage, delta: Delta) -> None:
        deltas.append(delta)
        images.append(image)

    follower.loader.subscribe(note)
    world.fabric.cut("b1", "c1")
    await asyncio.sleep(1)
    leader.append(NoOpRecord())
    leader.take_snapshot([feature("metadata.version", 29), topic("stays", 2), topic("new", 3)])
    world.fabric.heal("b1", "c1")
    leader.append(NoOpRecord())
    await asyncio.sleep(10)
    (delta,) = [delta for delta in deltas if delta]
    assert [gone.name for gone in delta.deleted_topics] == ["gone"]
    assert delta.topics == {"new": set()} and delta.features == {"metadata.version"}
    assert set(images[-1].topics) == {"stays", "new"}


@in_simulation
async def test_it_takes_snapshots_of_its_own_and_starts_from_them(world: World) -> None:
    leader = Leader(1)
    leader.begin()
    leader.append(feature("metadata.version", 30))
    await leading(world, leader)
    policy = SnapshotPolicy(record_bytes=2000, retention_bytes=6000)
    follower = follow(world, policy=policy)
    for number in range(60):
        leader.append(topic(f"topic-{number}", number + 1))
        await asyncio.sleep(0.01)
    assert not world.machine("b1").failures
    ids = follower.snapshots.ids
    assert ids and ids[-1].end_offset > 20
    assert follower.log.log_start_offset in (0, ids[0].end_offset)
    world.machine("b1").kill()
    await world.machine("b1").wait_ended()
    again = follow(world, policy=policy)
    await asyncio.sleep(0)
    assert len(again.loader.image.topics) == ids[-1].end_offset - 2
    await asyncio.sleep(3)
    assert len(again.loader.image.topics) == 60


@in_simulation
async def test_a_damaged_snapshot_is_set_aside_and_the_metadata_fetched_again(world: World) -> None:
    leader = Leader(1)
    leader.begin()
    leader.append(topic("old", 9))
    taken = leader.take_snapshot([feature("metadata.version", 30), topic("t", 1)])
    leader.append(topic("u", 2))
    await leading(world, leader)
    follow(world)
    await asyncio.sleep(3)
    machine = world.machine("b1")
    machine.kill()
    await machine.wait_ended()
    machine.storage.corrupt(f"{FOLDER}/{taken.file_name}", 100)
    again = follow(world)
    await asyncio.sleep(3)
    assert machine.failures == []
    assert set(again.loader.image.topics) == {"t", "u"} and again.snapshots.ids == [taken]


@in_simulation
async def test_none_is_taken_inside_of_a_transaction(world: World) -> None:
    leader, follower = await a_cluster(world)
    follower.keeper._policy = SnapshotPolicy(record_bytes=1)
    leader.append(BeginTransactionRecord(), feature("a"))
    await asyncio.sleep(1)
    assert follower.snapshots.ids == []
    leader.append(EndTransactionRecord())
    await asyncio.sleep(1)
    assert follower.snapshots.ids


@in_simulation
async def test_a_half_fetched_snapshot_is_fetched_again(world: World) -> None:
    leader = Leader(1, piece_bytes=20)
    leader.begin()
    records = [feature("metadata.version", 30), *(topic(f"t{number}", number + 1) for number in range(50))]
    leader.take_snapshot(records)
    await leading(world, leader)
    follower = follow(world)
    await asyncio.sleep(0.05)
    assert follower.snapshots.ids == []
    world.machine("b1").power_off()
    await world.machine("b1").wait_ended()
    again = follow(world)
    await asyncio.sleep(30)
    assert len(again.loader.image.topics) == sum(isinstance(record, TopicRecord) for record in records)


@pytest.mark.parametrize("operation", ["open", "append", "sync", "rename"])
def test_a_snapshot_that_the_disk_does_not_take_is_fetched_again_later(operation: str) -> None:
    async def scenario(world: World) -> None:
        leader = Leader(1)
        leader.begin()
        leader.append(topic("old", 9))
        taken = leader.take_snapshot([feature("metadata.version", 30), topic("t", 1)])
        leader.append(topic("u", 2))
        await leading(world, leader)
        follower = follow(world)
        machine = world.machine("b1")
        machine.storage.fail(f"{FOLDER}/{taken.file_name}", errno.ENOSPC, operation=operation)
        await asyncio.sleep(60)
        assert machine.failures == [] and follower.snapshots.ids == []
        assert not [path for path in machine.storage.files if path.endswith(".part")]
        assert len(leader.fetches) < 10
        machine.storage.heal()
        await asyncio.sleep(15)
        assert set(follower.loader.image.topics) == {"t", "u"} and follower.snapshots.ids == [taken]

    simulate(scenario, seed=1)


@in_simulation
async def test_old_snapshots_that_a_full_disk_keeps_go_later(world: World) -> None:
    leader = Leader(1)
    leader.begin()
    leader.append(feature("metadata.version", 30))
    await leading(world, leader)
    follower = follow(world, policy=SnapshotPolicy(record_bytes=2000, retention_bytes=3000))
    machine = world.machine("b1")
    await asyncio.sleep(1)
    refused: list[str] = []

    def refuse_once(operation: str, path: str) -> None:
        if operation == "append" and "leader-epoch-checkpoint" in path and not refused:
            refused.append(path)
            raise OSError(errno.ENOSPC, "full", path)

    machine.storage.before = refuse_once
    for number in range(120):
        leader.append(topic(f"topic-{number}", number + 1))
        await asyncio.sleep(2)
    assert refused and machine.failures == [] and len(follower.loader.image.topics) == 120
    assert follower.log.log_start_offset == follower.snapshots.ids[0].end_offset


@pytest.mark.parametrize("seed", range(5))
def test_one_seed_is_one_history(seed: int) -> None:
    async def scenario(world: World) -> str:
        leader, follower = await a_cluster(world)
        for number in range(20):
            leader.append(topic(f"t{number}", number + 1))
            await asyncio.sleep(0.03)
        return world.digest() + str(follower.log.log_end_offset)

    assert simulate(scenario, seed=seed) == simulate(scenario, seed=seed)
