"""WriteTxnMarkers (key 27), versions 1 and 2: end transactions in partitions that this broker leads.

A transaction coordinator sends it, or an administrator who aborts a hanging transaction. The response is sent when all
markers are committed (acks=all), or after ``request.timeout.ms``. The markers of ``__consumer_offsets`` are written by
the group coordinator, which applies or drops the transaction's offsets. From v2 on a marker has the transaction
version, with which the epochs of markers are checked (KIP-890). KIPs: 98, 664.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from milena.broker.reading.producing import CommitWait, PendingAppend
from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.control_records import EndMarkerRequest
from milena.protocol.records.validation import Origin
from milena.protocol.requests.messages import get
from milena.protocol.types import OFFSETS_TOPIC, Offset, ProducerEpoch, ProducerId, TopicPartition

if TYPE_CHECKING:
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.waiting.purgatory import Purgatory
    from milena.config.node_config import NodeConfig
    from milena.protocol.apis import (
        WritableTxnMarker,
        WritableTxnMarkerResultFields,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponseFields,
    )
    from milena.runtime.context import Runtime

APPENDS_PER_YIELD: Final = 100
"""The maximum number of markers that are appended between two yields."""
_Results: TypeAlias = dict[TopicPartition, ErrorCode]


class GroupTransactions(Protocol):
    """What this handler uses of the group coordinator."""

    def complete_transaction(self, index: int, marker: EndMarkerRequest, done: Callable[[ErrorCode], None]) -> None: ...


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def groups(self) -> GroupTransactions: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def purgatory(self) -> Purgatory: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: WriteTxnMarkersRequest) -> Cooperative[None]:
    writing, budget = _Writing(node, ctx), YieldBudget(APPENDS_PER_YIELD)
    for marker in request.markers:
        writing.begin(marker)
        if budget.spend(1):
            yield
        for partition in _partitions(marker):
            writing.write(partition)
            if budget.spend(1):
                yield
    writing.wait()


def failed(ctx: RequestContext, request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponseFields:
    results = {marker.producer_id: dict.fromkeys(_partitions(marker), error.code) for marker in request.markers}
    return {"markers": [_fields(producer_id, partitions) for producer_id, partitions in results.items()]}


def _partitions(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield topic.name, index


class _Writing:
    """The markers of one request, and their results: as in Kafka one for a producer id and partition."""

    def __init__(self, node: Needs, ctx: RequestContext) -> None:
        self._node = node
        self._ctx = ctx
        self._results: dict[ProducerId, _Results] = {}
        self._pending: list[tuple[_Results, TopicPartition, PendingAppend]] = []
        """The appends that are not committed yet."""
        self._waits = 1
        """The number of events before the response: the commit of the appends, and the group coordinator's answers."""
        self._marker: EndMarkerRequest
        self._batch: bytes
        self._written: _Results
        """The results of the current marker."""

    def begin(self, marker: WritableTxnMarker) -> None:
        """Make ``marker`` the current one. Raises KafkaError if it has no producer id or epoch: as in Kafka the request
        then fails, and the markers before it are in the logs."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker needs a producer id and an epoch")
        self._marker = end = EndMarkerRequest(
            ProducerId(marker.producer_id),
            ProducerEpoch(marker.producer_epoch),
            marker.coordinator_epoch,
            marker.transaction_result,
            get(marker, "transaction_version", 0),
        )
        self._batch = end.batch(self._node.runtime.clock.time_ms())
        self._written = {}

    def write(self, partition: TopicPartition) -> None:
        """Append the current marker to a partition. A partition that the marker names again is skipped."""
        if partition in self._written:
            return
        self._written[partition] = ErrorCode.NONE
        results = self._results.setdefault(self._marker.producer_id, {})
        results[partition] = ErrorCode.NONE
        try:
            hosted = self._find(partition)
            if hosted.topic == OFFSETS_TOPIC:
                self._waits += 1
                ended = partial(self._ended_in_groups, results, partition)
                self._node.groups.complete_transaction(hosted.index, self._marker, ended)
                return
            appended = self._append(hosted)
        except KafkaError as error:
            results[partition] = error.code
            return
        if not appended.check():
            self._pending.append((results, partition, appended))
        elif appended.error:
            results[partition] = appended.error

    def wait(self) -> None:
        """Respond when all markers are committed."""
        node = self._node
        pending = [append for _, _, append in self._pending if not append.check()]
        if not pending:
            self._committed()
            return
        seconds = node.config.get_int("request.timeout.ms") / 1000
        keys = dict.fromkeys(append.partition for append in pending)
        node.purgatory.wait(CommitWait(pending, self._committed), keys, seconds, self._ctx)

    def _find(self, partition: TopicPartition) -> Partition:
        """Look up a partition. Raises KafkaError: as in Kafka UNKNOWN_TOPIC_OR_PARTITION also if only other brokers
        host it or its log directory is offline."""
        found = self._node.partitions.find(*partition)
        if found is None or found.log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._node.partitions.get_for_write(*partition)

    def _append(self, partition: Partition) -> PendingAppend:
        info = partition.append(
            memoryview(bytearray(self._batch)),
            ACKS_ALL,
            origin=Origin.COORDINATOR,
            transaction_version=self._marker.transaction_version,
        )
        partition.meters.messages_in.value += 1
        partition.meters.bytes_in.value += info.size
        return PendingAppend(partition, partition.term, Offset(info.last_offset + 1))

    def _committed(self) -> None:
        for results, partition, append in self._pending:
            if append.error:
                results[partition] = append.error
        self._pending.clear()
        self._ended()

    def _ended_in_groups(self, results: _Results, partition: TopicPartition, error: ErrorCode) -> None:
        results[partition] = error
        self._ended()

    def _ended(self) -> None:
        self._waits -= 1
        if not self._waits and not self._ctx.closed:
            self._ctx.resume(self._respond())

    def _respond(self) -> Cooperative[None]:
        budget = YieldBudget()
        markers: list[WritableTxnMarkerResultFields] = []
        for producer_id, results in self._results.items():
            markers.append(_fields(producer_id, results))
            if budget.spend(1 + len(results)):
                yield
        self._ctx.respond_fields(markers=markers)


def _fields(producer_id: int, results: _Results) -> WritableTxnMarkerResultFields:
    topics: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (topic, index), error in results.items():
        topics.setdefault(topic, []).append((index, error))
    return {
        "producer_id": producer_id,
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": index, "error_code": int(error)} for index, error in partitions],
            }
            for topic, partitions in topics.items()
        ],
    }
