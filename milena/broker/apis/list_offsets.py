"""ListOffsets (key 2), versions 1-11.

Returns offsets for timestamps and for Kafka's special timestamps. Without a tier, EARLIEST_LOCAL is EARLIEST, and the
offsets of the tier are -1. With a tier, a timestamp is searched in the tier and locally while the request waits, at
most TimeoutMs (v10) or ``remote.list.offsets.request.timeout.ms``; if the search takes longer, the error is
REQUEST_TIMED_OUT. MAX_TIMESTAMP searches only local segments, as in Kafka. Only leaders answer, except for debugging
consumers (replica id -2).
KIPs: 79, 207 (OFFSET_NOT_AVAILABLE), 320 (leader epochs), 734 (MAX_TIMESTAMP), 405, 1005, 1023.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.replica.offset_search import NOT_FOUND, FoundOffset, OffsetRequester, TimeSearch, found_offset
from milena.broker.replica.partition import Partition
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import Offset
from milena.storage.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from milena.broker.reading.remote_reads import RemoteReads
    from milena.broker.replica.partitions import PartitionSet
    from milena.protocol.apis import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponseFields,
        ListOffsetsRequest,
        ListOffsetsResponseFields,
    )

PARTITIONS_PER_YIELD: Final = 200
"""Partitions that are searched between two yields: a search by timestamp reads the disk."""
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_OFFSET_NOT_AVAILABLE_SINCE: Final = 5


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def remote_reads(self) -> RemoteReads | None: ...


def handle(
    node: Needs, ctx: RequestContext, request: ListOffsetsRequest
) -> Cooperative[ListOffsetsResponseFields | None]:
    committed = messages.get(request, "isolation_level", 0) == 1
    requested = _RequestedPartitions()
    searches: list[TimeSearch] = []

    def answer(name: str, partition_request: ListOffsetsPartition) -> ListOffsetsPartitionResponseFields:
        fields: ListOffsetsPartitionResponseFields = {"partition_index": partition_request.partition_index}

        def set_result(result: FoundOffset, error: ErrorCode = ErrorCode.NONE) -> None:
            if error is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < _OFFSET_NOT_AVAILABLE_SINCE:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            timestamp, offset, leader_epoch = result
            fields.update(
                {"error_code": int(error), "timestamp": timestamp, "offset": offset, "leader_epoch": leader_epoch}
            )

        try:
            # Kafka's order of the checks: repeated partitions, the version of the timestamp, the partition.
            if (name, partition_request.partition_index) in requested.repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if partition_request.timestamp < 0 and ctx.version < _SINCE.get(
                partition_request.timestamp, ctx.version + 1
            ):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            partition = node.partitions.get(name, partition_request.partition_index)
            epoch = messages.get(partition_request, "current_leader_epoch", -1)
            requester = OffsetRequester(request.replica_id, committed, None if epoch == -1 else epoch)
            log = partition.require(requester.current_leader_epoch, leader=requester.needs_leader)
            # A record with this timestamp may be in the tier: the search runs after the other partitions are answered.
            if partition_request.timestamp >= 0 and log.remote_enabled and node.remote_reads is not None:
                searches.append(TimeSearch(partition, partition_request.timestamp, requester, set_result))
            else:
                set_result(look_up(partition, log, partition_request.timestamp, requester))
        except KafkaError as failure:
            set_result(NOT_FOUND, failure.code)
        return fields

    def finish(result: Iterable[ListOffsetsPartitionResponseFields]) -> ListOffsetsResponseFields | None:
        remaining = iter(result)
        answers: ListOffsetsResponseFields = {
            "topics": [
                {"name": name, "partitions": list(islice(remaining, len(partitions)))}
                for name, partitions in requested.topics.items()
            ]
        }
        if not searches:
            return answers
        assert node.remote_reads is not None
        timeout_ms = messages.get(request, "timeout_ms", 0)
        node.remote_reads.search(searches, timeout_ms, lambda: ctx.respond_fields(**answers), ctx)
        return None

    yield from requested.read(request)
    return finish(
        (
            yield from YieldBudget(PARTITIONS_PER_YIELD).apply(
                requested.partitions(), lambda partition_request: answer(*partition_request)
            )
        )
    )


class _RequestedPartitions:
    """The partitions of a request, each once. Those in ``repeated`` get INVALID_REQUEST, as in Kafka."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, ListOffsetsPartition]] = {}
        self.repeated: set[tuple[str, int]] = set()

    def read(self, request: ListOffsetsRequest) -> Cooperative[None]:
        """Add the partitions of a request."""
        budget = YieldBudget()
        for topic in request.topics:
            for partition_request in topic.partitions:
                partitions = self.topics.setdefault(topic.name, {})
                if partition_request.partition_index in partitions:
                    self.repeated.add((topic.name, partition_request.partition_index))
                partitions[partition_request.partition_index] = partition_request
                if budget.spend(1):
                    yield

    def partitions(self) -> Iterator[tuple[str, ListOffsetsPartition]]:
        for name, partitions in self.topics.items():
            for partition_request in partitions.values():
                yield name, partition_request


def look_up(partition: Partition, log: UnifiedLog, timestamp: int, requester: OffsetRequester) -> FoundOffset:
    """Look up an offset locally, for a timestamp (ms) or a special one. Raises KafkaError."""
    if timestamp == LATEST:
        if requester.is_high_watermark_lagging(partition, log):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, requester.last_fetchable(log), partition.leader_epoch
    if timestamp == EARLIEST:
        return _with_epoch(log, log.log_start_offset)
    if timestamp == EARLIEST_LOCAL:
        return _with_epoch(log, log.local_log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        last = log.highest_offset_in_remote_storage if log.remote_enabled else Offset(-1)
        offset = last if timestamp == LATEST_TIERED else _first_not_in_tier(log, last)
        return requester.visible(partition, log, _with_epoch(log, offset)) if offset >= 0 else NOT_FOUND
    result = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    return requester.visible(partition, log, found_offset(result))


def _first_not_in_tier(log: UnifiedLog, last: Offset) -> Offset:
    """The first offset after ``last``, the highest one in the tier; -1 if it is unknown which records are there."""
    if not log.remote_enabled:
        return Offset(-1)
    if last < 0:
        return log.log_start_offset if log.log_start_offset == log.local_log_start_offset else Offset(-1)
    return max(Offset(last + 1), log.log_start_offset)


def _with_epoch(log: UnifiedLog, offset: Offset) -> FoundOffset:
    epoch = log.epochs.epoch_for_offset(offset)
    return -1, offset, -1 if epoch is None else epoch
