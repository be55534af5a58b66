"""Produce (key 0), versions 3-13.

Nearly all requests are decoded, checked, appended and answered (``_Produce.run``) without a yield, a task, or a copy of
the records. If the checks take longer, the request continues as cooperative work on copies of the records, while later
requests of the connection wait (``broker.replica.checked_appends``).

acks=0 has no response; an error closes the connection, so that the client refreshes its metadata. With acks=all the
response is sent when the records are committed. Each partition has its own error; from v10 on, a partition that another
broker leads has the leader and its endpoint. The first batch of a transaction in a partition is appended once the
transaction coordinator has confirmed the transaction (``broker.transactions.batch_verification``); until then later
requests of the connection wait. From v12 on this adds the partition to the transaction. KIPs: 98, 101, 467 (record
errors), 480, 516 (topic ids, v13), 890 (transactions), 951 (current leader).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

from milena.broker.metadata.leader_hints import LeaderHints
from milena.broker.reading.producing import CommitWait, PendingAppend
from milena.broker.replica.checked_appends import AppendTarget, CheckedAppends
from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.broker.transactions.batch_verification import (
    BatchVerification,
    VerificationServices,
    error_for_client,
    producer_of,
)
from milena.broker.transactions.verification import Operation
from milena.node.api import RequestContext
from milena.node.serving.scheduler import LARGE_JOB_BYTES
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import MAGIC, MalformedRecords
from milena.protocol.records.validation import InvalidRecords
from milena.protocol.requests.leaders import NodeEndpoint
from milena.protocol.requests.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    RecordError,
    decode_large_produce_request,
    decode_produce_request,
    encode_produce_response,
)
from milena.protocol.schemas.undecodable import TooManyElements
from milena.protocol.types import Offset
from milena.storage.log.unified_log import AppendInfo

if TYPE_CHECKING:
    from milena.broker.replica.meters import TopicMeters
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.waiting.purgatory import Purgatory
    from milena.node.metadata.image import MetadataImage

RAW: Final = True
MAX_IMMEDIATE_ELEMENTS: Final = 1_000
"""The maximum number of topics and partitions in a request that is decoded when it arrives. A larger one waits for a
slot first."""
PARTITIONS_PER_YIELD: Final = 200
"""The maximum number of partitions of such a large request between two yields."""
_TopicSize: TypeAlias = "tuple[str | None, UUID | None, int]"
"""A topic by name or id, and the number of its partitions."""
ADMIN_CLIENT: Final = "__admin_client"
"""The client id that may write to internal topics, as in Kafka."""
_ACKS: Final = (0, 1, ACKS_ALL)
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7
_CODEC: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_MAGIC_POSITION: Final = 16
_LENGTH_POSITION: Final = 8
_LENGTH_END: Final = 12
_ATTRIBUTES_POSITION: Final = 22
"""The position of the low byte of a batch's attributes."""
_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The errors of an append whose result has no log start offset, as in Kafka."""
_LEADER_SINCE: Final = 10


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def purgatory(self) -> Purgatory: ...
    @property
    def verification(self) -> VerificationServices: ...


def handle(node: Needs, ctx: RequestContext, body: memoryview) -> Cooperative[None] | None:
    try:
        request = decode_produce_request(ctx.version, body, MAX_IMMEDIATE_ELEMENTS)
    except TooManyElements:
        return _handle_large(node, ctx, memoryview(bytearray(body)))
    return _Produce(node, ctx, request).start()


def _handle_large(node: Needs, ctx: RequestContext, body: memoryview) -> Cooperative[None]:
    """Handle a request for many partitions, in a slot of the scheduler. ``body`` is a copy."""
    ctx.memory = LARGE_JOB_BYTES + 1
    yield  # the scheduler waits for a slot
    request = yield from decode_large_produce_request(ctx.version, body)
    yield  # the first append is a step of its own
    unfinished = _Produce(node, ctx, request, copied=True).start()
    if unfinished is not None:
        yield from unfinished


class _Produce:
    """One request. Its results are in the order of its partitions. Fetches that wait for its records are checked after
    the response was sent."""

    __slots__ = (
        "_acks",
        "_appends",
        "_budget",
        "_ctx",
        "_meters",
        "_node",
        "_partition",
        "_pending",
        "_results",
        "_targets",
        "_timeout_ms",
        "_topics",
        "_verification",
    )

    _partition: Partition | None
    """The current partition; None if the last look-up failed."""
    _meters: TopicMeters

    def __init__(self, node: Needs, ctx: RequestContext, request: ProduceRequest, *, copied: bool = False) -> None:
        """``copied``: the records are not in the receive buffer."""
        self._node = node
        self._ctx = ctx
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._topics = [(name, topic_id, len(partitions)) for name, topic_id, partitions in request.topics]
        self._targets: list[AppendTarget] = [
            (name, topic_id, index, records)
            for name, topic_id, partitions in request.topics
            for index, records in partitions
        ]
        self._budget = YieldBudget(PARTITIONS_PER_YIELD) if copied else None
        self._appends = CheckedAppends(self._targets, request.acks, ctx, copied=copied)
        self._pending: list[_PendingResult] = []
        self._results: list[ProducedPartition] = []
        self._verification: BatchVerification | None = None
        transactional = [
            position
            for position, (_, _, _, records) in enumerate(self._targets)
            if records is not None and _attributes(records) & _TRANSACTIONAL
        ]
        if transactional:
            self._prepare_verification(request.transactional_id, transactional)

    def _prepare_verification(self, transactional_id: str | None, positions: list[int]) -> None:
        """Find the batches at ``positions`` that may need a verification. If the request is invalid, all its partitions
        get the error."""
        if transactional_id is None:
            self._refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        version = self._ctx.version
        verification: BatchVerification | None = None
        of_request: tuple[int, int] | None = None
        for position in positions:
            records = self._targets[position][3]
            assert records is not None
            producer = producer_of(records)
            if producer is None:
                continue
            if verification is None:
                of_request = producer.producer_id, producer.epoch
                verification = BatchVerification(
                    self._node.verification,
                    transactional_id,
                    producer.producer_id,
                    producer.epoch,
                    Operation.of_produce(version),
                    self._look_up_at,
                )
            elif of_request != (producer.producer_id, producer.epoch):
                message = "the transactional batches have more than one producer"
                self._refuse_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
                return
            verification.add(position, producer.sequence)
        self._verification = verification

    def _refuse_all(self, error: ErrorCode, message: str | None = None) -> None:
        self._results = [ProducedPartition(target[2], error, error_message=message) for target in self._targets]

    def start(self) -> Cooperative[None] | None:
        """Append and respond within the call. If the checks of the batches take long, or a transaction must be
        verified, return the remaining work."""
        if self._verification is not None:
            return self._verify(self._verification)
        if self._budget is not None:
            return self.run(None)
        purgatory = self._node.purgatory
        purgatory.hold()
        try:
            for position in range(len(self._results), len(self._targets)):
                unfinished = self._append(position)
                if unfinished is not None:
                    return self.run(unfinished)
            self._respond()
        finally:
            purgatory.release()
        return None

    def _verify(self, verification: BatchVerification) -> Cooperative[None]:
        """Verify the transaction, then append and respond. If the coordinator must be asked, this work ends and other
        work follows its answer (``RequestContext.proceed``)."""
        must_ask = yield from verification.begin(self._budget)
        if not must_ask:
            yield from self.run(None)
            return
        self._appends.copy_all()
        self._wait_for(verification)

    def _wait_for(self, verification: BatchVerification) -> None:
        size = sum(len(records) for _, _, _, records in self._targets if records is not None)

        def verified() -> None:
            self._ctx.proceed(self._run_verified(verification), size)

        if self._ctx.wait(size):
            verification.ask_coordinator(verified)

    def _run_verified(self, verification: BatchVerification) -> Cooperative[None]:
        """``run`` with the result of the verification. Without a connection nothing is appended."""
        if self._ctx.closed and self._acks != 0:
            return
        self._appends.guards = verification.guards
        yield from self.run(None)

    def run(self, unfinished: Cooperative[AppendInfo] | None) -> Cooperative[None]:
        """Finish an append, append to the partitions that have no result yet, then respond."""
        purgatory = self._node.purgatory
        work = self._remaining(unfinished)
        is_done = False
        while not is_done:
            purgatory.hold()
            try:
                next(work)
            except StopIteration:
                is_done = True
            finally:
                purgatory.release()
            if not is_done:
                yield
                # Without a connection the remaining appends are dropped: the client retries what was not acknowledged.
                is_done = self._ctx.closed and self._acks != 0
        if self._ctx.is_large or self._verification is not None:
            self._ctx.release()  # the next requests of the connection need not wait until the records are committed

    def _remaining(self, unfinished: Cooperative[AppendInfo] | None) -> Cooperative[None]:
        """The steps of ``run``."""
        while unfinished is not None or len(self._results) < len(self._targets):
            if unfinished is None:
                if self._budget is not None and self._budget.spend(1):
                    yield
                unfinished = self._append(len(self._results))
            if unfinished is not None:
                try:
                    info = yield from unfinished
                except KafkaError as error:
                    self._failed(error)
                else:
                    self._appended(info)
                unfinished = None
        self._respond()

    def _append(self, position: int) -> Cooperative[AppendInfo] | None:
        """Append to a partition and store the result. If the check of the batch takes long, return the remaining work,
        whose result is not stored."""
        if self._verification is not None and position in self._verification.errors:
            self._unverified(position, self._verification.errors[position])
            return None
        partition = self._partition_for(position)
        if partition is None:
            return None
        try:
            info = self._appends.append(position, partition, self._find)
        except KafkaError as error:
            self._failed(error)
            return None
        if not isinstance(info, AppendInfo):
            return info
        self._appended(info)
        return None

    def _unverified(self, position: int, error: ErrorCode) -> None:
        code, message = error_for_client(error, Operation.of_produce(self._ctx.version))
        self._results.append(ProducedPartition(self._targets[position][2], code, error_message=message))

    def _partition_for(self, position: int) -> Partition | None:
        """Return the partition to append to; None if the request may not, whose error is then in the results."""
        target = self._targets[position]
        index, records = target[2:]
        try:
            partition = self._find(target)
        except KafkaError as error:
            self._results.append(ProducedPartition(index, error.code))
            return None
        self._meters = meters = partition.meters
        meters.produces.value += 1
        try:
            _check_request(self._ctx, partition, records, self._acks)
        except KafkaError as error:
            meters.failed_produces.value += 1
            self._results.append(ProducedPartition(index, error.code, error_message=error.message))
            return None
        return partition

    def _find(self, target: AppendTarget) -> Partition:
        """Look up the partition. Raises KafkaError."""
        self._partition = None
        self._partition = partition = self._look_up(target)
        return partition

    def _look_up(self, target: AppendTarget) -> Partition:
        name, topic_id, index, _ = target
        if topic_id is not None:
            return self._node.partitions.get_by_id(topic_id, index)
        assert name is not None
        return self._node.partitions.get_for_write(name, index)

    def _look_up_at(self, position: int) -> Partition:
        return self._look_up(self._targets[position])

    def _failed(self, error: KafkaError) -> None:
        self._meters.failed_produces.value += 1
        partition = self._partition
        self._results.append(
            ProducedPartition(self._targets[len(self._results)][2], error.code)
            if partition is None
            else _error_result(partition, error)
        )

    def _appended(self, info: AppendInfo) -> None:
        partition, meters = self._partition, self._meters
        assert partition is not None
        meters.messages_in.value += info.last_offset - info.first_offset + 1
        meters.bytes_in.value += info.size
        result = ProducedPartition(partition.index, 0, info.first_offset, info.log_append_time, info.log_start_offset)
        if self._acks == ACKS_ALL:
            append = PendingAppend(partition, partition.term, Offset(info.last_offset + 1))
            if not append.check():
                self._pending.append(_PendingResult(append, len(self._results)))
            elif append.error:
                result = ProducedPartition(partition.index, append.error)
        self._results.append(result)

    def _respond(self) -> None:
        """Respond, with acks=all after all appends are committed. The waiting operation does not keep the records."""
        node, ctx, topics, results, pending_results = self._node, self._ctx, self._topics, self._results, self._pending
        if self._acks == 0:
            _end_without_response(ctx, results)
            return

        def committed() -> None:
            for entry in pending_results:
                if entry.append.error:
                    results[entry.position] = ProducedPartition(results[entry.position].partition, entry.append.error)
            _respond(node, ctx, topics, results)

        # Appends before a yield may have been committed or truncated since.
        pending = [entry.append for entry in pending_results if not entry.append.check()]
        if pending:
            keys = dict.fromkeys(append.partition for append in pending)
            node.purgatory.wait(CommitWait(pending, committed), keys, self._timeout_ms / 1000, ctx)
        else:
            committed()


class _PendingResult:
    """An append that is not committed yet, and the position of its result in the response."""

    __slots__ = ("append", "position")

    def __init__(self, append: PendingAppend, position: int) -> None:
        self.append = append
        self.position = position


def _check_request(ctx: RequestContext, partition: Partition, records: memoryview | None, acks: int) -> None:
    """Check what does not depend on the log. Raises KafkaError."""
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition of a Produce request must have one record batch")
    if ctx.version < _ZSTD_SINCE and _attributes(records) & _CODEC == _ZSTD and _is_whole(records):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    # After the look-up of the partition, and before other errors of the batch's contents: Kafka's order.
    if acks not in _ACKS:
        is_valid_batch = _is_whole(records, is_only=True) and records[_MAGIC_POSITION] == MAGIC
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS if is_valid_batch else ErrorCode.INVALID_RECORD)
    if partition.is_internal and ctx.client_id != ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is internal")


def _attributes(records: memoryview) -> int:
    """The low byte of the first batch's attributes; 0 if the batch has another format, which the log refuses."""
    return (
        records[_ATTRIBUTES_POSITION]
        if len(records) > _ATTRIBUTES_POSITION and records[_MAGIC_POSITION] == MAGIC
        else 0
    )


def _is_whole(records: memoryview, *, is_only: bool = False) -> bool:
    """Whether the records contain the first batch completely and, with ``is_only``, nothing else."""
    size, following = (
        int.from_bytes(records[_LENGTH_POSITION:_LENGTH_END], "big", signed=True),
        len(records) - _LENGTH_END,
    )
    return size == following if is_only else 0 < size <= following


def _error_result(partition: Partition, error: KafkaError) -> ProducedPartition:
    errors = tuple(map(RecordError._make, error.record_errors)) if isinstance(error, InvalidRecords) else ()
    start = -1
    if partition.log is not None and error.code not in _WITHOUT_LOG_START and not isinstance(error, MalformedRecords):
        start = partition.log.log_start_offset
    return ProducedPartition(
        partition.index, error.code, log_start_offset=start, record_errors=errors, error_message=error.message
    )


def _respond(node: Needs, ctx: RequestContext, sizes: list[_TopicSize], results: list[ProducedPartition]) -> None:
    if ctx.closed:
        return
    for result in results:
        if result.error_code:
            ctx.note_error(result.error_code)
    endpoints: tuple[NodeEndpoint, ...] = ()
    remaining = iter(results)
    topics: list[ProducedTopic] = [(name, topic_id, list(islice(remaining, count))) for name, topic_id, count in sizes]
    version = ctx.version
    if version >= _LEADER_SINCE and ErrorCode.NOT_LEADER_OR_FOLLOWER in [result.error_code for result in results]:
        hints = LeaderHints(node.image, ctx.listener_name)
        topics = [
            (name, topic_id, [_with_leader(hints, name, topic_id, result) for result in results])
            for name, topic_id, results in topics
        ]
        endpoints = hints.endpoints()
    ctx.respond([encode_produce_response(version, topics, 0, endpoints)])


def _with_leader(
    hints: LeaderHints, name: str | None, topic_id: UUID | None, result: ProducedPartition
) -> ProducedPartition:
    if result.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return result
    return result._replace(current_leader=hints.leader(name, topic_id, result.partition))


def _end_without_response(ctx: RequestContext, results: list[ProducedPartition]) -> None:
    failed = next((result for result in results if result.error_code), None)
    if failed is None:
        ctx.no_response()
    else:
        ctx.disconnect(f"produce with acks=0 failed: {ErrorCode(failed.error_code).name}")
