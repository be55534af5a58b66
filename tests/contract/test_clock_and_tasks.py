"""The contract of the clock and of task scopes."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.worlds import Surroundings, in_both_worlds


@in_both_worlds
async def test_timers_fire_in_order_and_can_be_cancelled(it: Surroundings) -> None:
    clock, fired = it.runtime.clock, list[str]()
    done = asyncio.Event()
    clock.call_later(0.02, lambda: fired.append("second"))
    clock.call_later(0.01, lambda: fired.append("first"))
    clock.call_later(0.015, lambda: fired.append("never")).cancel()
    clock.call_later(0.03, done.set)
    await done.wait()
    assert fired == ["first", "second"]


@in_both_worlds
async def test_time_passes_while_sleeping(it: Surroundings) -> None:
    clock = it.runtime.clock
    wall, started = clock.time_ms(), clock.monotonic()
    await clock.sleep(0.02)
    assert clock.monotonic() - started >= 0.019
    assert clock.time_ms() - wall >= 19


@in_both_worlds
async def test_a_timeout_ends_a_wait(it: Surroundings) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()


@in_both_worlds
async def test_a_scope_cancels_its_tasks_in_order_of_creation_and_waits_for_them(it: Surroundings) -> None:
    tasks, cancelled, ended = it.runtime.new_tasks("scope"), list[int](), list[int]()

    async def work(number: int) -> None:
        try:
            await it.runtime.clock.sleep(100)
        finally:
            cancelled.append(number)
            await it.runtime.clock.sleep(0.001)
            ended.append(number)

    handles = [tasks.spawn(work(number), name=f"work {number}") for number in range(20)]
    await it.runtime.clock.sleep(0.001)
    await tasks.stop()
    assert cancelled == sorted(ended) == list(range(20))
    assert all(handle.done() for handle in handles)
    await tasks.stop()
    assert it.failures == []


@in_both_worlds
async def test_a_task_that_raises_is_reported(it: Surroundings) -> None:
    tasks = it.runtime.new_tasks("scope")

    async def work() -> None:
        raise ValueError("broken")

    tasks.spawn(work(), name="work")
    await it.runtime.clock.sleep(0.001)
    [(description, error)] = it.failures
    assert description == "task scope/work failed"
    assert isinstance(error, ValueError)


@in_both_worlds
async def test_a_cancelled_or_finished_task_is_not_reported_as_a_failure(it: Surroundings) -> None:
    tasks = it.runtime.new_tasks("scope")

    async def work() -> int:
        return 1

    tasks.spawn(it.runtime.clock.sleep(100), name="cancelled").cancel()
    tasks.spawn(work(), name="finished")
    await it.runtime.clock.sleep(0.001)
    assert it.failures == []
    await tasks.stop()


@in_both_worlds
async def test_a_stopped_scope_accepts_no_new_task(it: Surroundings) -> None:
    tasks = it.runtime.new_tasks("scope")
    await tasks.stop()
    with pytest.raises(RuntimeError, match="'late' was started in scope 'scope'"):
        tasks.spawn(it.runtime.clock.sleep(1), name="late")


@in_both_worlds
async def test_a_task_may_stop_its_own_scope(it: Surroundings) -> None:
    tasks, ended = it.runtime.new_tasks("scope"), list[str]()

    async def stop() -> None:
        await tasks.stop()
        ended.append("stopper")

    other = tasks.spawn(it.runtime.clock.sleep(100), name="other")
    tasks.spawn(stop(), name="stopper")
    await it.runtime.clock.sleep(0.01)
    assert other.done()
    assert ended == ["stopper"]
