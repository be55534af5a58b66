"""Answers that say the same again, and work that gives up the loop."""

from __future__ import annotations

import asyncio

import pytest

from milena.lab.world.world import World, simulate
from milena.node.serving.repeats import Repeats
from milena.node.serving.slices import in_slices
from milena.protocol.errors import ErrorCode, KafkaError


def test_elements_mentioned_once_are_not_bounded() -> None:
    repeats = Repeats(limit=10)
    for name in range(1_000):
        repeats.note(name, 1_000)


def test_repeated_elements_are_bounded() -> None:
    repeats = Repeats(limit=10)
    repeats.note("group", 4)
    repeats.note("group", 4)
    repeats.note("group", 4)
    with pytest.raises(KafkaError) as refused:
        repeats.note("group", 4)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_others_have_their_turn_between_slices() -> None:
    async def run(world: World) -> None:
        clock = world.machine("m").start().clock
        seen: list[object] = []

        async def other() -> None:
            for _ in range(2):
                seen.append("other")
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(other())
        assert await in_slices(clock, range(5), lambda one: seen.append(one) or one * 2, 2) == [0, 2, 4, 6, 8]  # type: ignore[func-returns-value]
        assert seen == [0, 1, "other", 2, 3, "other", 4]
        await task

    simulate(run, seed=1)
