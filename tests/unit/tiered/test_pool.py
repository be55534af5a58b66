"""Places for work on the tier."""

from __future__ import annotations

import asyncio

import pytest

from milena.tiered.shared.pool import Pool


class Workers:
    """Tasks that take a place and give it back on request."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.at_work: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def begin(self, *numbers: int) -> None:
        for number in numbers:
            self.ends[number] = asyncio.Event()
            self.tasks[number] = asyncio.create_task(self._work(number))
        await asyncio.sleep(0)

    async def end(self, number: int) -> None:
        self.ends[number].set()
        await self.tasks[number]
        await asyncio.sleep(0)

    async def _work(self, number: int) -> None:
        async with self.pool:
            self.at_work.append(number)
            try:
                await self.ends[number].wait()
            finally:
                self.at_work.remove(number)


def test_so_many_work_and_the_others_wait_in_their_order() -> None:
    async def scenario() -> None:
        workers = Workers(Pool(lambda: 2))
        await workers.begin(1, 2, 3, 4)
        assert workers.at_work == [1, 2]
        assert (workers.pool.waiting, workers.pool.idle_share) == (2, 0)
        await workers.end(2)
        assert workers.at_work == [1, 3]
        for number in (1, 3, 4):
            await workers.end(number)
        assert (workers.pool.busy, workers.pool.idle_share) == (0, 1)

    asyncio.run(scenario())


def test_who_gives_up_waiting_leaves_its_turn_to_the_next() -> None:
    async def scenario() -> None:
        workers = Workers(Pool(lambda: 1))
        await workers.begin(1, 2, 3)
        workers.tasks[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await workers.tasks[2]
        await workers.end(1)
        assert workers.at_work == [3]
        await workers.end(3)

    asyncio.run(scenario())


def test_a_place_given_to_a_cancelled_waiter_is_passed_on() -> None:
    async def scenario() -> None:
        workers = Workers(Pool(lambda: 1))
        await workers.begin(1, 2, 3)
        workers.ends[1].set()
        await workers.tasks[1]
        workers.tasks[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await workers.tasks[2]
        await asyncio.sleep(0)
        assert workers.at_work == [3]
        await workers.end(3)
        assert workers.pool.busy == 0

    asyncio.run(scenario())


def test_the_limit_may_change() -> None:
    async def scenario() -> None:
        limit = [1]
        workers = Workers(Pool(lambda: limit[0]))
        await workers.begin(1, 2, 3, 4)
        limit[0] = 3
        await workers.end(1)
        assert workers.at_work == [2, 3, 4]
        limit[0] = 1
        await workers.begin(5)
        await workers.end(2)
        await workers.end(3)
        assert workers.at_work == [4]
        await workers.end(4)
        assert workers.at_work == [5]
        await workers.end(5)

    asyncio.run(scenario())
