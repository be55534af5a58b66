"""A member of a classic group: joining, leading the assignment, heartbeats, offsets (KIP-62, KIP-394).

::

    out --join--> joined --sync--> stable --(rebalance, fenced, coordinator gone)--> out
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from milena.client.cluster import BrokerView, Cluster
from milena.node.links.outgoing import Channel, ChannelError, only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.protocol.records.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_consumer_message,
)
from milena.protocol.types import TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        FindCoordinatorRequestFields,
        FindCoordinatorResponse,
        HeartbeatResponse,
        JoinGroupResponse,
        JoinGroupResponseMember,
        OffsetCommitResponse,
        OffsetFetchResponse,
        SyncGroupRequestAssignmentFields,
        SyncGroupResponse,
    )

T = TypeVar("T")


class GroupMetadata(NamedTuple):
    """What identifies a member of a group when offsets are committed in a transaction (KIP-447). The defaults are those
    of a consumer that is not a member."""

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


PROTOCOL: Final = "range"
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
"""The types of coordinators in FindCoordinator."""
COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class Membership:
    """One member of ``group`` and its requests to the coordinator. ``generation`` is -1 while it is not a member."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        instance_id: str | None = None,
    ) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self._cluster = cluster
        self._topics = sorted(set(topics))
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._instance_id = instance_id
        self._coordinator: Channel | None = None

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(self.group, self.generation, self.member_id, self._instance_id)

    async def join(self) -> list[TopicPartition]:
        """Join (or rejoin) and return the assigned partitions. Retries until it has joined.

        Raises KafkaError for errors that are not retriable.
        """
        attempt = 0
        while True:
            try:
                return await self._join_once()
            except ChannelError:
                self._forget_coordinator()
            except KafkaError as error:
                if not self._recovers(error.code):
                    raise
            await self._cluster.pause(attempt)
            attempt += 1

    async def heartbeat(self) -> bool:
        """Send a heartbeat. Returns False if the member must rejoin. Raises KafkaError."""
        try:
            response: HeartbeatResponse = await self._ask(
                ApiKey.HEARTBEAT,
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
            )
        except ChannelError:
            self._forget_coordinator()
            return True
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            return True
        if code in COORDINATOR_MOVED:
            self._forget_coordinator()
            return True
        if not self._recovers(code):
            raise KafkaError(code, f"group {self.group!r}")
        return False

    async def leave(self) -> None:
        """Leave the group if the coordinator is known. A static member stays in the group."""
        try:
            if self.generation >= 0 and self._instance_id is None:
                member = {"member_id": self.member_id, "group_instance_id": None}
                await self._ask(ApiKey.LEAVE_GROUP, group_id=self.group, member_id=self.member_id, members=[member])
        except (ChannelError, KafkaError):
            # The session times out instead.
            pass
        finally:
            self.generation = -1
            self._forget_coordinator()

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets; partitions without one are left out. Raises KafkaError."""
        return await self._until_answered(lambda: self._committed_once(partitions))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as the member of this generation. Raises KafkaError, for example ILLEGAL_GENERATION."""
        await self._until_answered(lambda: self._commit_once(offsets))

    def _recovers(self, code: ErrorCode) -> bool:
        """Apply an error to our state; False if rejoining cannot resolve it."""
        match code:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id, self.generation = "", -1
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.MEMBER_ID_REQUIRED:
                self.generation = -1
            case _ if code in COORDINATOR_MOVED or retriable(code):
                self._forget_coordinator()
            case _:
                return False
        return True

    async def _join_once(self) -> list[TopicPartition]:
        subscription = encode_consumer_message(Subscription(topics=tuple(self._topics)))
        response: JoinGroupResponse = await self._ask(
            ApiKey.JOIN_GROUP,
            timeout=self._rebalance_timeout_ms / 1000 + 5,
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[{"name": PROTOCOL, "metadata": subscription}],
        )
        code = ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return await self._join_once()
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"group {self.group!r}")
        self.member_id, generation = response.member_id, int(response.generation_id)
        shares: list[SyncGroupRequestAssignmentFields] = []
        if response.leader == response.member_id:
            shares = await self._assign(response.members)
        answer: SyncGroupResponse = await self._ask(
            ApiKey.SYNC_GROUP,
            timeout=self._rebalance_timeout_ms / 1000 + 5,
            group_id=self.group,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=shares,
        )
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"group {self.group!r}")
        self.generation = generation
        return [
            (part.topic, number)
            for part in decode_assignment(answer.assignment).assigned_partitions
            for number in part.partitions
        ]

    async def _assign(self, members: Sequence[JoinGroupResponseMember]) -> list[SyncGroupRequestAssignmentFields]:
        """As the group's leader: assign the partitions of all subscribed topics."""
        wanted = {member.member_id: decode_subscription(member.metadata).topics for member in members}
        names = sorted({topic for topics in wanted.values() for topic in topics})
        view = await self._cluster.metadata(names)
        counts = {name: len(view.topics[name].partitions) for name in names if name in view.topics}
        shares = assign_ranges(wanted, counts)
        return [
            {
                "member_id": member,
                "assignment": encode_consumer_message(
                    Assignment(
                        assigned_partitions=tuple(
                            TopicPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in share.items()
                        )
                    )
                ),
            }
            for member, share in shares.items()
        ]

    async def _committed_once(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()]
        channel = await self._channel()
        # From version 10 on topics are identified by id, which this client does not have here.
        version = channel.choose(ApiKey.OFFSET_FETCH, at_most=9)
        if version >= 8:
            response: OffsetFetchResponse = await channel.request(
                ApiKey.OFFSET_FETCH, version, groups=[{"group_id": self.group, "topics": topics}], require_stable=True
            )
            answer = only(response.groups)
        else:
            answer = response = await channel.request(
                ApiKey.OFFSET_FETCH, version, group_id=self.group, topics=topics, require_stable=True
            )
        if getattr(answer, "error_code", 0):
            raise KafkaError(ErrorCode(answer.error_code), f"group {self.group!r}")
        offsets = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise KafkaError(ErrorCode(partition.error_code), f"{topic.name}-{partition.partition_index}")
                if partition.committed_offset >= 0:
                    offsets[topic.name, int(partition.partition_index)] = int(partition.committed_offset)
        return offsets

    async def _commit_once(self, offsets: Mapping[TopicPartition, int]) -> None:
        channel = await self._channel()
        response: OffsetCommitResponse = await channel.request(
            ApiKey.OFFSET_COMMIT,
            channel.choose(ApiKey.OFFSET_COMMIT, at_most=9),
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            topics=[
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": number, "committed_offset": offsets[name, number], "committed_metadata": ""}
                        for number in numbers
                    ],
                }
                for name, numbers in by_topic(list(offsets)).items()
            ],
        )
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise KafkaError(ErrorCode(partition.error_code), f"{topic.name}-{partition.partition_index}")

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry while the coordinator moves or loads."""
        attempt = 0
        while True:
            try:
                return await ask()
            except ChannelError:
                self._forget_coordinator()
            except KafkaError as error:
                if error.code not in COORDINATOR_MOVED and error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise
                self._forget_coordinator()
            await self._cluster.pause(attempt)
            attempt += 1

    async def _ask(self, key: ApiKey, *, timeout: float | None = None, **fields: object) -> Any:  # noqa: ANN401 - decoded response; callers annotate it
        channel = await self._channel()
        return await channel.request(key, timeout=timeout, **fields)

    async def _channel(self) -> Channel:
        """The coordinator's channel, connected. Raises KafkaError, ChannelError."""
        if self._coordinator is None:
            # A separate connection: brokers handle a connection's requests in order, and a join may wait for minutes.
            address = await find_coordinator(self._cluster, self.group)
            self._coordinator = self._cluster.separate_channel(*address)
        channel = self._coordinator
        await channel.connect()
        return channel

    def _forget_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None


async def find_coordinator(cluster: Cluster, group: str) -> tuple[str, int]:
    """The address of the coordinator of ``group``. Raises KafkaError, ChannelError."""
    found = await coordinator_of(cluster, group)
    return found.host, found.port


async def coordinator_of(cluster: Cluster, key: str, key_type: int = GROUP_KEY) -> BrokerView:
    """The coordinator of a group, or of a transactional id (``TRANSACTION_KEY``). Raises KafkaError, ChannelError."""
    channel = await cluster.any_channel()
    version = channel.choose(ApiKey.FIND_COORDINATOR)
    several = version >= 4
    wanted: FindCoordinatorRequestFields = {"coordinator_keys": [key]} if several else {"key": key}
    response: FindCoordinatorResponse = await channel.request(
        ApiKey.FIND_COORDINATOR, version, key_type=key_type, **wanted
    )
    answer = only(response.coordinators) if several else response
    if answer.error_code:
        kind = "group" if key_type == GROUP_KEY else "transactional id"
        raise KafkaError(ErrorCode(answer.error_code), f"{kind} {key!r}")
    return BrokerView(int(answer.node_id), str(answer.host), int(answer.port), None)


def assign_ranges(wanted: Mapping[str, Sequence[str]], counts: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
    """Kafka's range assignment: consecutive partitions of each topic go to its members in order of their ids; the first
    members get one more if the number is not divisible."""
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in sorted(wanted)}
    for topic, count in sorted(counts.items()):
        members = [member for member in shares if topic in wanted[member]]
        if not members:
            continue
        each, rest = divmod(count, len(members))
        first = 0
        for index, member in enumerate(members):
            size = each + (index < rest)
            if size:
                shares[member][topic] = list(range(first, first + size))
            first += size
    return shares


def by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found
