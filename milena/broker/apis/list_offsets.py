"""ListOffsets (key 2), versions 1-11.

Looks up offsets by timestamp, and Kafka's special timestamps. Without a tier EARLIEST_LOCAL is EARLIEST, and the
offsets of the tier are -1. With one, a time is looked for in both, while the request waits: for TimeoutMs (v10), or
``remote.list.offsets.request.timeout.ms``; then the error is REQUEST_TIMED_OUT. MAX_TIMESTAMP knows local segments
only, as in Kafka. Leaders answer; a debugging replica (-2) may ask any.
KIPs: 79, 207 (OFFSET_NOT_AVAILABLE), 320 (leader epochs), 734 (MAX_TIMESTAMP), 405, 1005, 1023.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.replica.offset_search import NOTHING, Asker, Found, TimeSearch, found_record
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
    wanted = _Wanted()
    searches: list[TimeSearch] = []

    def answer(name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponseFields:
        fields: ListOffsetsPartitionResponseFields = {"partition_index": asked.partition_index}

        def tell(found: Found, error: ErrorCode = ErrorCode.NONE) -> None:
            if error is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < _OFFSET_NOT_AVAILABLE_SINCE:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            timestamp, offset, leader_epoch = found
            fields.update(
                {"error_code": int(error), "timestamp": timestamp, "offset": offset, "leader_epoch": leader_epoch}
            )

        try:
            if (name, asked.partition_index) in wanted.repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if asked.timestamp < 0 and ctx.version < _SINCE.get(asked.timestamp, ctx.version + 1):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            partition = node.partitions.get(name, asked.partition_index)
            epoch = messages.get(asked, "current_leader_epoch", -1)
            asker = Asker(request.replica_id, committed, None if epoch == -1 else epoch)
            log = partition.require(asker.current_leader_epoch, leader=asker.needs_leader)
            if asked.timestamp >= 0 and log.remote_enabled and node.remote_reads is not None:
                searches.append(TimeSearch(partition, asked.timestamp, asker, tell))
            else:
                tell(look_up(partition, log, asked.timestamp, asker))
        except KafkaError as failure:
            tell(NOTHING, failure.code)
        return fields

    def finish(found: Iterable[ListOffsetsPartitionResponseFields]) -> ListOffsetsResponseFields | None:
        each = iter(found)
        answers: ListOffsetsResponseFields = {
            "topics": [
                {"name": name, "partitions": list(islice(each, len(partitions)))}
                for name, partitions in wanted.topics.items()
            ]
        }
        if not searches:
            return answers
        assert node.remote_reads is not None
        timeout_ms = messages.get(request, "timeout_ms", 0)
        node.remote_reads.search(searches, timeout_ms, lambda: ctx.respond_fields(**answers), ctx)
        return None

    yield from wanted.read(request)
    return finish(
        (yield from YieldBudget(PARTITIONS_PER_YIELD).apply(wanted.partitions(), lambda asked: answer(*asked)))
    )


class _Wanted:
    """The partitions of a request, each once."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, ListOffsetsPartition]] = {}
        self.repeated: set[tuple[str, int]] = set()

    def read(self, request: ListOffsetsRequest) -> Cooperative[None]:
        budget = YieldBudget()
        for topic in request.topics:
            for asked in topic.partitions:
                known = self.topics.setdefault(topic.name, {})
                if asked.partition_index in known:
                    self.repeated.add((topic.name, asked.partition_index))
                known[asked.partition_index] = asked
                if budget.spend(1):
                    yield

    def partitions(self) -> Iterator[tuple[str, ListOffsetsPartition]]:
        for name, partitions in self.topics.items():
            for asked in partitions.values():
                yield name, asked


def look_up(partition: Partition, log: UnifiedLog, timestamp: int, asker: Asker) -> Found:
    """Raises KafkaError."""
    match timestamp:
        case -1:
            if asker.finds_lagging(partition, log):
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return -1, asker.last_fetchable(log), partition.leader_epoch
        case -2 | -4:
            return _at(log, log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset)
        case -5 | -6:
            last = log.highest_offset_in_remote_storage if log.remote_enabled else Offset(-1)
            offset = last if timestamp == LATEST_TIERED else _pending(log, last)
            return asker.shown(partition, log, _at(log, offset)) if offset >= 0 else NOTHING
        case -3:
            found = log.max_timestamp_offset()
        case _:
            found = log.offset_for_timestamp(timestamp)
    return asker.shown(partition, log, found_record(found))


def _pending(log: UnifiedLog, last: Offset) -> Offset:
    """The first offset that is not in the tier yet, -1 if that cannot be said."""
    if not log.remote_enabled:
        return Offset(-1)
    if last < 0:
        return log.log_start_offset if log.log_start_offset == log.local_log_start_offset else Offset(-1)
    return max(Offset(last + 1), log.log_start_offset)


def _at(log: UnifiedLog, offset: Offset) -> Found:
    epoch = log.epochs.epoch_for_offset(offset)
    return -1, offset, -1 if epoch is None else epoch
