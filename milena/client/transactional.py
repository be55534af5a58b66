"""A transactional producer (KIP-98, KIP-360, KIP-447, KIP-890).

::

    UNINITIALIZED --init--> READY --begin--> OPEN --commit--> COMMITTING --> READY
                                              |--abort---> ABORTING ----> READY
                                              `--error---> MUST_ABORT --abort--> ABORTING
    any state --fenced--> FAILED

With ``transaction.version`` 2 a Produce request adds its partition to the transaction, and each EndTxn returns a new
epoch. With 0 or 1 the producer adds partitions itself, and requests a new epoch after an error (Kafka's
TransactionManager).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from milena.client.attempts import COORDINATOR_LOST, Attempts, Next
from milena.client.batches import Produced
from milena.client.cluster import BrokerView, Cluster
from milena.client.identities import identity_of
from milena.client.membership import GROUP_KEY, TRANSACTION_KEY, GroupMetadata, by_topic, coordinator_of
from milena.client.producer import BATCH_BYTES, OutcomeUnknown, Producer, RecordFields
from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.protocol.features import TRANSACTION_VERSION
from milena.protocol.records.compression import Codec
from milena.protocol.requests import messages
from milena.protocol.types import (
    NO_PRODUCER,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TopicPartition,
)

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnResponse,
        EndTxnResponse,
        InitProducerIdResponse,
        TxnOffsetCommitResponse,
    )

T = TypeVar("T")

NEWEST_WITHOUT_ADDING: Final = 11
"""The last version of Produce that does not add the partition to the transaction (KIP-890)."""
NEWEST_ADD_PARTITIONS: Final = 3
"""The last version of AddPartitionsToTxn for clients; later ones are sent between brokers."""
NEWEST_OFFSET_COMMIT: Final = 5
"""The last version of TxnOffsetCommit with topic names. It adds the group to the transaction, earlier ones do not."""
NEWEST_END: Final = 4
"""The last version of EndTxn that does not return a new epoch."""
WITH_EPOCH_BUMP: Final = 3
"""The first version of InitProducerId that continues a producer id with a new epoch (KIP-360)."""
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ENDS_THE_PRODUCER: Final = FENCED | {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
BATCH_ENDS_THE_PRODUCER: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class State(Enum):
    UNINITIALIZED = "uninitialized"
    READY = "ready"
    OPEN = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    MUST_ABORT = "the transaction can only be aborted"
    FAILED = "fenced, or failed for good"


class TransactionFailed(KafkaError):
    """The transaction failed. ``fatal``: the producer cannot be used any more; otherwise ``abort`` and begin again.
    ``uncertain``: an earlier attempt of the same request may have taken effect."""

    def __init__(self, error: KafkaError, *, fatal: bool, uncertain: bool = False) -> None:
        super().__init__(error.code, error.message)
        self.fatal = fatal
        self.uncertain = uncertain


class TransactionalProducer:
    """Writes records and consumed offsets in transactions. Calls of one producer must not overlap, except for sends.

    ``init``, ``commit``, ``abort`` and ``send_offsets`` retry for ``max_block`` seconds and raise OutcomeUnknown then;
    ``commit`` and ``abort`` may be called again after it. They raise TransactionFailed otherwise. ``newest``: the
    highest transaction version that is used (0 to 2), as by a client of an older release.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 60_000,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        request_timeout: float = 30.0,
        delivery_timeout: float = 120.0,
        max_block: float = 60.0,
        newest: int = 2,
    ) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.identity = NO_PRODUCER
        """The producer id and epoch of the current transaction."""
        self._cluster = cluster
        self._clock = cluster.runtime.clock
        self._timeout_ms = transaction_timeout_ms
        self._max_block = max_block
        self._newest = newest
        self._adds = False
        """Whether Produce and TxnOffsetCommit add to the transaction: transaction version 2."""
        self._needs_epoch = False
        """Whether the next transaction needs a new epoch from InitProducerId."""
        self._can_continue = False
        """Whether the coordinator can continue a producer id with a new epoch."""
        self._started = False
        """Whether the coordinator may know of the transaction."""
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._adding = asyncio.Lock()
        self._error: TransactionFailed | None = None
        self._coordinators: dict[tuple[int, str], BrokerView] = {}
        self._producer = Producer(
            cluster,
            codec=codec,
            batch_bytes=batch_bytes,
            request_timeout=request_timeout,
            delivery_timeout=delivery_timeout,
            identities=self,
        )

    async def init(self) -> ProducerIdAndEpoch:
        """Obtain the producer id and epoch. It fences earlier producers with this transactional id and ends their
        transaction. Returns them."""
        self._require("init", State.UNINITIALIZED)
        self.identity = await self._init_producer_id(NO_PRODUCER)
        self._adds = self._version_two()
        self.state = State.READY
        return self.identity

    def begin(self) -> None:
        """Begin a transaction; no request is sent. Raises TransactionFailed if the producer has failed."""
        self._require("begin", State.READY)
        self.state = State.OPEN

    async def send(self, topic: str, value: bytes | None, **fields: Unpack[RecordFields]) -> Produced:
        """As ``Producer.send``, in the transaction."""
        return await (await self.enqueue(topic, value, **fields))

    async def enqueue(
        self, topic: str, value: bytes | None, **fields: Unpack[RecordFields]
    ) -> asyncio.Future[Produced]:
        """As ``Producer.enqueue``, in the transaction."""
        self._require("send", State.OPEN)
        return await self._producer.enqueue(topic, value, **fields)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata, metadata: str = ""
    ) -> None:
        """Commit a group's offsets with the transaction: each is the offset of the next record to consume.
        ``metadata`` is stored with each of them."""
        self._require("send_offsets", State.OPEN)
        if not offsets:
            return
        if self._adds:
            self._started = True
        else:
            await self._ask(TRANSACTION_KEY, self.transactional_id, lambda channel: self._add_group(channel, group))
            self._started = True
        await self._ask(GROUP_KEY, group.group, lambda channel: self._commit_offsets(channel, offsets, group, metadata))

    async def flush(self) -> None:
        """Wait until every record has an outcome."""
        await self._producer.flush()

    async def commit(self) -> None:
        """Wait for the outcome of all records, then commit. After an error of any of them, raises TransactionFailed:
        the transaction must be aborted."""
        self._require("commit", State.OPEN, State.COMMITTING)
        if self.state is State.OPEN:
            await self._producer.flush()
            self._require("commit", State.OPEN)
            self.state = State.COMMITTING
        await self._end(committed=True)

    async def abort(self) -> None:
        """Discard queued records, wait for the outcome of those that were sent, and abort."""
        self._require("abort", State.OPEN, State.MUST_ABORT, State.ABORTING)
        self.state, self._error = State.ABORTING, None
        await self._producer.discard(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted"))
        await self._end(committed=False)

    async def close(self) -> None:
        """Stop. An open transaction is left to its time-out, or to the next ``init``."""
        await self._producer.close(flush=self.state is State.OPEN)

    # Identities of the batches

    @property
    def newest_produce(self) -> int | None:
        return None if self._adds else NEWEST_WITHOUT_ADDING

    async def for_batch(self, topic: str, partition: int) -> ProducerIdAndEpoch:
        """Add the partition to the transaction if a batch does not do so by itself."""
        self._require("send", State.OPEN)
        if self._adds:
            self._started = True
        elif (topic, partition) not in self._added:
            self._to_add.add((topic, partition))
            async with self._adding:
                if (topic, partition) not in self._added:
                    await self._add_partitions()
        return self.identity

    def failed(self, identity: ProducerIdAndEpoch | None, error: KafkaError, *, uncertain: bool) -> bool:
        """Note that a record is not in the log, or may not be: the transaction can only be aborted then."""
        if self.state is State.ABORTING:
            self._needs_epoch = self._needs_epoch or not self._adds  # the next sequence number is unknown
        elif retriable(error.code) or error.code is ErrorCode.INVALID_TXN_STATE:
            self._fail(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, f"a record was not written: {error}"), fatal=False)
        else:
            self._fail(error, fatal=error.code in BATCH_ENDS_THE_PRODUCER)
        return False

    # Requests

    async def _end(self, *, committed: bool) -> None:
        if self._started:
            adds = self._adds
            response = await self._ask(
                TRANSACTION_KEY,
                self.transactional_id,
                lambda channel: self._end_once(channel, committed=committed, adds=adds),
            )
            if messages.get(response, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID:
                self.identity = identity_of(response)
            self._started = False
        self._learn_version()
        if self._needs_epoch:
            self.identity = await self._init_producer_id(self.identity)
            self._needs_epoch = False
        self._added.clear()
        self._to_add.clear()
        self.state = State.READY

    async def _init_producer_id(self, current: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Request a producer id and epoch; ``current`` is the one to continue."""

        async def ask(channel: Channel) -> ProducerIdAndEpoch:
            version = channel.choose(ApiKey.INIT_PRODUCER_ID)
            self._can_continue = version >= WITH_EPOCH_BUMP
            response: InitProducerIdResponse = await channel.request(
                ApiKey.INIT_PRODUCER_ID,
                version,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=current.producer_id,
                producer_epoch=current.epoch,
            )
            return identity_of(response)

        return await self._ask(TRANSACTION_KEY, self.transactional_id, ask)

    async def _end_once(self, channel: Channel, *, committed: bool, adds: bool) -> EndTxnResponse:
        response: EndTxnResponse = await channel.request(
            ApiKey.END_TXN,
            channel.choose(ApiKey.END_TXN, at_most=None if adds else NEWEST_END),
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=committed,
        )
        check(response.error_code)
        return response

    async def _add_partitions(self) -> None:
        """Add all partitions of ``_to_add`` to the transaction (transaction versions 0 and 1)."""
        partitions = sorted(self._to_add)
        topics = [{"name": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()]

        async def ask(channel: Channel) -> None:
            response: AddPartitionsToTxnResponse = await channel.request(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                channel.choose(ApiKey.ADD_PARTITIONS_TO_TXN, at_most=NEWEST_ADD_PARTITIONS),
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.identity.producer_id,
                v3_and_below_producer_epoch=self.identity.epoch,
                v3_and_below_topics=topics,
            )
            codes = {
                (topic.name, int(one.partition_index)): one.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            }
            # With an error of one partition, the others have OPERATION_NOT_ATTEMPTED.
            refused = {where: code for where, code in codes.items() if code != ErrorCode.OPERATION_NOT_ATTEMPTED}
            for (topic, partition), code in (refused or codes).items():
                check(code, f"{topic}-{partition}")

        await self._ask(TRANSACTION_KEY, self.transactional_id, ask)
        self._added.update(partitions)
        self._to_add.difference_update(partitions)
        self._started = True

    async def _add_group(self, channel: Channel, group: GroupMetadata) -> None:
        response: AddOffsetsToTxnResponse = await channel.request(
            ApiKey.ADD_OFFSETS_TO_TXN,
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group.group,
        )
        check(response.error_code, f"group {group.group!r}")

    async def _commit_offsets(
        self, channel: Channel, offsets: Mapping[TopicPartition, int], group: GroupMetadata, metadata: str
    ) -> None:
        newest = NEWEST_OFFSET_COMMIT if self._adds else NEWEST_OFFSET_COMMIT - 1
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": one, "committed_offset": offsets[topic, one], "committed_metadata": metadata}
                    for one in numbers
                ],
            }
            for topic, numbers in by_topic(list(offsets)).items()
        ]
        response: TxnOffsetCommitResponse = await channel.request(
            ApiKey.TXN_OFFSET_COMMIT,
            channel.choose(ApiKey.TXN_OFFSET_COMMIT, at_most=newest),
            transactional_id=self.transactional_id,
            group_id=group.group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=topics,
        )
        for topic in response.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"{topic.name}-{partition.partition_index}")

    async def _ask(self, kind: int, key: str, ask: Callable[[Channel], Awaitable[T]]) -> T:
        """Return the answer of a coordinator; retries. Raises OutcomeUnknown, TransactionFailed."""
        attempts = Attempts(self._clock.monotonic() + self._max_block)
        while True:
            try:
                return await ask(await self._coordinator(kind, key))
            except ChannelError as broken:
                error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(broken))
            except KafkaError as refused:
                error = refused
            if error.code in COORDINATOR_LOST:
                self._coordinators.pop((kind, key), None)
            following = attempts.after(error, self._clock.monotonic())
            if following is Next.REFUSED:
                raise self._fail(error, fatal=error.code in ENDS_THE_PRODUCER, uncertain=attempts.uncertain)
            if following is Next.TIMED_OUT:
                raise OutcomeUnknown(error.code, f"transactional id {self.transactional_id!r}: {error.message}")
            await self._cluster.pause(attempts.failed - 1)

    async def _coordinator(self, kind: int, key: str) -> Channel:
        """The channel to a coordinator, connected. Raises KafkaError, ChannelError."""
        known = self._coordinators.get((kind, key))
        if known is None:
            known = self._coordinators[kind, key] = await coordinator_of(self._cluster, key, kind)
        channel = self._cluster.to(known.host, known.port)
        await channel.connect()
        return channel

    # States

    def _require(self, call: str, *states: State) -> None:
        """Raise TransactionFailed after an error, ValueError if the call is not possible in this state."""
        if self.state in states:
            return
        if self._error is not None:
            raise TransactionFailed(self._error, fatal=self._error.fatal)
        if call == "send" and self.state is State.ABORTING:
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted")
        raise ValueError(f"{call} is not possible: {self.transactional_id!r} is {self.state.value}")

    def _fail(self, error: KafkaError, *, fatal: bool, uncertain: bool = False) -> TransactionFailed:
        """Note an error of the transaction. Returns the error to raise."""
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH and fatal:
            error = KafkaError(ErrorCode.PRODUCER_FENCED, error.message)
        fatal = fatal or self.state in (State.UNINITIALIZED, State.ABORTING) or not (self._can_continue or self._adds)
        failure = TransactionFailed(error, fatal=fatal, uncertain=uncertain)
        if self.state is not State.FAILED and (fatal or self.state is not State.ABORTING):
            self.state = State.FAILED if fatal else State.MUST_ABORT
            self._error = failure
            self._needs_epoch = self._needs_epoch or not self._adds
        return failure

    def _version_two(self) -> bool:
        return min(self._newest, self._cluster.finalized(TRANSACTION_VERSION)) >= 2

    def _learn_version(self) -> None:
        """Adopt the cluster's transaction version between two transactions. The first one with version 2 needs a new
        epoch."""
        adds = self._version_two()
        if adds and not self._adds:
            self._needs_epoch = True
        self._adds = adds


def check(code: int, what: str | None = None) -> None:
    """Raise KafkaError if ``code`` is an error."""
    if code:
        raise KafkaError(ErrorCode(code), what)
