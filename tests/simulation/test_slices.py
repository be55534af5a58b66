"""A request with many elements does not block the event loop, however many there are: it is handled in slices."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.limits import max_elements
from milena.protocol.schemas.registry import Role, served
from tests.simulation.askers import Asker, prepare
from tests.simulation.counted_work import Work
from tests.simulation.many_elements import Elements, Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MANY = 20_000
SLICE = 6
"""The limit of one iteration of the event loop is this number of lines of Python times ``MANY``: some tens of
milliseconds, independent of the number of elements."""
PASS = 12
"""As ``SLICE``, for handlers that have steps over all elements: planning the partitions of a fetch session, and
reporting the results of DeleteRecords."""
ANSWER = 30
"""As ``SLICE``, for Produce, which is decoded and answered in one step, and for Fetch, which is planned and encoded in
one step. Their limits of elements are lower."""


class Steps:
    """Notes the largest number of lines that ran in one iteration of the event loop."""

    def __init__(self, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        run: Any = asyncio.Handle._run

        def counted(handle: asyncio.Handle) -> None:
            before = work.lines
            run(handle)
            self.most = max(self.most, work.lines - before)

        monkeypatch.setattr(asyncio.Handle, "_run", counted)


LONG = [
    (ApiKey.PRODUCE, ("topic_data",), ANSWER),
    (ApiKey.PRODUCE, ("topic_data", "partition_data"), ANSWER),
    (ApiKey.FETCH, ("topics",), ANSWER),
    (ApiKey.FETCH, ("topics", "partitions"), ANSWER),
    (ApiKey.METADATA, ("topics",), SLICE),
    (ApiKey.OFFSET_COMMIT, ("topics",), SLICE),
    (ApiKey.OFFSET_COMMIT, ("topics", "partitions"), SLICE),
    (ApiKey.OFFSET_FETCH, ("groups",), SLICE),
    (ApiKey.DESCRIBE_GROUPS, ("groups",), SLICE),
    (ApiKey.LIST_OFFSETS, ("topics", "partitions"), SLICE),
    (ApiKey.DELETE_GROUPS, ("groups_names",), SLICE),
    (ApiKey.DESCRIBE_PRODUCERS, ("topics", "partition_indexes"), SLICE),
    (ApiKey.DELETE_RECORDS, ("topics", "partitions"), PASS),
]
"""APIs that yield, their long arrays, and the limit of lines. Other APIs meet it because their arrays are limited."""


class LongAsker(Asker):
    def value(self, elements: Elements, name: str, kind: str, number: int | None) -> Any:
        if kind == "uuid" and number is not None:
            return UUID(int=(1 << 64) + number)
        return super().value(elements, name, kind, number)

    async def _run(self, data: bytes) -> None:
        await asyncio.sleep(1)
        with self.work.counting():
            await super()._run(data)


@pytest.mark.parametrize(("key", "path", "lines"), LONG, ids=lambda value: getattr(value, "name", str(value)))
def test_a_long_request_does_not_block_the_event_loop(
    key: ApiKey, path: Path, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = min(MANY, max_elements(key) // 3)
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
        await asker.send(key, version, path, Elements.FRESH, many)
        cluster.check_alive()

    simulate(run, seed=1)
    assert many / 100 < steps.most < min(lines * MANY, work.lines / 2)
