"""The APIs of groups with one shard, whose log the test controls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from milena.broker.apis import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from milena.broker.groups.model import GroupSettings
from milena.broker.groups.shard import Shard
from milena.broker.transactions.verification import Operation
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.control_records import EndMarkerRequest
from milena.protocol.requests import messages
from milena.protocol.types import ProducerEpoch, ProducerId
from milena.runtime.randomness import Randomness
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard
from tests.unit.broker.fixtures import ME, Bench, Request, at_once, led_by
from tests.unit.broker.groups.hand_log import HandLog
from tests.unit.broker.groups.shards import load_at_once

RANGE = (("range", b"topics"),)


class HandVerification:
    """Answers verifications of transactions at once with ``error``; with ``hold``, when the test calls ``waiting``."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.hold = False
        self.asked: list[tuple[str, int, int, Operation]] = []
        self.waiting: list[Callable[[], None]] = []

    def verify(
        self,
        partition: Any,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        operation: Operation,
        then: Callable[[VerificationGuard | ErrorCode], None],
    ) -> None:
        self.asked.append((transactional_id, producer_id, epoch, operation))

        def answer() -> None:
            then(self.error if self.error is not ErrorCode.NONE else NO_GUARD)

        if self.hold:
            self.waiting.append(answer)
        else:
            answer()


class Groups:
    """A bench whose broker coordinates every group."""

    def __init__(self, bench: Bench) -> None:
        self.clock = bench.clock
        self.log = HandLog()
        self._random = Randomness(1)
        self.shard = self._new_shard()
        self.elsewhere = False
        """Whether another broker is the coordinator."""
        self.verification = HandVerification()
        found = SimpleNamespace(
            shard=self._found,
            shard_for_offsets=self._found,
            offsets_partition=self._found,
            settings=self.shard._settings,
        )
        self.node = SimpleNamespace(
            groups=found,
            image=bench.image,
            config=bench.config,
            runtime=bench.runtime,
            verification=self.verification,
        )
        self.topic = bench.topic("t", led_by(ME), led_by(ME))

    def _new_shard(self) -> Shard:
        settings = GroupSettings(initial_delay_ms=0)
        return Shard(self.log, clock=self.clock, random=self._random, settings=settings)

    def _found(self, _: str) -> Shard:
        if self.elsewhere:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self.shard

    def reload(self) -> None:
        """Load the committed part of the log, like the next leader."""
        del self.log.batches[self.log.high_watermark :]
        self.shard.close()
        self.shard = self._new_shard()
        load_at_once(self.log, self.shard)

    # -- requests

    def send(self, handle: Callable[..., Any], key: ApiKey, version: int, /, **fields: Any) -> Request:
        """Send a request that may be answered later."""
        request = Request(key, version)
        decoded = messages.decode_request(key, version, messages.encode_request(key, version, **fields))
        answer = at_once(handle(self.node, request.ctx, decoded))
        if answer is not None:
            request.ctx.respond_fields(**answer)
        return request

    def ask(self, handle: Callable[..., Any], key: ApiKey, version: int, /, **fields: Any) -> Any:
        return self.send(handle, key, version, **fields).response

    def committing(
        self,
        version: int = 9,
        *indexes: int,
        group: str = "g",
        generation: int = -1,
        offset: int = 5,
        member: str = "",
        metadata: str = "",
    ) -> Request:
        given = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata} for index in indexes
        ]
        topics = [{"name": "t", "topic_id": self.topic.id, "partitions": given}]
        fields = {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": member, "topics": topics}
        return self.send(offset_commit.handle, ApiKey.OFFSET_COMMIT, version, **fields)

    def sending(
        self,
        version: int = 5,
        *indexes: int,
        producer: int = 1,
        epoch: int = 0,
        group: str = "g",
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        offset: int = 5,
        metadata: str = "",
    ) -> Request:
        """Send offsets to the transaction of ``producer``."""
        given = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata} for index in indexes
        ]
        fields: dict[str, Any] = {
            "transactional_id": f"t{producer}", "group_id": group, "producer_id": producer, "producer_epoch": epoch,
            "generation_id": generation, "member_id": member, "group_instance_id": instance,
            "topics": [{"name": "t", "topic_id": self.topic.id, "partitions": given}],
        }  # fmt: skip
        return self.send(txn_offset_commit.handle, ApiKey.TXN_OFFSET_COMMIT, version, **fields)

    def end(self, producer: int = 1, *, commit: bool = True, epoch: int = 0) -> list[ErrorCode]:
        """Append the marker of a transaction. The list has its result once there is one."""
        marker = EndMarkerRequest(ProducerId(producer), ProducerEpoch(epoch), 0, commit)
        results: list[ErrorCode] = []
        self.shard.end_transaction(marker, results.append)
        return results

    def commit(self, version: int = 9, *indexes: int, **fields: Any) -> Any:
        return self.committing(version, *indexes, **fields).response

    def fetching(self, group: str = "g", *, index: int = 0, stable: bool = False, version: int = 9) -> Request:
        asked = [{"name": "t", "topic_id": self.topic.id, "partition_indexes": [index]}]
        groups = [{"group_id": group, "topics": asked, "member_id": None, "member_epoch": -1}]
        return self.send(offset_fetch.handle, ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=stable)

    def fetched(self, group: str = "g", **fields: Any) -> int:
        return int(self.fetching(group, **fields).response.groups[0].topics[0].partitions[0].committed_offset)

    def deleting(self, *groups: str) -> Request:
        return self.send(delete_groups.handle, ApiKey.DELETE_GROUPS, 2, groups_names=list(groups or ("g",)))

    def deleting_offset(self, index: int = 0, group: str = "g") -> Request:
        topics = [{"name": "t", "partitions": [{"partition_index": index}]}]
        return self.send(offset_delete.handle, ApiKey.OFFSET_DELETE, 0, group_id=group, topics=topics)

    def joining(
        self,
        member: str = "",
        *,
        instance: str | None = None,
        protocols: Any = RANGE,
        version: int = 9,
        group: str = "g",
    ) -> Request:
        listed = [{"name": name, "metadata": metadata} for name, metadata in protocols]
        fields: dict[str, Any] = {
            "group_id": group, "session_timeout": 10_000, "rebalance_timeout": 60_000, "member_id": member,
            "group_instance_id": instance, "protocol_type": "consumer", "protocols": listed, "reason": None,
        }  # fmt: skip
        return self.send(join_group.handle, ApiKey.JOIN_GROUP, version, **fields)

    def syncing(
        self, member: str, generation: int, shares: dict[str, bytes], *, instance: str | None = None
    ) -> Request:
        given = [{"member_id": name, "assignment": share} for name, share in shares.items()]
        fields: dict[str, Any] = {
            "group_id": "g", "generation_id": generation, "member_id": member, "group_instance_id": instance,
            "protocol_type": "consumer", "protocol_name": "range", "assignments": given,
        }  # fmt: skip
        return self.send(sync_group.handle, ApiKey.SYNC_GROUP, 5, **fields)

    def heartbeat(self, member: str, generation: int, *, instance: str | None = None) -> ErrorCode:
        fields = {"group_id": "g", "generation_id": generation, "member_id": member, "group_instance_id": instance}
        return ErrorCode(self.ask(heartbeat.handle, ApiKey.HEARTBEAT, 4, **fields).error_code)

    def leave(self, *leaving: str) -> Any:
        members = [{"member_id": member, "group_instance_id": None, "reason": None} for member in leaving]
        return self.ask(leave_group.handle, ApiKey.LEAVE_GROUP, 5, group_id="g", members=members)

    def describe(self, version: int, group: str) -> Any:
        asked: dict[str, Any] = {"groups": [group], "include_authorized_operations": True}
        return self.ask(describe_groups.handle, ApiKey.DESCRIBE_GROUPS, version, **asked).groups[0]

    def state(self) -> str:
        return str(self.describe(5, "g").group_state)

    # -- what most tests begin with

    def member(self, **fields: Any) -> str:
        """Bring a new group to Stable with one member."""
        joined = self.joining(version=3, **fields) if "instance" not in fields else self.joining(**fields)
        member, generation = joined.response.member_id, joined.response.generation_id
        self.syncing(member, generation, {member: b"share"}, instance=fields.get("instance"))
        return str(member)


def code_of(request: Request) -> ErrorCode:
    """The first error in an OffsetCommit response."""
    return ErrorCode(request.response.topics[0].partitions[0].error_code)
