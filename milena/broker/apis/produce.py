"""Produce (key 0), versions 3-13.

Decode, check, append, answer in one synchronous chain: no task, no copy of the records. What takes too long to be
checked so goes on in slices, from a copy, while the connection is held (``broker.replica.checked_appends``); so does
all of a request for many partitions. acks=0
has no answer, and an error closes the connection so that the client asks for new metadata; acks=all answers when the
high watermark has passed. Errors are told for each partition; from v10 on one that is led elsewhere comes with the
leader and its endpoint.

Transactions are refused as a whole (TRANSACTIONAL_ID_AUTHORIZATION_FAILED) until they exist.
KIPs: 98, 101, 467 (record errors), 480, 516 (topic ids, v13), 951 (current leader).
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

from milena.broker.controller_link.transactions import Refusing, log_refusal
from milena.broker.metadata.leader_hints import LeaderHints
from milena.broker.reading.producing import CommitWait, Uncommitted
from milena.broker.replica.checked_appends import PAUSE, Appending, CheckedAppends, Rest, Wanted
from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.node.api import RequestContext
from milena.node.serving.sliced_work import LARGE
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import MAGIC
from milena.protocol.requests.leaders import NodeEndpoint
from milena.protocol.requests.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    RecordError,
    decode_produce_request,
    decode_produce_request_in_steps,
    encode_produce_response,
)
from milena.protocol.schemas.undecodable import TooManyElements
from milena.protocol.types import Offset
from milena.storage.log.append_info import AppendInfo, InvalidRecords, MalformedRecords

if TYPE_CHECKING:
    from milena.broker.replica.meters import TopicMeters
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.waiting.purgatory import Purgatory
    from milena.node.metadata.image import MetadataImage
    from milena.node.serving.sliced_work import SlicedWork

RAW: Final = True
FEW: Final = 1_000
"""Topics and partitions of a request that begins in the step of the loop in which it comes."""
A_SLICE: Final = 500
"""Partitions that are looked at in one slice, at most."""
Later: TypeAlias = Coroutine[object, object, None]
_TopicSize: TypeAlias = "tuple[str | None, UUID | None, int]"
"""A topic by name or id, and the number of its partitions."""
ADMIN_CLIENT: Final = "__admin_client"
"""Kafka lets the client of this id write to internal topics."""
_ACKS: Final = (0, 1, ACKS_ALL)
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7
_CODEC: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_MAGIC_AT: Final = 16
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12
_ATTRIBUTES: Final = 22
"""Position of the low byte of a batch's attributes."""
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
"""What the log refuses without telling where it starts."""
_LEADER_SINCE: Final = 10


class Needs(Refusing, Protocol):
    """What this handler uses of its broker."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def purgatory(self) -> Purgatory: ...
    @property
    def sliced_work(self) -> SlicedWork: ...


def handle(node: Needs, ctx: RequestContext, body: memoryview) -> Later | None:
    try:
        request = decode_produce_request(ctx.version, body, FEW)
    except TooManyElements:
        return _hold(node, ctx, Rest(len(body), LARGE + 1), _many(node, ctx, memoryview(bytearray(body))))
    under_way = _Request(node, ctx, request)
    rest = under_way.go_on()
    return None if rest is None else _hold(node, ctx, rest, _rest_of(ctx, under_way, abandon=request.acks != 0))


def _hold(node: Needs, ctx: RequestContext, rest: Rest, slices: Iterator[None]) -> Later | None:
    if not node.sliced_work.hold(rest.size):
        ctx.disconnect(f"{node.sliced_work.held} bytes of batches wait to be checked")
        return None
    ctx.hold()
    return _in_slices(node, ctx, rest, slices)


async def _in_slices(node: Needs, ctx: RequestContext, rest: Rest, slices: Iterator[None]) -> None:
    """``slices``, while what follows on the connection waits."""
    try:
        await node.sliced_work.run(slices, rest.memory)
    finally:
        node.sliced_work.drop(rest.size)
        ctx.release()


def _rest_of(ctx: RequestContext, under_way: _Request, *, abandon: bool) -> Iterator[None]:
    """What is left of a request. ``abandon``: where the client is gone, leave it."""
    while not (abandon and ctx.closed) and under_way.go_on() is not None:
        yield


def _many(node: Needs, ctx: RequestContext, body: memoryview) -> Iterator[None]:
    """All of a request. ``body`` is a copy."""
    request = yield from decode_produce_request_in_steps(ctx.version, body)
    yield
    under_way = _Request(node, ctx, request, copied=True)
    yield
    yield from _rest_of(ctx, under_way, abandon=request.acks != 0)


class _Request:
    """A request under way. Results stand in the order of its partitions."""

    __slots__ = (
        "_acks",
        "_appends",
        "_copied",
        "_ctx",
        "_meters",
        "_node",
        "_partition",
        "_results",
        "_steps",
        "_timeout_ms",
        "_topics",
        "_waiting",
        "_wanted",
    )

    _partition: Partition | None
    """The one that is produced to: None if it was looked for again and is gone."""
    _meters: TopicMeters

    def __init__(self, node: Needs, ctx: RequestContext, request: ProduceRequest, *, copied: bool = False) -> None:
        """``copied``: the request is a copy, and goes in slices from its first partition on."""
        self._node = node
        self._ctx = ctx
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._topics = [(name, topic_id, len(partitions)) for name, topic_id, partitions in request.topics]
        self._wanted: list[Wanted] = [
            (name, topic_id, index, records)
            for name, topic_id, partitions in request.topics
            for index, records in partitions
        ]
        self._copied = copied
        self._appends = CheckedAppends(self._wanted, request.acks, copied=copied)
        self._steps: Appending | None = None
        """The append under way."""
        self._waiting: list[_Open] = []
        self._results: list[ProducedPartition] = []
        refused = _refusal(node, ctx, request)
        if refused is not None:
            self._results += [ProducedPartition(wanted[2], refused) for wanted in self._wanted]

    def go_on(self) -> Rest | None:
        """Do what can be done at one go: append, and answer once all is appended; else return what is left.

        Whoever waits for the records hears of them after the answer is on its way.
        """
        purgatory = self._node.purgatory
        purgatory.hold()
        try:
            if self._steps is not None and (rest := self._step()) is not None:
                return rest
            first = len(self._results)
            for place in range(first, len(self._wanted)):
                if self._copied and place - first == A_SLICE:
                    return PAUSE
                self._begin(place)
                if self._steps is not None and (rest := self._step()) is not None:
                    return rest
            self._finish()
            return None
        finally:
            purgatory.release()

    def _begin(self, place: int) -> None:
        """Append to the next partition, or begin to."""
        wanted = self._wanted[place]
        index, records = wanted[2:]
        try:
            partition = self._find(wanted)
        except KafkaError as error:
            self._results.append(ProducedPartition(index, error.code))
            return
        self._meters = meters = partition.meters
        meters.produces.value += 1
        try:
            _check_request(self._ctx, partition, records, self._acks)
        except KafkaError as error:
            meters.failed_produces.value += 1
            self._results.append(ProducedPartition(index, error.code, error_message=error.message))
            return
        try:
            begun = self._appends.append(place, partition, self._find)
        except KafkaError as error:
            self._failed(error)
        else:
            if isinstance(begun, AppendInfo):
                self._appended(partition, begun)
            else:
                self._steps = begun

    def _step(self) -> Rest | None:
        """One slice of the append under way; None when there is its result."""
        assert self._steps is not None
        try:
            return next(self._steps)
        except StopIteration as done:
            assert self._partition is not None
            self._appended(self._partition, done.value)
        except KafkaError as error:
            self._failed(error)
        self._steps = None
        return None

    def _find(self, wanted: Wanted) -> Partition:
        """Raises KafkaError."""
        name, topic_id, index, _ = wanted
        self._partition = None
        if topic_id is not None:
            found = self._node.partitions.get_by_id(topic_id, index)
        else:
            assert name is not None
            found = self._node.partitions.get(name, index)
        self._partition = found
        return found

    def _failed(self, error: KafkaError) -> None:
        self._meters.failed_produces.value += 1
        partition = self._partition
        self._results.append(
            ProducedPartition(self._wanted[len(self._results)][2], error.code)
            if partition is None
            else _not_appended(partition, error)
        )

    def _appended(self, partition: Partition, info: AppendInfo) -> None:
        meters = self._meters
        meters.messages_in.value += info.last_offset - info.first_offset + 1
        meters.bytes_in.value += info.size
        result = ProducedPartition(partition.index, 0, info.first_offset, info.log_append_time, info.log_start_offset)
        if self._acks == ACKS_ALL:
            append = Uncommitted(partition, partition.term, Offset(info.last_offset + 1))
            if not append.check():
                self._waiting.append(_Open(append, len(self._results)))
            elif append.error:
                result = ProducedPartition(partition.index, append.error)
        self._results.append(result)

    def _finish(self) -> None:
        """Answer, or wait until what was appended is committed. Who waits does not keep the records."""
        node, ctx, topics, results, waiting = self._node, self._ctx, self._topics, self._results, self._waiting
        if self._acks == 0:
            _answer_nothing(ctx, results)
            return

        def committed() -> None:
            for waiter in waiting:
                if waiter.append.error:
                    results[waiter.place] = ProducedPartition(results[waiter.place].partition, waiter.append.error)
            _answer(node, ctx, topics, results)

        # Those of earlier slices may have been committed, or lost, since.
        open_still = [waiter.append for waiter in waiting if not waiter.append.check()]
        if open_still:
            keys = dict.fromkeys(append.partition for append in open_still)
            node.purgatory.wait(CommitWait(open_still, committed), keys, self._timeout_ms / 1000, ctx)
        else:
            committed()


class _Open:
    """An append that is not committed yet, and where its result stands."""

    __slots__ = ("append", "place")

    def __init__(self, append: Uncommitted, place: int) -> None:
        self.append = append
        self.place = place


def _refusal(node: Needs, ctx: RequestContext, request: ProduceRequest) -> ErrorCode | None:
    """The error that all partitions get, None for none."""
    if request.transactional_id is not None:
        log_refusal(node, ctx, request.transactional_id)
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for _, _, partitions in request.topics:
        for _, records in partitions:
            if records is not None and _attributes(records) & _TRANSACTIONAL:
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _check_request(ctx: RequestContext, partition: Partition, records: memoryview | None, acks: int) -> None:
    """Raises KafkaError for what this client and version may not send."""
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one record batch for each partition")
    if ctx.version < _ZSTD_SINCE and _attributes(records) & _CODEC == _ZSTD and _is_whole(records):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    # As late as in Kafka, where a partition that is not there and records that are none come first.
    if acks not in _ACKS:
        right = _is_whole(records, alone=True) and records[_MAGIC_AT] == MAGIC
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS if right else ErrorCode.INVALID_RECORD)
    if partition.is_internal and ctx.client_id != ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is internal")


def _attributes(records: memoryview) -> int:
    """Of the first batch; 0 if that is none of the current format, which the log refuses."""
    return records[_ATTRIBUTES] if len(records) > _ATTRIBUTES and records[_MAGIC_AT] == MAGIC else 0


def _is_whole(records: memoryview, *, alone: bool = False) -> bool:
    """Whether the first batch is not longer than the records, and is all of them where it is to be ``alone``."""
    size, rest = int.from_bytes(records[_LENGTH_AT:_LENGTH_END], "big", signed=True), len(records) - _LENGTH_END
    return size == rest if alone else 0 < size <= rest


def _not_appended(partition: Partition, error: KafkaError) -> ProducedPartition:
    errors = tuple(map(RecordError._make, error.record_errors)) if isinstance(error, InvalidRecords) else ()
    start = -1
    if partition.log is not None and error.code not in _WITHOUT_LOG_START and not isinstance(error, MalformedRecords):
        start = partition.log.log_start_offset
    return ProducedPartition(
        partition.index, error.code, log_start_offset=start, record_errors=errors, error_message=error.message
    )


def _answer(node: Needs, ctx: RequestContext, sizes: list[_TopicSize], results: list[ProducedPartition]) -> None:
    if ctx.closed:
        return
    endpoints: tuple[NodeEndpoint, ...] = ()
    left = iter(results)
    topics: list[ProducedTopic] = [(name, topic_id, list(islice(left, count))) for name, topic_id, count in sizes]
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


def _answer_nothing(ctx: RequestContext, results: list[ProducedPartition]) -> None:
    failed = next((result for result in results if result.error_code), None)
    if failed is None:
        ctx.no_response()
    else:
        ctx.disconnect(f"produce with acks=0 failed: {ErrorCode(failed.error_code).name}")
