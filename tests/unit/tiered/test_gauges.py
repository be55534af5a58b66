"""The gauges of partitions that are led here, by Kafka's names (docs/kafka-semantics.md: Enabling and disabling,
Metrics)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from milena.node.metrics_text import render
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.clock import Clock, Timer
from milena.tiered.shared.pool import Pool
from milena.tiered.work.copying import copy_round
from milena.tiered.work.expiration import expire_round
from milena.tiered.work.gauges import TierGauges
from milena.tiered.work.roles import ReplicaRole
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.remote_reads import lineage
from tests.unit.tiered.tiered_log import Bench, HandReplica, on_bench

MANAGER = "kafka_log_remote_remotelogmanager"


def on_gauges(scenario: Callable[[Bench, TierGauges], Awaitable[None]], **config: Any) -> None:
    async def run(bench: Bench) -> None:
        await scenario(bench, TierGauges(bench.metrics, (Pool(lambda: 1),)))

    on_bench(run, **config)


def of_topic(bench: Bench, name: str) -> float:
    return bench.metrics.value(f"kafka_server_brokertopicmetrics_{name}", topic="t")


def of_partition(bench: Bench, name: str) -> float:
    return bench.metrics.value(f"{MANAGER}_{name}", topic="t", partition="0")


def lag(bench: Bench, of: str) -> tuple[float, float]:
    """(bytes, segments) that wait to be copied, or deleted."""
    return of_topic(bench, f"remote{of}lagbytes"), of_topic(bench, f"remote{of}lagsegments")


def add_to_active(bench: Bench) -> None:
    bench.log.append_as_leader(batch_of(b"active"), leader_epoch=LeaderEpoch(0))


def test_closed_segments_wait_to_be_copied_and_the_active_one_does_not() -> None:
    async def scenario(bench: Bench, gauges: TierGauges) -> None:
        role = bench.role()
        gauges.show(role)
        assert lag(bench, "copy") == (0, 0)
        bench.write(3)
        add_to_active(bench)
        sizes = [segment.size for segment in bench.log.segments]
        assert lag(bench, "copy") == (sum(sizes[:3]), 3)
        bench.log.raise_highest_offset_in_remote_storage(Offset(1))
        assert lag(bench, "copy") == (sum(sizes[1:3]), 2)
        await copy_round(bench.tier, role)
        assert lag(bench, "copy") == (0, 0)

    on_gauges(scenario)


def test_nothing_waits_to_be_copied_while_copying_is_switched_off() -> None:
    """A18: what expires is deleted all the same."""

    async def scenario(bench: Bench, gauges: TierGauges) -> None:
        role, config = bench.role(), bench.log.config
        gauges.show(role)
        bench.write(2)
        await copy_round(bench.tier, role)
        bench.write(2)
        role.figures.delete_bytes, role.figures.delete_segments = 100, 1
        waiting = lag(bench, "copy")
        assert waiting[1] == 2
        bench.log.update_config(replace(config, remote_log_copy_disable=True))
        assert (lag(bench, "copy"), lag(bench, "delete")) == ((0, 0), (100, 1))
        bench.log.update_config(config)
        assert lag(bench, "copy") == waiting

    on_gauges(scenario)


def test_expired_segments_wait_to_be_deleted_until_each_is_gone() -> None:
    async def scenario(bench: Bench, gauges: TierGauges) -> None:
        role = bench.role()
        gauges.show(role)
        bench.write(3)
        await copy_round(bench.tier, role)
        sizes = [segment.size for segment in bench.published_segments()]
        await bench.runtime.clock.sleep(2)
        seen: list[tuple[float, float]] = []
        bench.store.deleting = lambda: seen.append(lag(bench, "delete"))
        await expire_round(bench.tier, role)
        assert seen == [(sum(sizes), 3), (sum(sizes[1:]), 2), (sizes[2], 1)]
        assert lag(bench, "delete") == (0, 0)

    on_gauges(scenario, retention_ms=1000)


class TickingClock:
    """Each look at the monotonic clock finds it a quarter of a second later."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks = 0

    def time_ms(self) -> int:
        return self._clock.time_ms()

    def monotonic(self) -> float:
        self._looks += 1
        return self._clock.monotonic() + self._looks / 4

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return self._clock.call_later(delay, callback)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def test_the_duration_of_the_search_for_expired_segments_is_in_milliseconds() -> None:
    async def scenario(bench: Bench, gauges: TierGauges) -> None:
        role = bench.role()
        gauges.show(role)
        assert of_topic(bench, "remotelogsizecomputationtime") == 0
        bench.write(2)
        await copy_round(bench.tier, role)
        runtime = replace(bench.runtime, clock=TickingClock(bench.runtime.clock))
        await expire_round(replace(bench.tier, runtime=runtime), role)
        assert of_topic(bench, "remotelogsizecomputationtime") == 250

    on_gauges(scenario)


def test_sizes_are_in_percent_of_the_retention() -> None:
    async def scenario(bench: Bench, gauges: TierGauges) -> None:
        role = bench.role()
        gauges.show(role)
        bench.write(2)
        await copy_round(bench.tier, role)
        add_to_active(bench)
        await expire_round(bench.tier, role)
        log = bench.log
        assert of_partition(bench, "retentionsizeinpercent") == pytest.approx(log.size * 100 / 2000)
        assert of_partition(bench, "localretentionsizeinpercent") == pytest.approx(log.size * 100 / 500)
        whole = log.size
        log.drop(log.segments.take_first(1))
        await expire_round(bench.tier, role)
        assert of_partition(bench, "retentionsizeinpercent") == pytest.approx(whole * 100 / 2000)
        assert of_partition(bench, "localretentionsizeinpercent") == pytest.approx(log.size * 100 / 500)
        log.update_config(replace(log.config, local_retention_bytes=-2))
        assert of_partition(bench, "localretentionsizeinpercent") == pytest.approx(log.size * 100 / 2000)
        role.end()
        assert of_partition(bench, "localretentionsizeinpercent") == 0

    on_gauges(scenario, retention_bytes=2000, local_retention_bytes=500)


def test_without_a_limit_there_is_no_share_of_it() -> None:
    async def scenario(bench: Bench, gauges: TierGauges) -> None:
        role = bench.role()
        gauges.show(role)
        bench.write(2)
        await copy_round(bench.tier, role)
        await expire_round(bench.tier, role)
        assert of_partition(bench, "retentionsizeinpercent") == 0
        assert of_partition(bench, "localretentionsizeinpercent") == 0

    on_gauges(scenario)


def test_the_idle_share_is_the_mean_of_all_kinds_of_tasks() -> None:
    async def scenario(bench: Bench) -> None:
        copying, expiring, following = Pool(lambda: 2), Pool(lambda: 4), Pool(lambda: 5)
        TierGauges(bench.metrics, (copying, expiring, following))
        name = f"{MANAGER}_remotelogmanagertasksavgidlepercent"
        assert bench.metrics.value(name) == 1
        async with copying, expiring:
            assert bench.metrics.value(name) == pytest.approx((0.5 + 0.75 + 1) / 3)
        assert bench.metrics.value(name) == 1

    on_bench(scenario)


def test_a_topic_shows_the_sum_of_its_led_partitions_and_nothing_without_any() -> None:
    async def scenario(bench: Bench, gauges: TierGauges) -> None:
        other_log = lineage(bench, "other")
        clock = bench.runtime.clock
        roles = [bench.role(), ReplicaRole(HandReplica(other_log, index=1), clock)]
        follower = ReplicaRole(HandReplica(lineage(bench, "followed"), index=2, is_leader=False), clock)
        bench.write(2)
        other_log.assign_epoch(LeaderEpoch(0), Offset(0))
        other_log.append_as_leader(batch_of(b"more"), leader_epoch=LeaderEpoch(0))
        other_log.roll()
        for number, role in enumerate(roles, start=1):
            role.figures.delete_bytes, role.figures.remote_size = number, 10 * number
        for role in (*roles, follower):
            gauges.show(role)
        closed = [segment for log in (bench.log, other_log) for segment in list(log.segments)[:-1]]
        assert lag(bench, "copy") == (sum(segment.size for segment in closed), 3)
        assert (of_topic(bench, "remotedeletelagbytes"), of_topic(bench, "remotelogsizebytes")) == (3, 30)
        gauges.hide(roles[0])
        assert lag(bench, "copy") == (closed[-1].size, 1)
        gauges.hide(follower)
        gauges.hide(roles[1])
        assert 'topic="t"' not in render(bench.metrics)

    on_gauges(scenario)
