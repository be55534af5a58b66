"""Admin client for replicas and nodes: leaders, reassignments, brokers, the quorum, log directories, features.

As in ``milena.client.admin``: if a request names several resources, each has its own result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from milena.client.cluster import Cluster
from milena.client.membership import by_topic
from milena.node.links.outgoing import API_VERSIONS_VERSION, SOFTWARE, Channel, Failing, only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.schemas.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    decode_api_versions_response,
    encode_api_versions_request,
)
from milena.protocol.types import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterPartitionReassignmentsResponse,
        AlterReplicaLogDirsResponse,
        DescribeClusterResponse,
        DescribeLogDirsResponse,
        DescribeQuorumReplicaState,
        DescribeQuorumResponse,
        DescribeTopicPartitionsResponse,
        ElectLeadersResponse,
        ListPartitionReassignmentsResponse,
        ReassignablePartitionFields,
        RequestCursorFields,
        UnregisterBrokerResponse,
        UpdateFeaturesResponse,
    )

TIMEOUT_MS: Final = 30_000
PREFERRED: Final = 0
UNCLEAN: Final = 1
CONTROLLERS: Final = 2
"""The endpoint type of controllers in DescribeCluster (KIP-919)."""

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
class QuorumReplica:
    """A replica of the metadata log. Times are in ms, -1 if unknown; ``directory`` is None if unknown."""

    id: int
    directory: UUID | None
    log_end: int
    last_fetch: int
    last_caught_up: int


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The metadata log's leader, and the log end offsets of voters and observers."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: Mapping[int, int]
    observers: Mapping[int, int]
    replicas: Mapping[int, QuorumReplica]
    """Voters and observers."""
    endpoints: Mapping[int, tuple[str, ...]]
    """Addresses of the voters, as ``NAME://host:port``."""


@dataclass(frozen=True, slots=True)
class HostedReplica:
    """A replica in a log directory: its size in bytes, and how far it lags behind the high watermark in records."""

    size: int
    lag: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDirView:
    """A log directory of a broker."""

    path: str
    error: KafkaError | None
    replicas: Mapping[TopicPartition, HostedReplica]


@dataclass(frozen=True, slots=True)
class Features:
    """The lowest and highest level of each feature that a node supports, and the finalized levels at ``epoch``."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


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
    return (await describe_cluster(cluster, fenced_too=True))[1]


async def describe_cluster(
    cluster: Cluster, *, fenced_too: bool = False, controllers: bool = False
) -> tuple[str, list[RegisteredBroker]]:
    """Return the cluster's id and its brokers, or its controllers, which only a controller returns. Raises
    KafkaError."""
    channel = await cluster.any_channel()
    version = channel.choose(ApiKey.DESCRIBE_CLUSTER)
    fenced = {"include_fenced_brokers": True} if fenced_too and version >= 2 else {}
    kind = {"endpoint_type": CONTROLLERS} if controllers else {}
    response: DescribeClusterResponse = await channel.request(ApiKey.DESCRIBE_CLUSTER, version, **fenced, **kind)
    _raise(response)
    nodes = [
        RegisteredBroker(
            int(broker.broker_id),
            broker.host,
            int(broker.port),
            broker.rack,
            bool(messages.get(broker, "is_fenced", False)),
        )
        for broker in response.brokers
    ]
    return response.cluster_id, nodes


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
        {one.id: one for one in map(_quorum_replica, (*partition.current_voters, *partition.observers))},
        {
            int(node.node_id): tuple(f"{one.name}://{one.host}:{int(one.port)}" for one in node.listeners)
            for node in messages.get(response, "nodes", ())
        },
    )


def _quorum_replica(state: DescribeQuorumReplicaState) -> QuorumReplica:
    return QuorumReplica(
        int(state.replica_id),
        messages.get(state, "replica_directory_id", None),
        int(state.log_end_offset),
        int(messages.get(state, "last_fetch_timestamp", -1)),
        int(messages.get(state, "last_caught_up_timestamp", -1)),
    )


async def describe_log_dirs(cluster: Cluster, broker: int) -> list[LogDirView]:
    """Return the log directories of a broker. Raises KafkaError."""
    await cluster.metadata([])
    response: DescribeLogDirsResponse = await cluster.to_broker(broker).request(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
    if messages.get(response, "error_code", 0):
        raise KafkaError(ErrorCode(response.error_code), f"broker {broker}")
    return [
        LogDirView(
            directory.log_dir,
            _error(directory),
            {
                (topic.name, int(one.partition_index)): HostedReplica(
                    int(one.partition_size), int(one.offset_lag), bool(one.is_future_key)
                )
                for topic in directory.topics
                for one in topic.partitions
            },
        )
        for directory in response.results
    ]


async def describe_features(cluster: Cluster) -> Features:
    """Return the features of a node, with the levels of the cluster that it knows."""
    answer = await api_versions(await cluster.any_channel())
    supported = {name: (levels.min, levels.max) for name, levels in answer.supported.items()}
    return Features(supported, answer.finalized, answer.finalized_epoch)


async def api_versions(channel: Channel) -> ApiVersionsResponse:
    """Return a node's versions and features. Raises KafkaError."""
    await channel.connect()
    version = channel.choose(ApiKey.API_VERSIONS, at_most=API_VERSIONS_VERSION)
    body = encode_api_versions_request(version, ApiVersionsRequest(SOFTWARE))
    answer = await channel.request_raw(
        ApiKey.API_VERSIONS, version, [body], partial(decode_api_versions_response, version)
    )
    _raise(answer)
    return answer


async def update_features(
    cluster: Cluster, levels: Mapping[str, int], upgrade_type: int, *, dry_run: bool = False
) -> dict[str, KafkaError | None]:
    """Finalize these levels (0: disable a feature). ``upgrade_type`` is that of Kafka's FeatureUpdate.UpgradeType. From
    v2 on all levels are changed or none, so that all have the same result. Raises ChannelError."""
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": upgrade_type} for name, level in levels.items()
    ]
    response: UpdateFeaturesResponse = await cluster.ask_any(
        ApiKey.UPDATE_FEATURES, feature_updates=updates, timeout_ms=TIMEOUT_MS, validate_only=dry_run
    )
    overall = _error(response)
    own = {one.feature: _error(one) for one in messages.get(response, "results", ())}
    return {name: overall or own.get(name) for name in levels}


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
