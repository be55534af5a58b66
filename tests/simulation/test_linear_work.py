"""The work for a request of every API grows linearly with the number of elements in its arrays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from milena.broker.apis import fetch as broker_fetch
from milena.broker.apis import produce as broker_produce
from milena.controller.apis import fetch as controller_fetch
from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.schemas.registry import Role, served
from tests.simulation.askers import FEW, SIZES, Asker, prepare
from tests.simulation.counted_work import Work
from tests.simulation.many_elements import Elements, array_paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GROWTH = 7
"""With four times as many elements linear work grows at most fourfold, quadratic work nearly sixteenfold."""
NOISE = 4_000
"""Lines that periodic tasks of the nodes may run meanwhile."""
LAST = (ApiKey.DELETE_TOPICS, ApiKey.UNREGISTER_BROKER)
"""APIs that delete what the others use; they are asked last."""


def is_worse_than_linear(counted: Sequence[int], noise: int) -> bool:
    few, _, most = counted
    return most > GROWTH * few + noise


async def grown(asker: Asker, key: ApiKey, version: int) -> list[str]:
    """Complaints about the arrays of a request whose work grows faster than linearly."""
    complaints = []
    for path in array_paths(key, version):
        for elements in Elements:
            await asker.send(key, version, path, elements, SIZES[-1])  # work that is done only once, such as imports
            await asyncio.sleep(2)
            counted = [await asker.ask(key, version, path, elements, count) for count in SIZES]
            lines, comparisons = zip(*counted, strict=True)
            if is_worse_than_linear(lines, NOISE) or is_worse_than_linear(comparisons, FEW):
                complaints.append(f"{key.name} v{version} {'.'.join(path)} ({elements.value}): {lines=} {comparisons=}")
    return complaints


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """A counter that is attached to the values of all requests that nodes decode."""
    counted = Work()

    def watch(module: Any, name: str) -> None:
        decode = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args: counted.watched(decode(*args)))

    watch(messages, "decode_request")
    watch(broker_produce, "decode_produce_request")
    watch(broker_fetch, "decode_fetch_request")
    watch(controller_fetch, "decode_fetch_request")
    yield counted


@pytest.mark.parametrize("role", Role)
def test_the_work_of_every_api_grows_with_its_elements(role: Role, work: Work) -> None:
    async def run(world: World) -> list[str]:
        cluster = await start_cluster(world, 1, {"auto_create_topics_enable": False, "log_retention_ms": -1})
        await prepare(cluster)
        asker = Asker(cluster, role, work)
        complaints: list[str] = []
        apis = served(role)
        for key in sorted(apis, key=lambda key: (key in LAST, key)):
            complaints += await grown(asker, key, apis[key].max)
        cluster.check_alive()
        return complaints

    complaints = simulate(run, seed=1)
    assert not complaints, "\n".join(complaints)
