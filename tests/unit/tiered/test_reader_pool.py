"""Readers of the tier: how many read, how many wait, and who shares a read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from milena.node.metrics import Metrics
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.containment import Containment
from milena.runtime.tasks import TaskScope
from milena.tiered.reading.reader_pool import ReaderPool
from milena.tiered.store.remote_storage import RemoteStorageError
from tests.unit.broker.hand_clock import HandClock
from tests.unit.tiered.reader_pools import Store, Waiter, with_pool
from tests.unit.tiered.tiered_log import Bench

POOL = "kafka_log_remote_remotestoragethreadpool_remotelogreader"


async def test_an_unexpected_error_is_reported_and_ends_no_node() -> None:
    contained = Containment(HandClock())
    ended: list[str] = []
    failed = lambda what, _: ended.append(what)  # noqa: E731
    runtime = SimpleNamespace(contained=contained, new_tasks=lambda name: TaskScope(name, failed, contained))
    config = SimpleNamespace(get_int=lambda _: 2)
    tier = SimpleNamespace(runtime=runtime, config=lambda: config)
    pool, waiter = ReaderPool(cast(Any, tier), Metrics()), Waiter()

    async def broken() -> None:
        raise ZeroDivisionError

    pool.submit("a", broken, waiter)
    async with asyncio.timeout(10):
        await waiter.heard.wait()
    ((key, error),) = waiter.results
    assert (key, type(error), contained.count, ended) == ("a", ZeroDivisionError, 1, [])
    await pool.stop()


def test_so_many_read_so_many_wait_and_the_rest_is_refused() -> None:
    async def scenario(pool: ReaderPool, store: Store, bench: Bench) -> None:
        waiter = Waiter()
        for name in "abcd":
            pool.submit(name, store.work(name), waiter)
        with pytest.raises(KafkaError) as refused:
            pool.submit("e", store.work("e"), waiter)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        await asyncio.sleep(1)
        assert store.begun == ["a", "b"]
        assert bench.metrics.value(f"{POOL}taskqueuesize") == 2
        assert bench.metrics.value(f"{POOL}avgidlepercent") == 0
        store.gate.set()
        await asyncio.sleep(1)
        assert waiter.results == [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]
        assert bench.metrics.value(f"{POOL}taskqueuesize") == 0
        assert bench.metrics.value(f"{POOL}avgidlepercent") == 1

    with_pool(scenario)


def test_the_same_read_is_done_once_for_all_who_ask() -> None:
    async def scenario(pool: ReaderPool, store: Store, bench: Bench) -> None:
        first, second, gone = Waiter(), Waiter(), Waiter()
        for waiter in (first, second, gone):
            pool.submit("a", store.work("a"), waiter)
        pool.leave("a", gone)
        store.gate.set()
        await asyncio.sleep(1)
        assert store.begun == ["a"]
        assert (first.results, second.results, gone.results) == ([("a", "A")], [("a", "A")], [])

    with_pool(scenario)


def test_a_queued_read_without_waiters_is_dropped_and_a_started_one_continues() -> None:
    async def scenario(pool: ReaderPool, store: Store, bench: Bench) -> None:
        waiter, later = Waiter(), Waiter()
        for name in "abc":
            pool.submit(name, store.work(name), waiter)
        await asyncio.sleep(1)
        for name in "abc":
            pool.leave(name, waiter)
        pool.submit("a", store.work("a"), later)
        store.gate.set()
        await asyncio.sleep(1)
        assert store.begun == ["a", "b"]
        assert (waiter.results, later.results) == ([], [("a", "A")])

    with_pool(scenario)


def test_a_failed_read_is_reported_and_frees_its_place() -> None:
    async def scenario(pool: ReaderPool, store: Store, bench: Bench) -> None:
        waiter, failure = Waiter(), RemoteStorageError("away")
        store.gate.set()
        for name in "abcd":
            pool.submit(name, store.work(name, failure), waiter)
        await asyncio.sleep(1)
        assert waiter.results == [(name, failure) for name in "abcd"]
        pool.submit("e", store.work("e"), waiter)
        await asyncio.sleep(1)
        assert waiter.results[-1] == ("e", "E")

    with_pool(scenario)


def test_nothing_is_read_once_it_has_stopped() -> None:
    async def scenario(pool: ReaderPool, store: Store, bench: Bench) -> None:
        waiter = Waiter()
        pool.submit("a", store.work("a"), waiter)
        await asyncio.sleep(1)
        await pool.stop()
        with pytest.raises(KafkaError) as refused:
            pool.submit("b", store.work("b"), waiter)
        assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
        assert waiter.results == []

    with_pool(scenario)
