"""A pass over what has expired, and the deletion of all that a partition has in the tier (docs/kafka-semantics.md:
Expiration)."""

from __future__ import annotations

import pytest

from milena.protocol.errors import KafkaError
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log import tiering
from milena.tiered.metadata.metadata_manager import RemoteLogMetadataError
from milena.tiered.store.index_cache import DELETE_DELAY
from milena.tiered.store.remote_storage import RemoteStorageError, RetriableRemoteStorageError
from milena.tiered.work.copying import copy_round
from milena.tiered.work.expiration import erase, expire_round
from milena.tiered.work.log_updates import follow_round
from milena.tiered.work.roles import ReplicaRole
from tests.unit.tiered.tiered_log import Bench, on_bench, open_tiered

GONE = ["DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"]
RETENTION_MS = 1000


async def expired(bench: Bench, segments: int = 3) -> ReplicaRole:
    """All of the closed segments are in the tier, and too old."""
    role = bench.role()
    bench.write(segments)
    await copy_round(bench.tier, role)
    bench.metadata.published.clear()
    await bench.runtime.clock.sleep(2 * RETENTION_MS / 1000)
    return role


def deletions(bench: Bench) -> list[str]:
    return [one.state.name for one in bench.metadata.published]


def test_the_log_start_moves_before_the_first_segment_goes() -> None:
    """KAFKA-15352."""

    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        starts: list[int] = []
        bench.store.deleting = lambda: starts.append(bench.log.log_start_offset)
        await expire_round(bench.tier, role)
        assert starts == [6, 6, 6]
        assert (deletions(bench), bench.stored()) == (GONE * 3, [])
        assert bench.counted("remotedeleterequests") == 3
        assert (role.figures.delete_segments, role.figures.delete_bytes) == (0, 0)

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_the_indexes_of_a_segment_leave_the_cache_with_it() -> None:
    """A13."""

    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        for segment in bench.metadata.cache(role.partition).segments():
            await bench.tier.indexes.get(segment)
        assert bench.tier.indexes.size > 0
        bench.store.deleting = lambda: sizes.append(bench.tier.indexes.size)
        sizes: list[int] = []
        await expire_round(bench.tier, role)
        assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3, "before its objects do"
        assert bench.tier.indexes.size == 0
        await bench.runtime.clock.sleep(2 * DELETE_DELAY)
        assert bench.runtime.disk.list("/data/remote-log-index-cache") == []

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_a_deletion_that_fails_is_tried_again_by_the_next_pass() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)

        def fail() -> None:
            raise RemoteStorageError("no")

        bench.store.deleting = fail
        with pytest.raises(RemoteStorageError):
            await expire_round(bench.tier, role)
        assert deletions(bench) == GONE[:1]
        assert role.figures.delete_segments == 3
        bench.store.deleting = lambda: None
        await expire_round(bench.tier, role)
        assert (bench.stored(), deletions(bench)) == ([], [*GONE[:1], *GONE * 3])

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_a_leader_that_resigns_deletes_no_more() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)

        def resign() -> None:
            bench.replica.is_leader = False

        bench.store.deleting = resign
        await expire_round(bench.tier, role)
        assert bench.stored() == [2, 4]

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_a_fresh_leader_counts_nothing_twice() -> None:
    """KAFKA-20732: it has never copied anything, and has all of it here and there."""

    async def scenario(bench: Bench) -> None:
        await expired(bench)
        bench.log.set_highest_offset_in_remote_storage(Offset(-1))
        bench.replica.term += 1
        bench.log.update_config(bench.log.config)
        await expire_round(bench.tier, bench.role())
        assert bench.stored() == [0, 2, 4]
        assert bench.log.log_start_offset == 0

    on_bench(scenario, retention_bytes=3 * 2 * 73 + 10)


def test_the_log_start_never_passes_what_is_committed() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        bench.log.set_high_watermark(Offset(1))
        with pytest.raises(KafkaError):
            await expire_round(bench.tier, role)
        assert bench.stored() == [0, 2, 4]

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_a_follower_learns_what_is_copied_and_deletes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        await expired(bench)
        bench.log.set_highest_offset_in_remote_storage(Offset(-1))
        bench.replica.is_leader = False
        await follow_round(bench.tier, bench.role())
        assert bench.log.highest_offset_in_remote_storage == 5
        assert (bench.log.log_start_offset, bench.stored()) == (0, [0, 2, 4])

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_all_of_a_partition_goes_first_by_word_and_then_by_deed() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segments = bench.metadata.cache(role.partition).segments()
        assert await erase(bench.tier, role, segments, lambda: role.leader_epoch) == []
        assert deletions(bench) == ["DELETE_SEGMENT_STARTED"] * 3 + ["DELETE_SEGMENT_FINISHED"] * 3
        assert bench.stored() == []

    on_bench(scenario)


def test_what_cannot_be_erased_is_named() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segments = bench.metadata.cache(role.partition).segments()

        def fail() -> None:
            raise RetriableRemoteStorageError("busy")

        bench.store.deleting = fail
        assert await erase(bench.tier, role, segments, lambda: role.leader_epoch) == segments
        bench.metadata.failure = RemoteLogMetadataError("no leader")
        assert await erase(bench.tier, role, segments, lambda: role.leader_epoch) == segments
        bench.metadata.failure, bench.store.deleting = None, lambda: None
        assert await erase(bench.tier, role, segments, lambda: role.leader_epoch) == []
        assert bench.counted("remotedeleteerrors") == 0

    on_bench(scenario)


def test_what_is_only_local_counts_for_the_size_of_the_log() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        bench.write(3)
        assert len(tiering.only_local(bench.log)) == 4
        await expire_round(bench.tier, role)
        assert bench.stored() == [4]

    on_bench(scenario, retention_bytes=4 * 2 * 73)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_loss_leaves_the_epochs_of_what_is_only_in_the_tier(seed: int) -> None:
    """No batch on this disk could tell them."""

    async def scenario(bench: Bench) -> None:
        bench.write(1, epoch=0)
        bench.write(1, epoch=1)
        bench.write(1, epoch=2)
        await copy_round(bench.tier, bench.role())
        assert bench.log.delete_old_segments(bench.runtime.clock.time_ms()) == 3
        bench.log.flush()
        bench.runtime.disk.sync_folder("/")
        bench.log.assign_epoch(LeaderEpoch(7), bench.log.log_end_offset)
        machine = bench.world.machine("broker")
        machine.power_off()
        await machine.wait_ended()
        log = open_tiered(machine.start(), bench.log.config, bench.events)
        assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 2), (2, 4)]
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 6, 6)

    on_bench(scenario, seed=seed, local_retention_bytes=0)


def test_what_must_not_be_erased_now_is_left() -> None:
    """The broker's session has run out: the topic may be tiered again, under another leader."""

    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segments = bench.metadata.cache(role.partition).segments()
        answers = iter((True, False, False))
        assert (
            await erase(bench.tier, role, segments, lambda: role.leader_epoch, may_delete=lambda: next(answers))
            == segments[1:]
        )
        assert bench.stored() == [2, 4]

    on_bench(scenario)


def test_without_a_session_nothing_expires_not_even_between_word_and_deed() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        bench.tier.in_session = lambda: False
        await expire_round(bench.tier, role)
        assert (deletions(bench), bench.log.log_start_offset, bench.stored()) == ([], 0, [0, 2, 4])
        bench.tier.in_session = lambda: not deletions(bench)
        await expire_round(bench.tier, role)
        assert (deletions(bench), bench.stored()) == (["DELETE_SEGMENT_STARTED"], [0, 2, 4])
        bench.tier.in_session = lambda: True
        await expire_round(bench.tier, role)
        assert bench.stored() == []

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_a_session_that_runs_out_while_a_pass_looks_for_its_logs_start_moves_nothing() -> None:
    """The other task of this leader may read the tier for minutes meanwhile."""

    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        async with role.relisting:
            passing = bench.runtime.new_tasks("test").spawn(expire_round(bench.tier, role), name="pass")
            await bench.runtime.clock.sleep(1)
            bench.tier.in_session = lambda: False
        while not passing.done():
            await bench.runtime.clock.sleep(0.1)
        assert (deletions(bench), bench.log.log_start_offset, bench.stored()) == ([], 0, [0, 2, 4])

    on_bench(scenario, retention_ms=RETENTION_MS)
