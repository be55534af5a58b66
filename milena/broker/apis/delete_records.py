"""DeleteRecords (key 21), versions 0-2.

Advances the log start of partitions that this broker leads; offset -1 means the high watermark. The response is sent
when the low watermark of each partition has reached its offset, that is, when all replicas on unfenced brokers have
advanced their log starts, or after the timeout with REQUEST_TIMED_OUT. KIP-107.
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
_NO_OFFSET: Final = Offset(-1)


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
    # As in Kafka, of a partition that is listed twice only the last entry counts.
    requested: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        last = requested.setdefault(topic.name, {})
        for partition in topic.partitions:
            last[partition.partition_index] = partition
            if budget.spend(1):
                yield
    for name, partitions in requested.items():
        topic_deletions = yield from budget.apply(list(partitions.values()), partial(_Deletion, node, name))
        if topic_deletions:
            deletions.append((name, topic_deletions))
        if budget.spend(1):
            yield

    def answer() -> DeleteRecordsResponseFields:
        return {
            "topics": [
                {"name": name, "partitions": [deletion.fields() for deletion in topic_deletions]}
                for name, topic_deletions in deletions
            ]
        }

    waiting = {
        deletion.partition: deletion
        for _, topic_deletions in deletions
        for deletion in topic_deletions
        if deletion.partition and not deletion.check()
    }
    # All replicas are there already, or every partition has an error.
    if not waiting:
        return answer()
    wait = _DelayedDeletion(waiting, lambda: ctx.respond_fields(**answer()))
    node.purgatory.wait(wait, waiting, messages.get(request, "timeout_ms", 0) / 1000, ctx)
    return None


class _Deletion:
    """The deletion in one partition. ``partition`` is None if it was refused."""

    def __init__(self, node: Needs, topic: str, requested: DeleteRecordsPartition) -> None:
        self.partition: Partition | None = None
        self._index = requested.partition_index
        self._error: ErrorCode | None = None
        self._low_watermark = self._required = _NO_OFFSET
        try:
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = node.partitions.get(topic, requested.partition_index)
            self._required = partition.delete_records(
                None if requested.offset == HIGH_WATERMARK else Offset(requested.offset)
            )
            self.partition = partition
        except KafkaError as failure:
            self._error = failure.code

    def check(self) -> bool:
        """Check the low watermark. Returns whether the result is known."""
        if self._error is None and self.partition is not None:
            try:
                self._low_watermark = self.partition.low_watermark
            except KafkaError as failure:
                self._error = failure.code
            else:
                self._error = ErrorCode.NONE if self._low_watermark >= self._required else None
        return self._error is not None

    def fail(self, error: ErrorCode) -> None:
        """Set ``error`` as the result, unless the result is known now."""
        if not self.check():
            self._error = error

    def fields(self) -> DeleteRecordsPartitionResultFields:
        error = self._error or ErrorCode.NONE
        low = _NO_OFFSET if error else self._low_watermark
        return {"partition_index": self._index, "error_code": int(error), "low_watermark": low}


class _DelayedDeletion:
    """Waits for the followers' log starts, for all pending deletions of one request (Kafka's DelayedDeleteRecords)."""

    def __init__(self, waiting: dict[Partition, _Deletion], done: Callable[[], object]) -> None:
        self._pending = dict(waiting)
        self._done = done

    def ready(self, key: Hashable) -> bool:
        assert isinstance(key, Partition)
        if key in self._pending and self._pending[key].check():
            del self._pending[key]
        return not self._pending

    def complete(self) -> None:
        self._done()

    def expire(self) -> None:
        self._fail_pending(ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        self._fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _fail_pending(self, error: ErrorCode) -> None:
        for deletion in self._pending.values():
            deletion.fail(error)
        self._done()
