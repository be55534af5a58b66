"""Requests for many records are decided, encoded and written in separate steps."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from milena.controller.commands.topics import NewTopic, create_topics
from milena.controller.server import ATTEMPTS_IN_STEPS, Controller
from milena.controller.state.result import RECORDS_PER_STEP, Result
from milena.lab.cluster import SimulatedCluster, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import KafkaError
from milena.protocol.metadata_records import NoOpRecord

QUIET = {"metadata_max_idle_interval_ms": 0}


def creating(controller: Controller, name: str, decisions: list[int]) -> Cooperative[Any]:
    def decide() -> Result[Any]:
        decisions.append(controller.state.next_offset)
        topic = NewTopic(name=name, partitions=3, replication_factor=1, configs={})
        return create_topics(controller.state, [topic], controller.runtime.random)

    def answer(outcomes: Any) -> dict[str, object]:
        return {"outcomes": outcomes}

    return controller.commit_in_steps(decide, answer)


async def finished(work: Cooperative[Any]) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as done:
            return await done.value if isinstance(done.value, Awaitable) else done.value


def controller_of(cluster: SimulatedCluster) -> Controller:
    assert cluster.controller is not None
    return cluster.controller


def test_nothing_is_written_before_the_last_step() -> None:
    async def run(world: World) -> None:
        controller = controller_of(await start_cluster(world, 1, QUIET))
        work, before = creating(controller, "t", []), controller.state.next_offset
        next(work), next(work)
        assert controller.state.next_offset == before
        ((name, created),) = (await finished(work))["outcomes"]
        assert (name, created.partitions) == ("t", 3)
        assert controller.state.next_offset == before + 4

    simulate(run, seed=1)


@pytest.mark.parametrize("changes", [1, ATTEMPTS_IN_STEPS - 1, ATTEMPTS_IN_STEPS])
def test_a_change_between_the_steps_leads_to_another_decision(changes: int) -> None:
    async def run(world: World) -> None:
        controller, decisions = controller_of(await start_cluster(world, 1, QUIET)), list[int]()
        work = creating(controller, "t", decisions)
        for _ in range(changes):
            next(work)
            await controller.metadata.write([NoOpRecord()])
            next(work)
        assert (await finished(work))["outcomes"][0][0] == "t"
        assert len(decisions) == changes + 1 and decisions == sorted(set(decisions))
        assert len(controller.state.image.topics["t"].partitions) == 3

    simulate(run, seed=1)


def test_a_topic_that_was_created_between_the_steps_is_refused() -> None:
    async def run(world: World) -> None:
        controller = controller_of(await start_cluster(world, 1, QUIET))
        late = creating(controller, "t", [])
        next(late)
        await finished(creating(controller, "t", []))
        ((_, outcome),) = (await finished(late))["outcomes"]
        assert isinstance(outcome, KafkaError) and outcome.code.name == "TOPIC_ALREADY_EXISTS"

    simulate(run, seed=1)


def test_a_client_gets_the_answer_to_a_large_request() -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1)
        count = RECORDS_PER_STEP + 10
        topic = {"name": "large", "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
        fields: dict[str, Any] = {"topics": [topic], "timeout_ms": 60_000, "validate_only": False}
        async with cluster.client() as client:
            for code in (0, 36):
                answer = await client.ask_any(ApiKey.CREATE_TOPICS, **fields)
                assert [one.error_code for one in answer.topics] == [code]
            found = (await client.metadata(["large"])).topics["large"]
            assert len(found.partitions) == count

    simulate(run, seed=1)
