"""A request of many elements does not keep the loop, however many they are: its work is done in slices."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.registry import Role, served
from tests.simulation.counted_work import Work
from tests.simulation.many_elements import Elements, Path
from tests.simulation.test_linear_work import Asker, prepare

MANY = 20_000
MOST = 6 * MANY
"""Lines of Python in one go of the loop, some tens of milliseconds. Each request takes many more lines than that."""


class Steps:
    """The most lines that ran in one go of the loop."""

    def __init__(self, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        run: Any = asyncio.Handle._run

        def counted(handle: asyncio.Handle) -> None:
            before = work.lines
            run(handle)
            self.most = max(self.most, work.lines - before)

        monkeypatch.setattr(asyncio.Handle, "_run", counted)


LONG = [
    (ApiKey.METADATA, ("topics",)),
    (ApiKey.OFFSET_COMMIT, ("topics",)),
    (ApiKey.OFFSET_COMMIT, ("topics", "partitions")),
    (ApiKey.OFFSET_FETCH, ("groups",)),
    (ApiKey.FIND_COORDINATOR, ("coordinator_keys",)),
    (ApiKey.LEAVE_GROUP, ("members",)),
    (ApiKey.DESCRIBE_GROUPS, ("groups",)),
    (ApiKey.LIST_OFFSETS, ("topics", "partitions")),
]
"""APIs and their long arrays."""


class LongAsker(Asker):
    def value(self, elements: Elements, name: str, kind: str, number: int | None) -> Any:
        if kind == "uuid" and number is not None:
            return UUID(int=(1 << 64) + number)
        return super().value(elements, name, kind, number)

    async def _run(self, data: bytes) -> None:
        await asyncio.sleep(1)
        with self.work.counting():
            await super()._run(data)


@pytest.mark.parametrize(("key", "path"), LONG, ids=lambda value: getattr(value, "name", str(value)))
def test_a_long_request_leaves_the_loop_to_others(key: ApiKey, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    steps = Steps(work, monkeypatch)

    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1, {"auto_create_topics_enable": False})
        await prepare(cluster)
        asker = LongAsker(cluster, Role.BROKER, work)
        version = served(Role.BROKER)[key].max
        await asker.send(key, version, path, Elements.FRESH, 1)
        await asyncio.sleep(2)
        steps.most = 0
        await asker.send(key, version, path, Elements.FRESH, MANY)
        cluster.check_alive()

    simulate(run, seed=1)
    assert MANY / 100 < steps.most < MOST < work.lines
