"""Actions on topics and their configuration.

::

    topic: {replicas: [A, B]}              the topic with the one partition; or {name: u, partitions: {0: [A, B]}};
                                           ``config``: in addition to the scenario's own. {name: u, count: 50,
                                           factor: 2} is placed by the controller, and not observed
    partitions: {t-1: [A, B]}              add partitions
    delete_topic: t
    configure: {key: value}                configure the topic ``t``
    elect: B                               preferred: B becomes the first replica and the leader; or
                                           {broker: B, of: u-1, error: PREFERRED_LEADER_NOT_AVAILABLE}
    reassign: {u-0: [A, B]}                assign other replicas; wait for an ISR for its end
    metadata_at: C                         the topic of the tier's metadata has its replicas only on this broker
    move: A                                move the replica to another log directory; wait with ``moved``
    delete_records: {before: 3}            at the leader; ``of: u-1``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.script import BROKERS, THE_PARTITION, Partition, node_id, partition_of
from milena.lab.scenarios.stage import PARTITION, TOPIC, Action, ScenarioFailed, Stage
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.types import REMOTE_METADATA_TOPIC, ZERO_UUID

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterPartitionReassignmentsResponse,
        AlterReplicaLogDirsResponse,
        CreatePartitionsResponse,
        CreateTopicsResponse,
        DeleteRecordsResponse,
        DeleteTopicsResponse,
        ElectLeadersResponse,
        IncrementalAlterConfigsResponse,
    )

TIMEOUT_MS: Final = 30_000


class Topic(TypedDict, total=False):
    """The arguments of ``topic``."""

    name: str
    replicas: Sequence[str]
    partitions: Mapping[int, Sequence[str]]
    count: int
    factor: int
    config: Mapping[str, object]


class DeleteRecords(TypedDict):
    """The arguments of ``delete_records``."""

    before: int
    of: NotRequired[str]


async def _topic(stage: Stage, arguments: Topic) -> None:
    name, count = arguments.get("name", TOPIC), arguments.get("count", -1)
    partitions = {} if count > 0 else arguments.get("partitions") or {PARTITION: arguments["replicas"]}
    configs = {**stage.script.config, **{key: str(value) for key, value in arguments.get("config", {}).items()}}
    await create_topic(stage, name, partitions, configs, count=count, factor=arguments.get("factor", -1))
    for number, brokers in partitions.items():
        stage.replicas[Partition(name, number)] = tuple(brokers)


async def create_topic(
    stage: Stage,
    name: str,
    partitions: Mapping[int, Sequence[str]],
    configs: Mapping[str, str],
    *,
    count: int = -1,
    factor: int = -1,
) -> None:
    """Create a topic with these replicas, or with ``count`` partitions that the controller places. Raises
    ScenarioFailed."""
    topic = {
        "name": name,
        "num_partitions": count,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": number, "broker_ids": [node_id(broker) for broker in brokers]}
            for number, brokers in partitions.items()
        ],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    response: CreateTopicsResponse = await stage.ask(
        CONTROLLER, ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False
    )
    result = response.topics[0]
    expect_none("the topic", result.error_code)
    stage.topic_ids[name] = topic_id = result.topic_id or ZERO_UUID
    stage.recorder.topics |= {name: name, str(topic_id): name}


async def _partitions(stage: Stage, added: Mapping[str, list[str]]) -> None:
    for name, brokers in added.items():
        partition = partition_of(name)
        topic = {
            "name": partition.topic,
            "count": partition.number + 1,
            "assignments": [{"broker_ids": [node_id(broker) for broker in brokers]}],
        }
        response: CreatePartitionsResponse = await stage.ask(
            CONTROLLER, ApiKey.CREATE_PARTITIONS, topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False
        )
        expect_none(name, response.results[0].error_code)
        stage.replicas[partition] = tuple(brokers)


async def _delete_topic(stage: Stage, name: str) -> None:
    response: DeleteTopicsResponse = await stage.ask(
        CONTROLLER,
        ApiKey.DELETE_TOPICS,
        topics=[{"name": name, "topic_id": None}],
        topic_names=[name],
        timeout_ms=TIMEOUT_MS,
    )
    expect_none("the deletion", response.responses[0].error_code)
    await stage.observe()
    for partition in [one for one in stage.replicas if one.topic == name]:
        del stage.replicas[partition]


async def _configure(stage: Stage, values: Mapping[str, object]) -> None:
    changes = [
        {"name": name, "config_operation": 0, "value": str(value).lower() if isinstance(value, bool) else str(value)}
        for name, value in values.items()
    ]
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": changes}
    response: IncrementalAlterConfigsResponse = await stage.ask(
        CONTROLLER, ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
    )
    expect_none("the configuration", response.responses[0].error_code)


async def _elect(stage: Stage, arguments: str | Mapping[str, str]) -> None:
    """Elect a broker: the controller elects the first replica, so the broker is made the first."""
    broker, partition, expected = arguments, THE_PARTITION, ErrorCode.NONE
    if isinstance(arguments, Mapping):
        broker, partition = arguments["broker"], partition_of(arguments.get("of", str(THE_PARTITION)))
        expected = ErrorCode[arguments.get("error", expected.name)]
    replicas = sorted(stage.replicas[partition], key=lambda one: one != broker)
    await _reassign(stage, {str(partition): replicas})
    elected: ElectLeadersResponse = await stage.ask(
        CONTROLLER,
        ApiKey.ELECT_LEADERS,
        election_type=0,
        topic_partitions=[{"topic": partition.topic, "partitions": [partition.number]}],
        timeout_ms=TIMEOUT_MS,
    )
    found = elected.replica_election_results[0].partition_result[0].error_code
    if found != expected:
        raise ScenarioFailed(f"the election: {ErrorCode(found).name}, not {expected.name}")


async def _reassign(stage: Stage, wanted: Mapping[str, list[str]]) -> None:
    for name, brokers in wanted.items():
        partition = partition_of(name)
        await _place(stage, partition, brokers)
        stage.replicas[partition] = tuple(brokers)


async def _place(stage: Stage, partition: Partition, brokers: Sequence[str]) -> None:
    replicas = [{"partition_index": partition.number, "replicas": [node_id(broker) for broker in brokers]}]
    response: AlterPartitionReassignmentsResponse = await stage.ask(
        CONTROLLER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        timeout_ms=TIMEOUT_MS,
        topics=[{"name": partition.topic, "partitions": replicas}],
    )
    expect_none(f"the replicas of {partition}", response.responses[0].partitions[0].error_code)


async def _metadata_at(stage: Stage, broker: str) -> None:
    async def unknown() -> str | None:
        return (
            None
            if await stage.command(CONTROLLER, "partitions", topic=REMOTE_METADATA_TOPIC)
            else "the topic does not exist"
        )

    async def elsewhere() -> str | None:
        for name, partition in (await stage.command(CONTROLLER, "partitions", topic=REMOTE_METADATA_TOPIC)).items():
            if (partition["leader"], partition["isr"]) != (node_id(broker), [node_id(broker)]):
                return f"{name} is {partition}"
        return None

    await stage.until(f"topic {REMOTE_METADATA_TOPIC}", unknown)
    for name in await stage.command(CONTROLLER, "partitions", topic=REMOTE_METADATA_TOPIC):
        await _place(stage, partition_of(name), [broker])
    await stage.until(f"{REMOTE_METADATA_TOPIC} at {broker}", elsewhere)


async def _move(stage: Stage, broker: str) -> None:
    found = await stage.directories(broker)
    target = next(path for path, holds in found.items() if not holds)
    moved: AlterReplicaLogDirsResponse = await stage.ask(
        broker,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        dirs=[{"path": target, "topics": [{"name": TOPIC, "partitions": [PARTITION]}]}],
    )
    expect_none("the move", moved.results[0].partitions[0].error_code)
    stage.memory[f"{broker}.directory"] = target


async def _delete_records(stage: Stage, arguments: DeleteRecords) -> None:
    partition = partition_of(arguments.get("of", str(THE_PARTITION)))
    leader = BROKERS[(await stage.partition(partition))["leader"] - 1]
    offsets = [{"partition_index": partition.number, "offset": arguments["before"]}]
    response: DeleteRecordsResponse = await stage.ask(
        leader,
        ApiKey.DELETE_RECORDS,
        topics=[{"name": partition.topic, "partitions": offsets}],
        timeout_ms=TIMEOUT_MS,
    )
    expect_none("the deletion of records", response.topics[0].partitions[0].error_code)


def expect_none(what: str, error: int) -> None:
    """Raise ScenarioFailed if ``error`` is not NONE."""
    if error:
        raise ScenarioFailed(f"{what}: {ErrorCode(error).name}")


TOPIC_ACTIONS: Final[Mapping[str, Action]] = {
    "topic": _topic,
    "partitions": _partitions,
    "delete_topic": _delete_topic,
    "configure": _configure,
    "elect": _elect,
    "reassign": _reassign,
    "metadata_at": _metadata_at,
    "move": _move,
    "delete_records": _delete_records,
}
