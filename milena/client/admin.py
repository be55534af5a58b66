"""Admin client: topics, configurations, groups, records. Every call raises ChannelError if no node answers.

If a request names several resources, the result of each is None or its KafkaError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from milena.client.cluster import Cluster
from milena.client.membership import by_topic, find_coordinator
from milena.node.links.outgoing import Channel, Failing, only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        CreatePartitionsResponse,
        CreateTopicsResponse,
        DeletableGroupResult,
        DeleteGroupsResponse,
        DeleteRecordsResponse,
        DeleteTopicsResponse,
        DescribeConfigsResponse,
        DescribedGroup,
        DescribeGroupsResponse,
        IncrementalAlterConfigsResponse,
        ListGroupsResponse,
        OffsetDeleteResponse,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
    )

TIMEOUT_MS: Final = 30_000
COORDINATOR_WAIT: Final = 10.0
"""Seconds. It is long because the first request for a group creates __consumer_offsets."""
RETRIED: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
"""Types of resources that have configurations, as in Kafka's ConfigResource.Type."""
SET: Final = 0
DELETE: Final = 1

TOPIC_CONFIG: Final = 1
DEFAULT_CONFIG: Final = 5
SOURCES: Final[Mapping[int, str]] = {
    TOPIC_CONFIG: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    DEFAULT_CONFIG: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}
"""DescribeConfigsResponse.ConfigSource."""

T = TypeVar("T")
Results = dict[str, KafkaError | None]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 takes the cluster's default; ``assignments`` (partition to replicas) replaces both
    numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a resource. ``source`` is Kafka's number, as in ``SOURCES``."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[tuple[str, str | None, int], ...] = ()
    """Name, value and source of each key from which the value may come, if they were asked for."""


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    metadata: str


class GroupListing(NamedTuple):
    """A group as ListGroups returns it; ``state`` and ``kind`` (``classic``, ``consumer``) are "" if a broker reports
    none."""

    state: str
    kind: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    client_host: str
    assignment: bytes
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its coordinator describes it."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


async def create_topics(cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Results:
    response: CreateTopicsResponse = await cluster.ask_any(
        ApiKey.CREATE_TOPICS,
        topics=[
            {
                "name": topic.name,
                "num_partitions": -1 if topic.assignments else topic.partitions,
                "replication_factor": -1 if topic.assignments else topic.replication_factor,
                "assignments": [
                    {"partition_index": number, "broker_ids": list(replicas)}
                    for number, replicas in topic.assignments.items()
                ],
                "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
            }
            for topic in topics
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )
    return {topic.name: _error(topic) for topic in response.topics}


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> Results:
    channel = await cluster.any_channel()
    version = channel.choose(ApiKey.DELETE_TOPICS)
    response: DeleteTopicsResponse = await channel.request(
        ApiKey.DELETE_TOPICS,
        version,
        **({"topics": [{"name": name} for name in names]} if version >= 6 else {"topic_names": list(names)}),
        timeout_ms=TIMEOUT_MS,
    )
    for name in names:
        cluster.forget_topic(name)
    return {topic.name: _error(topic) for topic in response.responses if topic.name is not None}


async def create_partitions(
    cluster: Cluster, totals: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> Results:
    """Increase the number of partitions of topics to these totals. ``assignments``: by topic, the replicas of each new
    partition; by default the controller chooses."""
    given = {name: [{"broker_ids": list(brokers)} for brokers in added] for name, added in (assignments or {}).items()}
    response: CreatePartitionsResponse = await cluster.ask_any(
        ApiKey.CREATE_PARTITIONS,
        topics=[{"name": name, "count": total, "assignments": given.get(name)} for name, total in totals.items()],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
    for name in totals:
        cluster.forget_topic(name)
    return {result.name: _error(result) for result in response.results}


async def describe_configs(
    cluster: Cluster, resource_type: int, name: str, *, synonyms: bool = False, channel: Channel | None = None
) -> list[ConfigEntry]:
    """Return every key of a topic, of a broker, or of the cluster-wide default of brokers (""). ``channel``: the node
    to ask, such as a controller; by default a broker. Raises KafkaError."""
    channel = channel or await _channel_for(cluster, resource_type, name)
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    asked = {"include_synonyms": True} if synonyms else {}
    response: DescribeConfigsResponse = await channel.request(ApiKey.DESCRIBE_CONFIGS, resources=[resource], **asked)
    result = only(response.results)
    if (error := _error(result)) is not None:
        raise error
    return [
        ConfigEntry(
            entry.name,
            entry.value,
            int(messages.get(entry, "config_source", -1)),
            bool(entry.read_only),
            bool(entry.is_sensitive),
            tuple((one.name, one.value, int(one.source)) for one in messages.get(entry, "synonyms", ())),
        )
        for entry in result.configs
    ]


async def alter_configs(
    cluster: Cluster,
    resource_type: int,
    name: str,
    values: Mapping[str, str],
    deleted: Sequence[str] = (),
    *,
    channel: Channel | None = None,
) -> None:
    """Set and delete keys of one resource; its other keys are kept. ``channel`` as for ``describe_configs``. Raises
    KafkaError."""
    changes = [{"name": key, "config_operation": SET, "value": value} for key, value in values.items()]
    changes += [{"name": key, "config_operation": DELETE, "value": None} for key in deleted]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": changes}
    channel = channel or await _channel_for(cluster, resource_type, name)
    response: IncrementalAlterConfigsResponse = await channel.request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
    )
    if (error := _error(only(response.responses))) is not None:
        raise error


async def _channel_for(cluster: Cluster, resource_type: int, name: str) -> Channel:
    """Return the channel to the broker that answers for a resource: a broker for its own configuration, any broker for
    other resources."""
    if resource_type in (BROKER_RESOURCE, LOGGER_RESOURCE) and name:
        await cluster.metadata([])
        return cluster.to_broker(int(name))
    return await cluster.any_channel()


async def delete_records(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete the records before these offsets (-1: the high watermark); returns the new log starts. Raises
    KafkaError."""
    starts = {}
    for (topic, number), offset in offsets.items():
        channel, _, _ = await cluster.leader(topic, number)
        partition = {"partition_index": number, "offset": offset}
        response: DeleteRecordsResponse = await channel.request(
            ApiKey.DELETE_RECORDS, topics=[{"name": topic, "partitions": [partition]}], timeout_ms=TIMEOUT_MS
        )
        result = only(only(response.topics).partitions)
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), f"{topic}-{number}")
        starts[topic, number] = int(result.low_watermark)
    return starts


async def list_groups(cluster: Cluster) -> dict[str, str]:
    """Return the groups of all brokers with their states ("" if a broker reports none). Raises KafkaError."""
    return {group: listing.state for group, listing in (await group_listings(cluster)).items()}


async def group_listings(cluster: Cluster) -> dict[str, GroupListing]:
    """Return the groups of all brokers. Raises KafkaError."""
    view = await cluster.metadata([])
    groups: dict[str, GroupListing] = {}
    for broker in view.brokers.values():
        response: ListGroupsResponse = await cluster.to(broker.host, broker.port).request(ApiKey.LIST_GROUPS)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"broker {broker.id}")
        for group in response.groups:
            state, kind = messages.get(group, "group_state", ""), messages.get(group, "group_type", "")
            groups[group.group_id] = GroupListing(state, kind, group.protocol_type)
    return dict(sorted(groups.items()))


async def describe_group(cluster: Cluster, group: str) -> GroupView:
    """Return a group as its coordinator describes it. Raises KafkaError, for example GROUP_ID_NOT_FOUND."""

    async def ask() -> DescribedGroup:
        channel = cluster.to(*await find_coordinator(cluster, group))
        response: DescribeGroupsResponse = await channel.request(ApiKey.DESCRIBE_GROUPS, groups=[group])
        return only(response.groups)

    found = await ask_until_ready(cluster, ask, _error)
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            bytes(member.member_assignment),
            messages.get(member, "group_instance_id", None),
        )
        for member in found.members
    )
    return GroupView(found.group_id, found.group_state, found.protocol_type, found.protocol_data, members)


async def group_offsets(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, by default all of them. Raises KafkaError."""
    return {place: one.offset for place, one in (await group_commits(cluster, group, partitions)).items()}


async def group_commits(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition] | None = None, *, stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of a group with their metadata, by default all of them. ``stable``: wait for the end
    of open transactions that commit some of them, for up to ``COORDINATOR_WAIT`` seconds. Raises KafkaError."""
    topics = None
    if partitions is not None:
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()]

    async def ask() -> OffsetFetchResponseGroup | OffsetFetchResponse:
        channel = cluster.to(*await find_coordinator(cluster, group))
        await channel.connect()
        version = channel.choose(ApiKey.OFFSET_FETCH, at_most=9)
        if version >= 8:
            wanted = [{"group_id": group, "topics": topics}]
            several: OffsetFetchResponse = await channel.request(
                ApiKey.OFFSET_FETCH, version, groups=wanted, require_stable=stable
            )
            return only(several.groups)
        alone: OffsetFetchResponse = await channel.request(
            ApiKey.OFFSET_FETCH, version, group_id=group, topics=topics, require_stable=stable
        )
        return alone

    def refusal(found: OffsetFetchResponseGroup | OffsetFetchResponse) -> KafkaError | None:
        unstable = [
            partition.error_code
            for topic in (found.topics if stable else ())
            for partition in topic.partitions
            if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        ]
        code = found.error_code or next(iter(unstable), 0)
        return KafkaError(ErrorCode(code), f"group {group!r}") if code else None

    answer = await ask_until_ready(cluster, ask, refusal)
    return {
        (topic.name, int(partition.partition_index)): CommittedOffset(
            int(partition.committed_offset), partition.metadata or ""
        )
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


async def delete_groups(cluster: Cluster, groups: Sequence[str]) -> Results:
    results: Results = {}
    for group in groups:

        async def ask(group: str = group) -> DeletableGroupResult:
            channel = cluster.to(*await find_coordinator(cluster, group))
            response: DeleteGroupsResponse = await channel.request(ApiKey.DELETE_GROUPS, groups_names=[group])
            return only(response.results)

        results[group] = None
        try:
            await ask_until_ready(cluster, ask, _error)
        except KafkaError as error:
            results[group] = error
    return results


async def delete_group_offsets(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Delete committed offsets of a group. Returns the result of each partition. Raises KafkaError if the request
    failed as a whole, for example GROUP_ID_NOT_FOUND."""
    topics = [
        {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
        for name, numbers in by_topic(partitions).items()
    ]

    async def ask() -> OffsetDeleteResponse:
        channel = cluster.to(*await find_coordinator(cluster, group))
        response: OffsetDeleteResponse = await channel.request(ApiKey.OFFSET_DELETE, group_id=group, topics=topics)
        return response

    answer = await ask_until_ready(cluster, ask, _error)
    return {
        (topic.name, int(partition.partition_index)): _error(partition)
        for topic in answer.topics
        for partition in topic.partitions
    }


async def ask_until_ready(
    cluster: Cluster,
    ask: Callable[[], Awaitable[T]],
    refusal: Callable[[T], KafkaError | None] = lambda answer: None,
    retried: Collection[ErrorCode] = RETRIED,
) -> T:
    """Return the answer to ``ask``, which sends a request. It is repeated for ``COORDINATOR_WAIT`` seconds while the
    error is one of ``retried``, by default those of a coordinator that is not known or loads. ``refusal``: returns the
    error in an answer. Raises KafkaError."""
    clock = cluster.runtime.clock
    deadline = clock.monotonic() + COORDINATOR_WAIT
    attempt = 0
    while True:
        try:
            answer = await ask()
            error = refusal(answer)
            if error is None:
                return answer
        except KafkaError as failure:
            error = failure
        if error.code not in retried or clock.monotonic() > deadline:
            raise error
        await cluster.pause(attempt)
        attempt += 1


def _error(result: Failing) -> KafkaError | None:
    if not result.error_code:
        return None
    return KafkaError(ErrorCode(result.error_code), messages.get(result, "error_message", None))
