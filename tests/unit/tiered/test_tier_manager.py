"""Who works for which replica, and when that begins and ends (docs/kafka-semantics.md: Tasks of the tier, Enabling
and disabling)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from milena.node.metrics_text import render
from milena.protocol.types import Offset
from milena.tiered.metadata.metadata_manager import MetadataNotReady
from milena.tiered.store.remote_storage import RemoteStorageError
from milena.tiered.work.tier_cleaner import TierCleaner
from milena.tiered.work.tier_manager import INITIAL_DELAY, RemoteLogManager
from tests.unit.tiered.tiered_log import Bench, on_bench

INTERVAL = 30


def managed(scenario: Callable[[Bench, RemoteLogManager], Awaitable[None]], **config: Any) -> None:
    async def run(bench: Bench) -> None:
        manager = RemoteLogManager(bench.tier, bench.metrics)
        await manager.start()
        await scenario(bench, manager)
        await manager.stop()

    on_bench(run, **config)


def test_a_leader_copies_at_once_and_then_again_after_the_interval() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.write(1)
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        assert bench.stored() == [0]
        bench.write(1)
        await asyncio.sleep(INTERVAL - 2)
        assert bench.stored() == [0]
        await asyncio.sleep(2)
        assert bench.stored() == [0, 2]

    managed(scenario)


def test_a_first_round_that_is_put_off_copies_nothing_until_it_is_asked_for_by_hand() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.keys[INITIAL_DELAY] = 3 * INTERVAL * 1000
        bench.write(1)
        manager.take_up(bench.replica)
        await asyncio.sleep(2 * INTERVAL)
        assert bench.stored() == []
        await manager.run_now(bench.replica)
        assert bench.stored() == [0]
        bench.write(1)
        await asyncio.sleep(2 * INTERVAL)
        assert bench.stored() == [0, 2]

    managed(scenario)


def test_a_role_that_stays_the_same_goes_on_undisturbed() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        manager.take_up(bench.replica)
        role = manager.role_of(bench.replica)
        manager.take_up(bench.replica)
        assert manager.role_of(bench.replica) is role
        bench.replica.term += 1
        manager.take_up(bench.replica)
        assert manager.role_of(bench.replica) is not role
        assert role is not None and role.ended

    managed(scenario)


def test_the_cleaner_forgets_a_role_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[object] = []
    monkeypatch.setattr(TierCleaner, "forget", lambda _, role: forgotten.append(role))

    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        manager.take_up(bench.replica)
        role = manager.role_of(bench.replica)
        bench.replica.term += 1
        manager.take_up(bench.replica)
        assert forgotten == [role]

    managed(scenario)


def test_a_follower_copies_nothing_until_it_leads() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.replica.is_leader = False
        bench.write(1)
        manager.take_up(bench.replica)
        await asyncio.sleep(2 * INTERVAL)
        assert bench.stored() == []
        bench.replica.is_leader = True
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        assert bench.stored() == [0]

    managed(scenario)


def test_a_log_that_is_not_tiered_has_no_role() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        manager.take_up(bench.replica)
        assert manager.role_of(bench.replica) is None
        assert not list(manager)

    managed(scenario, remote_storage_enable=False)


def test_a_partition_whose_topic_goes_is_erased_with_what_is_under_way() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.write(3)
        bench.store.copying = lambda: manager.drop(bench.replica, erase_remote=True)
        manager.take_up(bench.replica)
        await asyncio.sleep(5)
        assert bench.stored() == []
        assert not bench.metadata.is_ready(bench.role().partition) or not list(manager)
        assert not any(path.startswith("/tier/kafka") for path in bench.world.tier.files)

    managed(scenario)


def test_a_replica_that_comes_during_a_reset_is_copied() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        manager.drop(bench.replica, erase_remote=False)
        resetting = asyncio.ensure_future(manager.reset())
        await asyncio.sleep(0)
        bench.write(1)
        manager.take_up(bench.replica)
        assert await resetting == []
        await asyncio.sleep(1)
        assert bench.stored() == [0]

    managed(scenario)


def test_a_copy_under_way_that_cannot_take_itself_back_is_erased_with_its_topic() -> None:
    """What is erased before the last copy has ended would not see what that leaves."""

    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        async def slowly() -> None:
            manager.drop(bench.replica, erase_remote=True)
            await bench.runtime.clock.sleep(10)

        def fail_once() -> None:
            if bench.stored() and not bench.events.named("remains of a failed copy not deleted"):
                raise RemoteStorageError("no")

        bench.write(2)
        bench.store.copying, bench.store.deleting = slowly, fail_once
        manager.take_up(bench.replica)
        await asyncio.sleep(2 * INTERVAL)
        assert bench.stored() == bench.stored(".index") == []
        started, finished = "DELETE_SEGMENT_STARTED 0", "DELETE_SEGMENT_FINISHED 0"
        assert bench.states() == ["COPY_SEGMENT_STARTED 0", started, started, finished]
        assert bench.events.named("remains of a failed copy not deleted")

    managed(scenario)


def test_what_cannot_be_erased_at_once_is_erased_later() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        failures = iter(range(2))

        def fail() -> None:
            if next(failures, None) is not None:
                raise RemoteStorageError("no")

        bench.write(2)
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        bench.store.deleting = fail
        manager.drop(bench.replica, erase_remote=True)
        await asyncio.sleep(1)
        assert bench.stored() == [0, 2]
        await asyncio.sleep(INTERVAL)
        assert bench.stored() == []
        assert 'remotedeleterequestspersec_total{topic="t"}' not in render(bench.metrics)

    managed(scenario)


def test_a_replica_that_only_leaves_this_broker_stays_in_the_tier() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.write(2)
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        manager.drop(bench.replica)
        await asyncio.sleep(1)
        assert bench.stored() == [0, 2]
        assert not list(manager)

    managed(scenario)


@pytest.mark.parametrize("leads", [True, False])
def test_a_tier_that_is_switched_off_is_erased_by_the_leader_alone(leads: bool) -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.write(2)
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        bench.log.move_local_start(Offset(2))
        if not leads:
            bench.replica.is_leader = False
            manager.take_up(bench.replica)
        config = replace(bench.log.config, remote_storage_enable=False, remote_log_delete_on_disable=True)
        bench.log.update_config(config)
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        assert bench.stored() == ([] if leads else [0, 2])
        assert bench.log.log_start_offset == (2 if leads else 0)
        assert not list(manager)

    managed(scenario)


def test_a_store_that_fails_is_tried_again_and_stops_nothing() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        def fail() -> None:
            raise RemoteStorageError("no")

        bench.write(1)
        bench.store.copying = fail
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        assert bench.events.named("remote log: copy failed")
        bench.store.copying = lambda: None
        await asyncio.sleep(INTERVAL)
        assert bench.stored() == [0]

    managed(scenario)


def test_a_round_can_be_asked_for() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        await manager.run_now(bench.replica)
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        bench.write(1)
        await manager.run_now(bench.replica)
        assert bench.stored() == [0]
        bench.metadata.unassign([bench.role().partition])
        bench.metadata.unassign([one.partition for one in manager])
        with pytest.raises(MetadataNotReady):
            await manager.run_now(bench.replica)

    managed(scenario)


def test_limits_that_change_are_taken_up() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.keys |= {
            "remote.log.manager.copy.max.bytes.per.second": 7,
            "remote.log.manager.fetch.max.bytes.per.second": 8,
            "remote.log.manager.copier.thread.pool.size": 2,
        }
        manager.reconfigure()
        assert (bench.tier.copy_quota.limit, bench.tier.fetch_quota.limit) == (7, 8)
        async with manager.copying:
            assert manager.copying.idle_share == 0.5

    managed(scenario)


def test_a_smaller_cache_of_indexes_lets_some_go_at_once() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.write(3)
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        for one in bench.published_segments():
            await bench.tier.indexes.get(one)
        whole = bench.tier.indexes.size
        assert whole > 0
        bench.keys["remote.log.index.file.cache.total.size.bytes"] = whole // 2
        manager.reconfigure()
        assert 0 < bench.tier.indexes.size <= whole // 2

    managed(scenario)


def test_a_quota_holds_the_next_segment_back() -> None:
    async def scenario(bench: Bench, manager: RemoteLogManager) -> None:
        bench.keys["remote.log.manager.copy.max.bytes.per.second"] = 30
        manager.reconfigure()
        bench.write(2)
        size = bench.log.segments[0].size
        manager.take_up(bench.replica)
        await asyncio.sleep(1)
        assert bench.stored() == [0]
        await asyncio.sleep(size / 30 + 2)
        assert bench.stored() == [0, 2]

    managed(scenario)
