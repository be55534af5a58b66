"""Requests of consumer groups, one at a time, to the last known coordinator; each is recorded in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar

from milena.client.cluster import Cluster
from milena.client.membership import PROTOCOL, by_topic, find_coordinator
from milena.lab.histories.events import Event, RequestOutcome
from milena.lab.histories.group_events import (
    NO_OFFSET,
    GroupDelete,
    Join,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Share,
    Sync,
)
from milena.node.links.outgoing import Channel, ChannelError, Unreachable
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_consumer_message,
)
from milena.protocol.requests import messages
from milena.protocol.types import TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        DeleteGroupsResponse,
        HeartbeatResponse,
        JoinGroupResponse,
        OffsetCommitRequestFields,
        OffsetCommitRequestTopicFields,
        OffsetCommitResponse,
        OffsetCommitResponseTopic,
        OffsetDeleteResponse,
        OffsetDeleteResponseTopic,
        OffsetFetchResponse,
        SyncGroupResponse,
    )

UNSURE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Error codes that are also returned for a write that was not committed in time, which may still be committed."""
WITH_RETENTION: Final = 4
WITHOUT_TOPIC_IDS: Final = 9


B = TypeVar("B")


class Identity(TypedDict):
    """The fields of requests that name a member."""

    member_id: str
    group_instance_id: str | None


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """How requests name a member. ``generation`` is -1 for a client that is no member."""

    member: str = ""
    generation: int = -1
    instance: str = ""

    @property
    def fields(self) -> Identity:
        return {"member_id": self.member, "group_instance_id": self.instance or None}


@dataclass(frozen=True, slots=True)
class Answer(Generic[B]):
    """The result of a request to a coordinator. ``body`` is None if there was no answer. ``silent``: there was none in
    time although the connection did not break."""

    node: str
    begun: float
    ended: float
    body: B | None = None
    silent: bool = False

    def head(self, group: str, code: int) -> tuple[str, str, float, float, RequestOutcome]:
        return group, self.node, self.begun, self.ended, self.outcome(code)

    def outcome(self, code: int) -> RequestOutcome:
        if self.body is None or ErrorCode(code) in UNSURE:
            return RequestOutcome.UNKNOWN
        return RequestOutcome.FAILED if code else RequestOutcome.OK


class GroupClient:
    """Sends requests of one group over a connection of its own and notes each one. Methods return None, or no
    partition, if the request could not be sent."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        note: Callable[[Event], object],
        now: Callable[[], float],
        *,
        rebalance_ms: int,
        session_ms: int,
        patience: float,
    ) -> None:
        """``now``: the clock of the history. ``patience``: seconds that JoinGroup and SyncGroup may take in addition to
        the rebalance time-out."""
        self.group = group
        self._cluster = cluster
        self._note = note
        self._now = now
        self._rebalance_ms = rebalance_ms
        self._session_ms = session_ms
        self._longest = rebalance_ms / 1000 + patience
        self._channel: Channel | None = None
        self._is_cancelled = False

    async def join(self, who: MemberIdentity, topics: Sequence[str]) -> tuple[ErrorCode, Join] | None:
        """Send JoinGroup. Return the error code and the event, whose ``member`` is the id for the next request."""
        answer: Answer[JoinGroupResponse] | None = await self._ask(
            ApiKey.JOIN_GROUP,
            timeout=self._longest,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                {"name": PROTOCOL, "metadata": encode_consumer_message(Subscription(topics=tuple(sorted(topics))))}
            ],
            **who.fields,
        )
        if answer is None:
            return None
        body = answer.body
        code = 0 if body is None else body.error_code
        head = answer.head(self.group, code)
        join = Join(*head, who.member, -1, who.instance, silent=answer.silent)
        if body is not None:
            members = tuple(
                (member.member_id, messages.get(member, "group_instance_id", None) or "") for member in body.members
            )
            generation, leader = int(body.generation_id), body.leader
            join = Join(*head, body.member_id, generation, who.instance, leader=leader, members=members)
        self._note(join)
        self._judge(answer, code)
        return ErrorCode(code), join

    async def sync(self, who: MemberIdentity, sent: Mapping[str, Share] | None) -> Sync | None:
        shares = [{"member_id": one, "assignment": _encoded(share)} for one, share in (sent or {}).items()]
        answer: Answer[SyncGroupResponse] | None = await self._ask(
            ApiKey.SYNC_GROUP,
            timeout=self._longest,
            generation_id=who.generation,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=shares,
            **who.fields,
        )
        if answer is None:
            return None
        body = answer.body
        code = 0 if body is None else body.error_code
        share = () if body is None or code else _decoded(body.assignment)
        assignments = None if sent is None else tuple(sent.items())
        head = answer.head(self.group, code)
        sync = Sync(*head, who.member, who.generation, who.instance, answer.silent, assignments, share)
        self._note(sync)
        self._judge(answer, code)
        return sync

    async def heartbeat(self, who: MemberIdentity) -> ErrorCode | None:
        answer: Answer[HeartbeatResponse] | None = await self._ask(
            ApiKey.HEARTBEAT, generation_id=who.generation, **who.fields
        )
        if answer is None or answer.body is None:
            return None
        code = ErrorCode(answer.body.error_code)
        # REBALANCE_IN_PROGRESS is the answer to a member of the current generation
        taken = ErrorCode.NONE if code is ErrorCode.REBALANCE_IN_PROGRESS else code
        self._note(MemberHeartbeat(*answer.head(self.group, taken), who.member, who.generation, who.instance))
        self._judge(answer, code)
        return code

    async def leave(self, who: MemberIdentity) -> None:
        member = {"member_id": who.member, "group_instance_id": who.instance or None}
        await self._ask(ApiKey.LEAVE_GROUP, member_id=who.member, members=[member])

    async def commit(
        self,
        offsets: Mapping[TopicPartition, tuple[int, str]],
        who: MemberIdentity | None = None,
        *,
        retention: float | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Send OffsetCommit. Return the error codes. ``retention``: seconds; the request has a version that supports
        it."""
        who = MemberIdentity() if who is None else who
        topics: list[OffsetCommitRequestTopicFields] = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offsets[name, number][0],
                        "committed_metadata": offsets[name, number][1],
                    }
                    for number in numbers
                ],
            }
            for name, numbers in by_topic(list(offsets)).items()
        ]
        fields: OffsetCommitRequestFields = {
            "generation_id_or_member_epoch": who.generation,
            "topics": topics,
            "member_id": who.member,
            "group_instance_id": who.instance or None,
        }
        version = WITHOUT_TOPIC_IDS
        if retention is not None:
            version, fields["retention_time_ms"] = WITH_RETENTION, int(retention * 1000)
        answer: Answer[OffsetCommitResponse] | None = await self._ask(
            ApiKey.OFFSET_COMMIT, timeout=None, version=version, **fields
        )
        if answer is None:
            return {}
        codes = dict.fromkeys(offsets, ErrorCode.NONE) if answer.body is None else _codes(answer.body.topics)
        for partition, (offset, metadata) in offsets.items():
            head = answer.head(self.group, codes[partition])
            identity = (who.member, who.generation, who.instance)
            self._note(OffsetCommit(*head, *identity, partition, offset, metadata, retention))
        self._judge(answer, *codes.values())
        return codes

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Send OffsetFetch. Return the offsets of partitions without an error; None if there was no answer."""
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()]
        answer: Answer[OffsetFetchResponse] | None = await self._ask(
            ApiKey.OFFSET_FETCH,
            version=WITHOUT_TOPIC_IDS,
            groups=[{"group_id": self.group, "topics": topics}],
            require_stable=True,
        )
        if answer is None or answer.body is None:
            return None
        body = answer.body.groups[0]
        self._judge(answer, body.error_code)
        if body.error_code:
            return None
        found = {}
        for topic in body.topics:
            for described in topic.partitions:
                partition = (topic.name, int(described.partition_index))
                offset = found[partition] = int(described.committed_offset)
                metadata = described.metadata or "" if offset != NO_OFFSET else ""
                self._note(OffsetFetch(*answer.head(self.group, described.error_code), partition, offset, metadata))
        return found

    async def delete_offset(self, partition: TopicPartition) -> None:
        topic = {"name": partition[0], "partitions": [{"partition_index": partition[1]}]}
        answer: Answer[OffsetDeleteResponse] | None = await self._ask(ApiKey.OFFSET_DELETE, topics=[topic])
        if answer is None:
            return
        code = ErrorCode.NONE
        if answer.body is not None:
            code = ErrorCode(answer.body.error_code) or _codes(answer.body.topics)[partition]
        self._note(OffsetDelete(*answer.head(self.group, code), partition))
        self._judge(answer, code)

    async def delete_group(self) -> RequestOutcome:
        """Send DeleteGroups. Return its outcome: FAILED also if the request could not be sent."""
        answer: Answer[DeleteGroupsResponse] | None = await self._ask(ApiKey.DELETE_GROUPS, groups_names=[self.group])
        if answer is None:
            return RequestOutcome.FAILED
        code = ErrorCode.NONE if answer.body is None else ErrorCode(answer.body.results[0].error_code)
        self._note(GroupDelete(*answer.head(self.group, code), absent=code is ErrorCode.GROUP_ID_NOT_FOUND))
        self._judge(answer, code)
        return answer.outcome(code)

    def close(self) -> None:
        """Close the connection. The next request finds the coordinator again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _judge(self, answer: Answer[B], *codes: int) -> None:
        """Close the connection to a node that is not the coordinator any more, or does not answer."""
        moved = UNSURE | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        if answer.body is None or any(ErrorCode(code) in moved for code in codes):
            self.close()

    async def _ask(
        self, key: ApiKey, *, timeout: float | None = None, version: int | None = None, **fields: object
    ) -> Answer[Any] | None:
        try:
            channel = await self._coordinator()
            chosen = channel.choose(key, at_most=version)
        except (KafkaError, ChannelError):
            self.close()
            await self._cluster.pause(4)
            return None
        if key not in (ApiKey.OFFSET_FETCH, ApiKey.DELETE_GROUPS):
            fields["group_id"] = self.group
        node, begun = f"{channel.host}:{channel.port}", self._now()
        try:
            body = await channel.request(key, chosen, timeout=timeout, **fields)
        except Unreachable:
            self.close()
            return None
        except asyncio.CancelledError:
            # The request may take effect, so the caller notes it. Its next wait is cancelled instead of this one.
            task = asyncio.current_task()
            if self._is_cancelled or task is None:
                raise
            self._is_cancelled = True
            task.cancel()
            task.uncancel()
            return Answer(node, begun, self._now())
        except ChannelError:
            self.close()
            return Answer(node, begun, self._now())
        except KafkaError as error:
            self.close()
            silent = error.code is ErrorCode.REQUEST_TIMED_OUT
            return Answer(node, begun, self._now(), silent=silent)
        return Answer(node, begun, self._now(), body)

    async def _coordinator(self) -> Channel:
        if self._channel is None:
            self._channel = self._cluster.separate_channel(*await find_coordinator(self._cluster, self.group))
        await self._channel.connect()
        return self._channel


def _codes(topics: Iterable[OffsetCommitResponseTopic | OffsetDeleteResponseTopic]) -> dict[TopicPartition, ErrorCode]:
    pairs = ((topic.name, partition) for topic in topics for partition in topic.partitions)
    return {(name, int(partition.partition_index)): ErrorCode(partition.error_code) for name, partition in pairs}


def _encoded(share: Share) -> bytes:
    parts = tuple(TopicPartitions(topic=name, partitions=tuple(numbers)) for name, numbers in by_topic(share).items())
    return encode_consumer_message(Assignment(assigned_partitions=parts))


def _decoded(data: bytes) -> Share:
    parts = decode_assignment(data).assigned_partitions
    return tuple((part.topic, number) for part in parts for number in part.partitions)
