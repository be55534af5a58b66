"""Admin client for replicas: leaders, reassignments, registered brokers, the quorum.

As in ``milena.client.admin``: if a request names several resources, each has its own result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from milena.client.cluster import Cluster
from milena.client.membership import by_topic
from milena.node.links.outgoing import Failing, only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterPartitionReassignmentsResponse,
        AlterReplicaLogDirsResponse,
        DescribeClusterResponse,
        DescribeQuorumResponse,
        DescribeTopicPartitionsResponse,
        ElectLeadersResponse,
        ListPartitionReassignmentsResponse,
        ReassignablePartitionFields,
        RequestCursorFields,
        UnregisterBrokerResponse,
    )

TIMEOUT_MS: Final = 30_000
PREFERRED: Final = 0
UNCLEAN: Final = 1

Outcomes: TypeAlias = dict[TopicPartition, KafkaError | None]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """An ongoing reassignment. ``replicas`` are all of them, including those being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition as DescribeTopicPartitions returns it. ``leader`` is -1 if there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A broker as DescribeCluster returns it, with its address on the listener that was asked."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The metadata log's leader, and the log end offsets of voters and observers."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: Mapping[int, int]
    observers: Mapping[int, int]


async def elect_leaders(
    cluster: Cluster, partitions: Sequence[TopicPartition] | None, *, unclean: bool = False
) -> Outcomes:
    """Elect preferred leaders, or unclean ones; None includes all partitions, and returns only those that needed an
    election.

    Raises KafkaError if the request failed as a whole.
    """
    wanted = None
    if partitions is not None:
        wanted = [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()]
    kind = UNCLEAN if unclean else PREFERRED
    response: ElectLeadersResponse = await cluster.ask_any(
        ApiKey.ELECT_LEADERS, election_type=kind, topic_partitions=wanted, timeout_ms=TIMEOUT_MS
    )
    _raise(response)
    return {
        (topic.topic, int(partition.partition_id)): _error(partition)
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }


async def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None], *, allow_factor_change: bool = True
) -> Outcomes:
    """Assign these replicas to partitions; None cancels an ongoing reassignment. Raises KafkaError as ``elect_leaders``
    does."""
    topics: dict[str, list[ReassignablePartitionFields]] = {}
    for (topic, number), replicas in targets.items():
        partition: ReassignablePartitionFields = {
            "partition_index": number,
            "replicas": None if replicas is None else list(replicas),
        }
        topics.setdefault(topic, []).append(partition)
    strict = {} if allow_factor_change else {"allow_replication_factor_change": False}
    response: AlterPartitionReassignmentsResponse = await cluster.ask_any(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        topics=[{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        timeout_ms=TIMEOUT_MS,
        **strict,
    )
    _raise(response)
    return {
        (topic.name, int(partition.partition_index)): _error(partition)
        for topic in response.responses
        for partition in topic.partitions
    }


async def list_reassignments(
    cluster: Cluster, partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The ongoing reassignments, of these partitions or of all. Raises KafkaError."""
    wanted = None
    if partitions is not None:
        wanted = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()]
    response: ListPartitionReassignmentsResponse = await cluster.ask_any(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=wanted, timeout_ms=TIMEOUT_MS
    )
    _raise(response)
    return {
        (topic.name, int(partition.partition_index)): Reassignment(
            _ids(partition.replicas), _ids(partition.adding_replicas), _ids(partition.removing_replicas)
        )
        for topic in response.topics
        for partition in topic.partitions
    }


async def list_brokers(cluster: Cluster) -> list[RegisteredBroker]:
    """All registered brokers; brokers before Kafka 4.0 return only those that are not fenced. Raises KafkaError."""
    channel = await cluster.any_channel()
    version = channel.choose(ApiKey.DESCRIBE_CLUSTER)
    fenced_too = {"include_fenced_brokers": True} if version >= 2 else {}
    response: DescribeClusterResponse = await channel.request(ApiKey.DESCRIBE_CLUSTER, version, **fenced_too)
    _raise(response)
    return [
        RegisteredBroker(
            int(broker.broker_id),
            broker.host,
            int(broker.port),
            broker.rack,
            bool(messages.get(broker, "is_fenced", False)),
        )
        for broker in response.brokers
    ]


async def unregister_broker(cluster: Cluster, broker: int) -> None:
    """Unregister a broker that will not come back. Raises KafkaError(BROKER_ID_NOT_REGISTERED)."""
    response: UnregisterBrokerResponse = await cluster.ask_any(ApiKey.UNREGISTER_BROKER, broker_id=broker)
    _raise(response)


async def alter_replica_log_dirs(cluster: Cluster, broker: int, moves: Mapping[TopicPartition, str]) -> Outcomes:
    """Move replicas of this broker to other log directories (paths on its machine)."""
    directories: dict[str, list[TopicPartition]] = {}
    for partition, path in moves.items():
        directories.setdefault(path, []).append(partition)
    await cluster.metadata([])
    response: AlterReplicaLogDirsResponse = await cluster.to_broker(broker).request(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        dirs=[
            {
                "path": path,
                "topics": [{"name": name, "partitions": numbers} for name, numbers in by_topic(partitions).items()],
            }
            for path, partitions in directories.items()
        ],
    )
    return {
        (topic.topic_name, int(partition.partition_index)): _error(partition)
        for topic in response.results
        for partition in topic.partitions
    }


async def describe_partitions(cluster: Cluster, topic: str) -> dict[int, PartitionDescription]:
    """All partitions of a topic, with their eligible leader replicas. Raises KafkaError."""
    found: dict[int, PartitionDescription] = {}
    cursor: RequestCursorFields | None = None
    while True:
        response: DescribeTopicPartitionsResponse = await cluster.ask_any(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            topics=[{"name": topic}],
            response_partition_limit=2000,
            cursor=cursor,
        )
        described = only(response.topics)
        _raise(described)
        for partition in described.partitions:
            found[int(partition.partition_index)] = PartitionDescription(
                int(partition.leader_id),
                int(partition.leader_epoch),
                _ids(partition.replica_nodes),
                _ids(partition.isr_nodes),
                _ids(partition.eligible_leader_replicas or ()),
                _ids(partition.last_known_elr or ()),
                _ids(partition.offline_replicas),
            )
        following = response.next_cursor
        if following is None:
            return found
        cursor = {"topic_name": following.topic_name, "partition_index": int(following.partition_index)}


async def describe_quorum(cluster: Cluster) -> QuorumView:
    """Describe the quorum of the metadata log. Raises KafkaError."""
    wanted = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
    response: DescribeQuorumResponse = await cluster.ask_any(ApiKey.DESCRIBE_QUORUM, topics=wanted)
    _raise(response)
    partition = only(only(response.topics).partitions)
    _raise(partition)
    return QuorumView(
        int(partition.leader_id),
        int(partition.leader_epoch),
        int(partition.high_watermark),
        {int(voter.replica_id): int(voter.log_end_offset) for voter in partition.current_voters},
        {int(observer.replica_id): int(observer.log_end_offset) for observer in partition.observers},
    )


def _ids(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(number) for number in numbers)


def _error(result: Failing) -> KafkaError | None:
    if not result.error_code:
        return None
    return KafkaError(ErrorCode(result.error_code), messages.get(result, "error_message", None))


def _raise(result: Failing) -> None:
    error = _error(result)
    if error is not None:
        raise error
