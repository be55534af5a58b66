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
        WritableTxnMarkerPartitionResultFields,
        WritableTxnMarkerResultFields,
        WritableTxnMarkerTopicResultFields,
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
    """Without a connection no more markers are written, unlike in Kafka. The coordinator sends them again, and may have
    completed the transaction by now: below transaction version 2 a late marker would end the producer's next one."""
    writing, budget = _Writing(node, ctx), YieldBudget(APPENDS_PER_YIELD)
    for marker in request.markers:
        writing.begin(marker)
        if budget.spend(1):
            yield
        for partition in _partitions(marker):
            writing.write(partition)
            if budget.spend(1):
                yield
    if not ctx.closed:
        writing.wait()


def failed(ctx: RequestContext, request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponseFields:
    markers: list[WritableTxnMarkerResultFields] = []
    for marker in request.markers:
        topics: dict[str, list[WritableTxnMarkerPartitionResultFields]] = {}
        for topic, index in _partitions(marker):
            topics.setdefault(topic, []).append({"partition_index": index, "error_code": int(error.code)})
        markers.append(_marker_result(marker.producer_id, topics))
    return {"markers": markers}


def _partitions(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield topic.name, index


class _Commit:
    """The markers that one leadership of a partition has appended: they are committed once the last one is."""

    __slots__ = ("append", "markers")

    def __init__(self, append: PendingAppend) -> None:
        self.append = append
        """The last one."""
        self.markers: list[tuple[_Results, TopicPartition]] = []
        """Where their results belong."""


class _Writing:
    """The markers of one request, and their results: as in Kafka one for a producer id and partition."""

    def __init__(self, node: Needs, ctx: RequestContext) -> None:
        self._node = node
        self._ctx = ctx
        self._results: dict[ProducerId, _Results] = {}
        self._pending: dict[tuple[Partition, int], _Commit] = {}
        """The appends that are not committed yet, by partition and its term."""
        self._waits = 1
        """The number of events before the response: the commit of the appends, and the group coordinator's answers."""
        self._marker: EndMarkerRequest
        self._batch: bytes
        self._written: set[TopicPartition]
        """The partitions of the current marker so far."""

    def begin(self, marker: WritableTxnMarker) -> None:
        """Make ``marker`` the current one."""
        self._marker = end = EndMarkerRequest(
            ProducerId(marker.producer_id),
            ProducerEpoch(marker.producer_epoch),
            marker.coordinator_epoch,
            marker.transaction_result,
            get(marker, "transaction_version", 0),
        )
        self._batch = end.batch(self._node.runtime.clock.time_ms())
        self._written = set()

    def write(self, partition: TopicPartition) -> None:
        """Append the current marker to a partition, unless the client has disconnected. A partition that the marker
        names again is skipped."""
        if partition in self._written or self._ctx.closed:
            return
        self._written.add(partition)
        results = self._results.setdefault(self._marker.producer_id, {})
        results[partition] = ErrorCode.NONE
        try:
            hosted = self._find(partition)
            if hosted.topic == OFFSETS_TOPIC:
                self._waits += 1
                ended = partial(self._ended_in_groups, results, partition)
                self._node.groups.complete_transaction(hosted.index, self._marker, ended)
                return
            append = self._append(hosted)
        except KafkaError as error:
            results[partition] = error.code
            return
        if append.check():
            if append.error:
                results[partition] = append.error
            return
        commit = self._pending.setdefault((hosted, append.term), _Commit(append))
        commit.append = append
        commit.markers.append((results, partition))

    def wait(self) -> None:
        """Respond when all markers are committed."""
        node = self._node
        pending = [commit.append for commit in self._pending.values() if not commit.append.check()]
        if not pending:
            self._committed()
            return
        seconds = node.config.get_int("request.timeout.ms") / 1000
        keys = dict.fromkeys(append.partition for append in pending)
        node.purgatory.wait(CommitWait(pending, self._committed), keys, seconds, self._ctx)

    def _find(self, partition: TopicPartition) -> Partition:
        """Look up a partition. Raises KafkaError: as in Kafka UNKNOWN_TOPIC_OR_PARTITION also if only other brokers
        host it or its log directory is offline, and UNKNOWN_SERVER_ERROR if the marker has no producer id or epoch."""
        found = self._node.partitions.find(*partition)
        if found is None or found.log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._marker.producer_id < 0 or self._marker.producer_epoch < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
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
        for commit in self._pending.values():
            if commit.append.error:
                for results, partition in commit.markers:
                    results[partition] = commit.append.error
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
            topics: dict[str, list[WritableTxnMarkerPartitionResultFields]] = {}
            for (topic, index), error in results.items():
                topics.setdefault(topic, []).append({"partition_index": index, "error_code": int(error)})
                if budget.spend(1):
                    yield
            markers.append(_marker_result(producer_id, topics))
            if budget.spend(1):
                yield
        self._ctx.respond_fields(markers=markers)


def _marker_result(
    producer_id: int, topics: dict[str, list[WritableTxnMarkerPartitionResultFields]]
) -> WritableTxnMarkerResultFields:
    named: list[WritableTxnMarkerTopicResultFields] = [
        {"name": topic, "partitions": partitions} for topic, partitions in topics.items()
    ]
    return {"producer_id": producer_id, "topics": named}
