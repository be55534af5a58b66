"""A leader removes objects of failed copies of its partition that are not listed."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.lab.world.disk import SimulatedDisk
from milena.protocol.uuids import to_text
from milena.tiered.store.remote_storage import INCOMPLETE_AGE_MS, RetriableRemoteStorageError
from milena.tiered.work.copying import copy_round
from milena.tiered.work.expiration import SWEEP_INTERVAL, expire_round
from tests.unit.tiered.tiered_log import ROOT, TOPIC_ID, Bench, on_bench

HOME = f"{ROOT}/t-0-{to_text(TOPIC_ID)}"
AGE = INCOMPLETE_AGE_MS / 1000


def plant(bench: Bench, number: int, *suffixes: str) -> None:
    bench.runtime.tier_disk.make_folders(HOME)
    for suffix in suffixes:
        bench.runtime.tier_disk.write_atomic(f"{HOME}/{700:020d}-{to_text(UUID(int=number))}{suffix}", b"left")


def test_remains_of_copies_go_once_they_are_old_and_what_is_in_the_tier_stays() -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(3)
        await copy_round(bench.tier, role)
        plant(bench, 1, ".index", ".snapshot")
        await expire_round(bench.tier, role)
        assert bench.stored(".index") == [0, 2, 4, 700], "its copy may still be running"
        await bench.runtime.clock.sleep(max(AGE, SWEEP_INTERVAL))
        await expire_round(bench.tier, role)
        assert bench.stored(".index") == bench.stored() == [0, 2, 4]
        assert bench.stored(".snapshot") == [0, 2, 4]

    on_bench(scenario)


def test_a_segment_that_is_known_stays_however_little_there_is_of_it() -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(2)
        await copy_round(bench.tier, role)
        disk = bench.runtime.tier_disk
        for name in disk.list(HOME):
            if name.endswith(".log"):
                disk.remove(f"{HOME}/{name}")
        await bench.runtime.clock.sleep(2 * AGE)
        await expire_round(bench.tier, role)
        assert bench.stored(".index") == [0, 2]

    on_bench(scenario)


def test_a_complete_segment_that_is_not_listed_stays() -> None:
    """The metadata may be what was lost."""

    async def scenario(bench: Bench) -> None:
        plant(bench, 1, ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint", ".log")
        await bench.runtime.clock.sleep(2 * AGE)
        await expire_round(bench.tier, bench.role())
        assert bench.stored() == [700]

    on_bench(scenario)


@pytest.mark.parametrize("successor", [False, True], ids=["the same leader", "the next leader"])
def test_copies_that_failed_are_forgotten_once_their_records_are_in_the_tier(successor: bool) -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(1)
        bench.store.copying = refuse
        for _ in range(3):
            with pytest.raises(RetriableRemoteStorageError):
                await copy_round(bench.tier, role)
            await bench.runtime.clock.sleep(300)
        await bench.runtime.clock.sleep(2 * SWEEP_INTERVAL)
        await expire_round(bench.tier, role)
        cache = bench.metadata.cache(role.partition)
        assert len(cache) == 3, "no other segment has these records yet"
        bench.store.copying = lambda: None
        await copy_round(bench.tier, role)
        if successor:
            bench.replica.term += 1
            role = bench.role()
        else:
            await bench.runtime.clock.sleep(SWEEP_INTERVAL)
        await expire_round(bench.tier, role)
        assert [one.state.name for one in cache.segments()] == ["COPY_SEGMENT_FINISHED"]
        assert bench.stored() == [0]

    on_bench(scenario)


def test_a_copy_that_began_lately_may_still_go_on() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1)
        bench.store.copying = refuse
        with pytest.raises(RetriableRemoteStorageError):
            await copy_round(bench.tier, bench.role())
        bench.store.copying = lambda: None
        await bench.runtime.clock.sleep(SWEEP_INTERVAL - 60)
        role = bench.role()
        await copy_round(bench.tier, role)
        await expire_round(bench.tier, role)
        assert len(bench.metadata.cache(role.partition)) == 2

    on_bench(scenario)


def refuse() -> None:
    raise RetriableRemoteStorageError("the store is away")


def test_the_tier_is_looked_through_once_an_hour() -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        await expire_round(bench.tier, role)
        plant(bench, 1, ".index")
        await bench.runtime.clock.sleep(SWEEP_INTERVAL - 60)
        await expire_round(bench.tier, role)
        assert bench.stored(".index") == [700]
        await bench.runtime.clock.sleep(60)
        await expire_round(bench.tier, role)
        assert bench.stored(".index") == []

    on_bench(scenario)


def test_a_tier_that_cannot_be_listed_is_an_error_of_the_round() -> None:
    async def scenario(bench: Bench) -> None:
        disk = bench.runtime.tier_disk
        assert isinstance(disk, SimulatedDisk)
        plant(bench, 1, ".index")
        disk.storage.fail(HOME, 5, operation="list")
        with pytest.raises(RetriableRemoteStorageError):
            await expire_round(bench.tier, bench.role())

    on_bench(scenario)
