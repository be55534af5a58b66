"""The event loop of a node knows how long it has waited."""

from __future__ import annotations

import asyncio

from milena.runtime.loop_idle import MeasuredLoop


async def idle_after(work: float | None) -> float:
    """Return the idle seconds after a sleep, or, if ``work`` is None, after a hundred rounds without a wait."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MeasuredLoop)
    before = loop.idle_seconds()
    if work is None:
        for _ in range(100):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(work)
    return loop.idle_seconds() - before


def test_waiting_counts_and_work_does_not() -> None:
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        assert runner.run(idle_after(0.02)) > 0
        assert runner.run(idle_after(None)) == 0


def test_the_share_is_of_the_time_since_the_start() -> None:
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(idle_after(0.02))
        loop = runner.get_loop()
        assert isinstance(loop, MeasuredLoop)
        assert 0 < loop.idle_share() < 1
