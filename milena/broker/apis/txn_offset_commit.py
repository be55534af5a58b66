"""TxnOffsetCommit (key 28), versions 0-6: send the offsets of a group to an open transaction (KIP-98).

They become the group's offsets when the commit marker is written (``GroupCoordinator.complete_transaction``). v2 and
later have a leader epoch (KIP-320); v3 the consumer's generation, member id and instance id, so that a consumer that
has left the group is fenced (KIP-447); from v5 on the broker adds the partition of ``__consumer_offsets`` to the
transaction, without AddOffsetsToTxn (KIP-890); v6 has topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.coordinators.errors import client_error
from milena.broker.groups.group import Group
from milena.broker.groups.offsets import transactional_commit_refusal
from milena.broker.groups.requested_offsets import CommitNeeds, RequestedOffsets, group_of_commit
from milena.broker.groups.shard import Shard
from milena.broker.transactions.verification import Operation
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get
from milena.protocol.types import ProducerEpoch, ProducerId
from milena.storage.state.producer_state import VerificationGuard

if TYPE_CHECKING:
    from milena.broker.transactions.batch_verification import BrokerVerification
    from milena.protocol.apis import TxnOffsetCommitRequest, TxnOffsetCommitResponseFields

_LOADING_SINCE: Final = 2
"""Clients of earlier versions do not know COORDINATOR_LOAD_IN_PROGRESS here."""
_TOPIC_IDS_SINCE: Final = 6
_GROUP_NOT_FOUND_SINCE: Final = 6


class Needs(CommitNeeds, Protocol):
    """What this handler uses of its broker."""

    @property
    def verification(self) -> BrokerVerification: ...


def handle(
    node: Needs, ctx: RequestContext, request: TxnOffsetCommitRequest
) -> Cooperative[TxnOffsetCommitResponseFields | None]:
    """Topics and partitions that do not exist have their own error. If there are no others, the group is not looked up.
    The transaction is verified before the group, as in Kafka's scheduleTransactionalWriteOperation."""
    commit = _Commit(node, ctx, request)
    yield from commit.read()
    if not commit.offsets.existing:
        return commit.answer()
    if not request.group_id:
        return commit.refused(ErrorCode.INVALID_GROUP_ID)
    try:
        partition = node.groups.offsets_partition(request.group_id)
    except KafkaError as error:
        return commit.refused(error.code)
    size = len(commit.batch)

    @ctx.answering
    def verified(result: VerificationGuard | ErrorCode) -> None:
        ctx.proceed(commit.write(result), size)

    if ctx.wait(size):
        node.verification.verify(
            partition,
            request.transactional_id,
            ProducerId(request.producer_id),
            request.producer_epoch,
            Operation.of_offset_commit(ctx.version),
            verified,
        )
    return None


class _Commit:
    """One request."""

    def __init__(self, node: Needs, ctx: RequestContext, request: TxnOffsetCommitRequest) -> None:
        self._node = node
        self._ctx = ctx
        self._request = request
        self.offsets = RequestedOffsets(
            by_id=ctx.version >= _TOPIC_IDS_SINCE,
            max_metadata=node.config.get_int("offset.metadata.max.bytes"),
            now_ms=node.runtime.clock.time_ms(),
        )
        self.batch = b""

    def read(self) -> Cooperative[None]:
        yield from self.offsets.read(self._node.image, self._request.topics)
        yield from self._build()

    def _build(self) -> Cooperative[None]:
        request, node = self._request, self._node
        self.batch = yield from self.offsets.batch(
            lambda: node.image,
            request.group_id,
            node.runtime.clock.time_ms(),
            transactional=True,
            producer_id=ProducerId(request.producer_id),
            producer_epoch=ProducerEpoch(request.producer_epoch),
            base_sequence=0,
        )

    def write(self, verified: VerificationGuard | ErrorCode) -> Cooperative[None]:
        """Write the offsets if the transaction is open, and respond."""
        if isinstance(verified, ErrorCode):
            self._respond(self.refused(_client_error(verified)))
            return
        if self.offsets.remove_deleted_topics(self._node.image):
            yield from self._build()
        if not self.offsets.existing:
            self._respond(self.answer())
            return
        try:
            shard = self._node.groups.shard(self._request.group_id)
            group = self._committing_group(shard)
        except KafkaError as error:
            self._respond(self.refused(error.code))
            return

        @self._ctx.answering
        def committed(error: ErrorCode) -> None:
            self.offsets.refuse(error)
            self._respond(self.answer())

        producer_id = ProducerId(self._request.producer_id)
        shard.commit_in_transaction(group, producer_id, self.offsets.offsets, self.batch, verified, committed)

    def _committing_group(self, shard: Shard) -> Group:
        request = self._request
        generation = get(request, "generation_id", -1)
        knows = self._ctx.version >= _GROUP_NOT_FOUND_SINCE
        group = group_of_commit(shard, request.group_id, generation, knows_not_found=knows)
        refusal = transactional_commit_refusal(
            group,
            member_id=get(request, "member_id", ""),
            instance_id=get(request, "group_instance_id", None),
            generation=generation,
        )
        if refusal is not None:
            raise KafkaError(refusal)
        return group

    def refused(self, error: ErrorCode) -> TxnOffsetCommitResponseFields:
        """The response if nothing is written."""
        self.offsets.refuse(error)
        return self.answer()

    def answer(self) -> TxnOffsetCommitResponseFields:
        topics = self.offsets.topics
        if self._ctx.version < _LOADING_SINCE:
            for topic in topics:
                for partition in topic["partitions"]:
                    if partition["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        partition["error_code"] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return {"topics": topics}

    def _respond(self, fields: TxnOffsetCommitResponseFields) -> None:
        self._ctx.respond_fields(**fields)


def _client_error(error: ErrorCode) -> ErrorCode:
    """The error for the client if the transaction could not be verified: one that it retries if the transaction
    coordinator cannot be reached (CoordinatorOperationExceptionHelper)."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return client_error(error)
