"""The next request to a broker sees a change that was made through it, however late its metadata comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from milena.broker.hosting.applier import PARTITIONS_PER_ITERATION
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import Channel
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.simulation.steps import create

LATE = 0.3
"""Seconds by which the controller delays the fetches of the brokers."""
TOPIC, BROKER = 2, 4
FEW = PARTITIONS_PER_ITERATION
Step = Callable[[Channel], Coroutine[Any, Any, Any]]


def _create(partitions: int) -> Step:
    async def create_topic(broker: Channel) -> list[int]:
        plan = [{"partition_index": index, "broker_ids": [1]} for index in range(partitions)]
        topic = {"name": "new", "num_partitions": -1, "replication_factor": -1, "assignments": plan, "configs": []}
        return _errors((await broker.request(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=5000)).topics)

    return create_topic


async def partitions_of(broker: Channel, name: str) -> tuple[int, int]:
    """The error code of the topic and the number of its partitions."""
    (topic,) = (await broker.request(ApiKey.METADATA, 8, topics=[{"name": name}])).topics
    return int(topic.error_code), len(topic.partitions)


async def hosted(broker: Channel, name: str) -> int:
    """The number of partitions of a topic in the log directories of this broker."""
    described = await broker.request(ApiKey.DESCRIBE_LOG_DIRS, 1, topics=None)
    return sum(len(topic.partitions) for one in described.results for topic in one.topics if topic.name == name)


async def delete_topic(broker: Channel) -> list[int]:
    return _errors((await broker.request(ApiKey.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=5000)).responses)


async def add_partitions(broker: Channel) -> list[int]:
    topic = {"name": "t", "count": 5, "assignments": None}
    return _errors((await broker.request(ApiKey.CREATE_PARTITIONS, 2, topics=[topic], timeout_ms=5000)).results)


def _alter(kind: int, name: str, key: str, value: str) -> Step:
    async def alter(broker: Channel) -> list[int]:
        change = {"name": key, "config_operation": 0, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        answer = await broker.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        return _errors(answer.responses)

    return alter


def _value(kind: int, name: str, key: str) -> Step:
    async def value(broker: Channel) -> Any:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        (result,) = (await broker.request(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])).results
        return result.configs[0].value

    return value


def _errors(results: Any) -> list[int]:
    return [int(one.error_code) for one in results]


CHANGES: dict[str, tuple[Step, Step, Any]] = {
    "a topic that was created": (_create(40), lambda broker: partitions_of(broker, "new"), (0, 40)),
    "its few partitions are hosted": (_create(FEW), lambda broker: hosted(broker, "new"), FEW),
    "a topic that was deleted": (delete_topic, lambda broker: partitions_of(broker, "t"), (3, 0)),
    "partitions that were added": (add_partitions, lambda broker: partitions_of(broker, "t"), (0, 5)),
    "a topic's config": (_alter(TOPIC, "t", "flush.ms", "7"), _value(TOPIC, "t", "flush.ms"), "7"),
    "a broker's config": (
        _alter(BROKER, "1", "background.threads", "7"),
        _value(BROKER, "1", "background.threads"),
        "7",
    ),
    "the brokers' default": (
        _alter(BROKER, "", "background.threads", "8"),
        _value(BROKER, "1", "background.threads"),
        "8",
    ),
}


def _scenario(
    change: Step, look: Step, out: list[Any], **overrides: object
) -> Callable[[World], Coroutine[Any, Any, None]]:
    async def scenario(world: World) -> None:
        cluster: SimulatedCluster = await start_cluster(world, overrides=overrides)
        assert cluster.controller is not None
        async with cluster.client() as client:
            await create(client)
            lab_commands = cluster.controller.lab_commands
            await lab_commands.call("wait", **await lab_commands.call("delay", api="FETCH", ms=LATE * 1000))
            broker = client.to(host_of(1), 9092)
            began = asyncio.get_running_loop().time()
            assert set(await change(broker)) == {0}
            out.append(await look(broker))
            out.append(asyncio.get_running_loop().time() - began)

    return scenario


@pytest.mark.parametrize("name", CHANGES)
def test_the_next_request_to_the_broker_sees_the_change(name: str) -> None:
    change, look, expected = CHANGES[name]
    out: list[Any] = []
    simulate(_scenario(change, look, out), seed=1)
    assert out[0] == expected


def test_a_broker_answers_at_the_timeout_though_it_has_not_read_the_change() -> None:
    out: list[Any] = []
    change, look, expected = CHANGES["a topic's config"]
    simulate(_scenario(change, look, out, forwarded_request_visible_timeout_ms=50), seed=1)
    assert out[0] != expected
    assert 0.05 <= out[1] < LATE


def test_without_a_timeout_the_broker_does_not_wait() -> None:
    out: list[Any] = []
    change, look, expected = CHANGES["a topic's config"]
    simulate(_scenario(change, look, out, forwarded_request_visible_timeout_ms=0), seed=1)
    assert out[0] != expected
    assert out[1] < 0.05


class SlowClock:
    """Between two slices of new partitions, time passes."""

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0.1)


def test_a_large_topic_is_visible_before_its_logs_are_created() -> None:
    """Requests for a partition without a log get NOT_LEADER_OR_FOLLOWER, as in Kafka, and clients repeat them."""
    count = 10 * FEW

    async def error_of(broker: Channel, partition: int) -> int:
        asked = [{"name": "new", "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        answer = await broker.request(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=asked)
        return int(answer.topics[0].partitions[0].error_code)

    async def scenario(world: World) -> None:
        cluster: SimulatedCluster = await start_cluster(world)
        cluster.brokers[1]._applier._clock = SlowClock()  # type: ignore[assignment]
        async with cluster.client() as client:
            await create(client)
            broker = client.to(host_of(1), 9092)
            assert set(await _create(count)(broker)) == {0}
            assert await partitions_of(broker, "new") == (0, count)
            assert 0 < await hosted(broker, "new") < count
            assert await error_of(broker, 0) == 0
            assert await error_of(broker, count - 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await error_of(broker, count) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await cluster.brokers[1]._applier.wait_applied()
            assert await error_of(broker, count - 1) == 0
            assert await hosted(broker, "new") == count

    simulate(scenario, seed=1)
