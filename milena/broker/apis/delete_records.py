"""DeleteRecords (key 21), versions 0-2.

Raises the log start of partitions led here; -1 stands for the high watermark. The answer comes when all replicas on
brokers that live have raised theirs, as the low watermark of each partition tells, or with REQUEST_TIMED_OUT. KIP-107.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.metadata.metadata_view import INTERNAL_TOPICS
from milena.broker.replica.partition import Partition
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import Offset

if TYPE_CHECKING:
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.waiting.purgatory import Purgatory
    from milena.protocol.apis import (
        DeleteRecordsPartition,
        DeleteRecordsPartitionResultFields,
        DeleteRecordsRequest,
        DeleteRecordsResponseFields,
    )

HIGH_WATERMARK: Final = -1
_NOTHING: Final = Offset(-1)


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def purgatory(self) -> Purgatory: ...


def handle(
    node: Needs, ctx: RequestContext, request: DeleteRecordsRequest
) -> Cooperative[DeleteRecordsResponseFields | None]:
    budget, deletions = YieldBudget(), list[tuple[str, list[_Deletion]]]()
    for topic in request.topics:
        some = yield from budget.apply(topic.partitions, partial(_Deletion, node, topic.name))
        if some:
            deletions.append((topic.name, some))
        if budget.spend(1):
            yield

    def answer() -> DeleteRecordsResponseFields:
        return {
            "topics": [
                {"name": name, "partitions": [deletion.fields() for deletion in some]} for name, some in deletions
            ]
        }

    waiting = {
        deletion.partition: deletion
        for _, some in deletions
        for deletion in some
        if deletion.partition and not deletion.check()
    }
    if not waiting:
        return answer()
    wait = _Wait(waiting, lambda: ctx.respond_fields(**answer()))
    node.purgatory.wait(wait, waiting, messages.get(request, "timeout_ms", 0) / 1000, ctx)
    return None


class _Deletion:
    """One partition of a request. ``partition`` is None if it was refused."""

    def __init__(self, node: Needs, topic: str, asked: DeleteRecordsPartition) -> None:
        self.partition: Partition | None = None
        self._index = asked.partition_index
        self._error: ErrorCode | None = None
        self._low_watermark = self._required = _NOTHING
        try:
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = node.partitions.get(topic, asked.partition_index)
            self._required = partition.delete_records(None if asked.offset == HIGH_WATERMARK else Offset(asked.offset))
            self.partition = partition
        except KafkaError as failure:
            self._error = failure.code

    def check(self) -> bool:
        """Whether the outcome is known by now."""
        if self._error is None and self.partition is not None:
            try:
                self._low_watermark = self.partition.low_watermark
            except KafkaError as failure:
                self._error = failure.code
            else:
                self._error = ErrorCode.NONE if self._low_watermark >= self._required else None
        return self._error is not None

    def end(self, error: ErrorCode) -> None:
        """It is waited for no longer."""
        if not self.check():
            self._error = error

    def fields(self) -> DeleteRecordsPartitionResultFields:
        error = self._error or ErrorCode.NONE
        low = _NOTHING if error else self._low_watermark
        return {"partition_index": self._index, "error_code": int(error), "low_watermark": low}


class _Wait:
    """All deletions of one request that the followers have not made yet."""

    def __init__(self, waiting: dict[Partition, _Deletion], done: Callable[[], object]) -> None:
        self._open = dict(waiting)
        self._done = done

    def ready(self, key: Hashable) -> bool:
        assert isinstance(key, Partition)
        if key in self._open and self._open[key].check():
            del self._open[key]
        return not self._open

    def complete(self) -> None:
        self._done()

    def expire(self) -> None:
        self._end(ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        self._end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _end(self, error: ErrorCode) -> None:
        for deletion in self._open.values():
            deletion.end(error)
        self._done()
