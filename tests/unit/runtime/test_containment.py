"""Unexpected errors: counted, logged with a rate limit, and the work continues."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from milena.lab.world.world import World, simulate
from milena.runtime.containment import LOG_INTERVAL, Containment
from milena.runtime.tasks import TaskScope


def of(world: World) -> Containment:
    """On the simulated clock, but as a process has it: nothing ends."""
    return Containment(world.machine("n").start().clock)


def test_a_place_is_logged_once_in_a_while_and_counted_always(capsys: pytest.CaptureFixture[str]) -> None:
    async def run(world: World) -> None:
        contained = of(world)
        for _ in range(5):
            contained.note("here", ValueError("first"), topic="t")
        contained.note("there", ValueError("other"))
        await asyncio.sleep(LOG_INTERVAL)
        contained.note("here", ValueError("second"))
        assert contained.count == 7

    simulate(run, seed=1)
    lines = [line for line in capsys.readouterr().err.splitlines() if "failed" in line]
    said = [text for line in lines for text in ("first", "other", "second") if f"ValueError: {text}" in line]
    assert said == ["first", "other", "second"]
    assert '"topic": "t"' in lines[0]
    assert '"others_since": 4' in lines[2]


def test_a_kept_task_restarts_after_growing_pauses_and_ends_when_it_returns() -> None:
    async def run(world: World) -> None:
        contained, began = of(world), list[float]()

        async def work() -> None:
            began.append(world.loop.time())
            if len(began) < 5:
                raise UnicodeError("rubbish")

        failed: list[str] = []
        scope = TaskScope("s", lambda text, _error: failed.append(text), contained)
        task = scope.keep(work, name="work")
        await asyncio.sleep(10)
        assert task.done()
        pauses = [after - before for before, after in itertools.pairwise(began)]
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8])
        assert (failed, contained.count) == ([], 4)

    simulate(run, seed=1)


def test_an_attempt_fails_alone_and_a_spawned_task_does_not() -> None:
    async def run(world: World) -> None:
        async def work() -> None:
            raise AssertionError("broken")

        contained, failed = of(world), list[str]()
        scope = TaskScope("s", lambda text, _error: failed.append(text), contained)
        scope.attempt(work(), name="one")
        await asyncio.sleep(0.1)
        assert (failed, contained.count) == ([], 1)
        scope.spawn(work(), name="two")
        await asyncio.sleep(0.1)
        assert (failed, contained.count) == (["task s/two failed"], 1)

    simulate(run, seed=1)
