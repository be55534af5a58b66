"""Sends the markers of ended transactions to the leaders of their partitions (Kafka's TransactionMarkerChannelManager
and TransactionMarkerRequestCompletionHandler).

A marker is sent again until the partition's leader has written it, the partition does not exist any more, or a newer
coordinator or producer epoch has been met. Each broker has one WriteTxnMarkers request in flight, this broker included;
markers that arrive before its response go into the next request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from milena.node.links.broker_links import BrokerLinks
from milena.node.metadata.image import MetadataImage
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import ELEMENTS_PER_YIELD
from milena.protocol.errors import ErrorCode, KafkaError, error_name
from milena.protocol.types import NodeId, ProducerId, TopicPartition
from milena.runtime.clock import Timer
from milena.runtime.context import Runtime
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.protocol.apis import WriteTxnMarkersResponse

MAX_ELEMENTS: Final = 1_000
"""The maximum number of markers and partitions in one request."""
FIRST_RETRY: Final = 0.05
LAST_RETRY: Final = 1.0
"""Seconds until a marker is sent again: doubled with each attempt."""
LOGGED_ATTEMPTS: Final = 10
"""The attempt from which on a marker that cannot be written is logged: about seven seconds."""

_WRITTEN: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION},
)
"""The partition has the marker, or cannot have one, as in Kafka."""
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_EXPECTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The errors after which Kafka sends a marker again. After any other error its broker ends; here it is logged and the
marker is sent again."""
_Results: TypeAlias = "dict[tuple[int, str, int], int]"
"""Error codes by producer id, topic and partition."""


@dataclass(frozen=True, slots=True)
class MarkerWork:
    """The markers of one transaction."""

    transactional_id: str
    state_partition: int
    """The partition of ``__transaction_state`` that has the transactional id."""
    coordinator_epoch: int
    """The leader epoch of that partition."""
    producer_id: ProducerId
    producer_epoch: int
    """The epoch in the markers: with transaction version 2 the one after the transaction's."""
    commit: bool
    partitions: Collection[TopicPartition]
    transaction_version: int
    """That of the client's transaction, from 0 to 2."""
    done: Callable[[], None]
    """Called when every partition has the marker or does not exist any more; within ``send`` if that is the case
    already."""
    fenced: Callable[[ErrorCode], None]
    """Called when a newer coordinator or producer epoch was met. Nothing is sent for the transaction from then on."""


class _Leadership:
    """The leadership of one partition of ``__transaction_state`` by this broker."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class _Transaction:
    """A transaction whose markers are being written."""

    __slots__ = ("_is_fenced", "_leadership", "missing", "work")

    def __init__(self, work: MarkerWork, leadership: _Leadership) -> None:
        self.work = work
        self.missing = len(work.partitions)
        """The number of partitions without a result."""
        self._is_fenced = False
        self._leadership = leadership

    @property
    def is_sent(self) -> bool:
        """Whether its markers are still to be sent."""
        return not (self._is_fenced or self._leadership.is_over)

    def written(self, count: int) -> None:
        """Count partitions that need no marker any more."""
        self.missing -= count
        if not self.missing:
            self.work.done()

    def fence(self, error: ErrorCode) -> None:
        """End the work."""
        self._is_fenced = True
        self.work.fenced(error)


class _Entry:
    """Partitions of one transaction that get the marker with one request, at most ``ELEMENTS_PER_YIELD`` once their
    leaders are known."""

    __slots__ = ("attempts", "has_leader", "partitions", "routed_at", "transaction")

    def __init__(self, transaction: _Transaction, partitions: Sequence[TopicPartition], attempts: int = 0) -> None:
        """``attempts``: the number of failed ones."""
        self.transaction = transaction
        self.partitions = partitions
        self.attempts = attempts
        self.has_leader = True
        """Whether the partitions had a leader when it was looked up last."""
        self.routed_at = -1
        """The offset of the metadata with which the leader was looked up."""


class _Queue:
    """The entries for one broker, and whether a request to it is in flight."""

    __slots__ = ("entries", "is_sending")

    def __init__(self) -> None:
        self.entries: deque[_Entry] = deque()
        self.is_sending = False


class MarkerSender:
    """The markers of all transactions that this broker coordinates."""

    def __init__(
        self,
        runtime: Runtime,
        tasks: Tasks,
        links: BrokerLinks,
        image: Callable[[], MetadataImage],
        *,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        """``turn`` (``Scheduler.turn``) is awaited before each step of long work."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._tasks = tasks
        self._links = links
        self._image = image
        self._turn = turn
        self._queues: dict[NodeId, _Queue] = {}
        self._leaderships: dict[int, _Leadership] = {}
        self._arriving: deque[_Entry] = deque()
        """Entries whose leaders are looked up in steps."""
        self._is_routing = False
        self._retries: list[tuple[float, int, _Entry]] = []
        """A heap of failed entries by the time of their next attempt, in monotonic seconds."""
        self._retry_count = 0
        self._timer: Timer | None = None
        self._log = LimitedLog(get_logger("markers"), runtime.clock.monotonic)

    @property
    def without_leader(self) -> int:
        """The number of markers that wait because their partitions have no leader (Kafka's
        UnknownDestinationQueueSize)."""
        return sum(not entry.has_leader for _, _, entry in self._retries)

    def send(self, work: MarkerWork) -> None:
        """Send the markers of ``work``. Its callbacks are not called after ``cancel``."""
        leadership = self._leaderships.setdefault(work.state_partition, _Leadership())
        transaction = _Transaction(work, leadership)
        if not work.partitions:
            transaction.written(0)
            return
        entry = _Entry(transaction, tuple(work.partitions))
        if len(entry.partitions) <= ELEMENTS_PER_YIELD:
            self._route(entry)
        else:
            self._route_in_steps([entry])

    def cancel(self, state_partition: int) -> None:
        """Send no more markers for transactions of this partition of ``__transaction_state``: this broker does not lead
        it any more, or leads it in a new epoch."""
        leadership = self._leaderships.pop(state_partition, None)
        if leadership is not None:
            leadership.is_over = True

    # -- leaders

    def _route_in_steps(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            partitions = entry.partitions
            for first in range(0, len(partitions), ELEMENTS_PER_YIELD):
                piece = partitions[first : first + ELEMENTS_PER_YIELD]
                self._arriving.append(_Entry(entry.transaction, piece, entry.attempts))
        if not self._is_routing:
            self._is_routing = True
            self._tasks.attempt(self._route_arriving(), name="marker-routing")

    async def _route_arriving(self) -> None:
        try:
            while self._arriving:
                await self._turn()
                routed = 0
                while self._arriving and routed < ELEMENTS_PER_YIELD:
                    entry = self._arriving.popleft()
                    routed += len(entry.partitions) + 1
                    self._route(entry)
        finally:
            self._is_routing = False

    def _route(self, entry: _Entry) -> None:
        """Queue the partitions of ``entry`` for their leaders. Those that do not exist any more need no marker."""
        transaction = entry.transaction
        if not transaction.is_sent:
            return
        image = self._image()
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        deleted = 0
        for partition in entry.partitions:
            leader = _leader(image, partition)
            if leader is None:
                deleted += 1
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, partitions in by_leader.items():
            routed = _Entry(transaction, partitions, entry.attempts)
            routed.routed_at = image.offset
            routed.has_leader = self._links.knows(leader)
            if routed.has_leader:
                self._queue(leader, routed)
            else:
                self._retry(routed, "the partition has no leader")
        if deleted:
            try:
                transaction.written(deleted)
            except Exception as error:
                self._failed(transaction, error)

    def _failed(self, transaction: _Transaction, error: Exception) -> None:
        """Report that the coordinator failed with a result. Other transactions must not be affected."""
        transactional_id = transaction.work.transactional_id
        self._runtime.contained.note("transaction markers", error, transactional_id=transactional_id)

    # -- retries

    def _retry(self, entry: _Entry, reason: str) -> None:
        """Look up the leaders of ``entry`` again after a while, because it could not be written now."""
        entry.attempts += 1
        if entry.attempts >= LOGGED_ATTEMPTS:
            topic, index = entry.partitions[0]
            work = entry.transaction.work
            self._log.warning(
                "transaction marker is not written yet",
                transactional_id=work.transactional_id,
                topic=topic,
                partition=index,
                partitions=len(entry.partitions),
                attempts=entry.attempts,
                reason=reason,
            )
        delay = min(FIRST_RETRY * 2.0 ** min(entry.attempts - 1, 16), LAST_RETRY)
        self._retry_count += 1
        heappush(self._retries, (self._clock.monotonic() + delay, self._retry_count, entry))
        if self._retries[0][2] is entry:
            self._set_timer()

    def _set_timer(self) -> None:
        """Wake up for the earliest retry."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._retries:
            delay = max(0.0, self._retries[0][0] - self._clock.monotonic())
            self._timer = self._clock.call_later(delay, self._retry_due)

    def _retry_due(self) -> None:
        now, due = self._clock.monotonic(), list[_Entry]()
        while self._retries and self._retries[0][0] <= now and len(due) < ELEMENTS_PER_YIELD:
            due.append(heappop(self._retries)[2])
        self._set_timer()
        self._route_in_steps(due)

    # -- requests

    def _queue(self, broker: NodeId, entry: _Entry) -> None:
        queue = self._queues.get(broker)
        if queue is None:
            queue = self._queues[broker] = _Queue()
        queue.entries.append(entry)
        if not queue.is_sending:
            queue.is_sending = True
            self._tasks.attempt(self._deliver(broker, queue), name=f"markers-to-{broker}")

    async def _deliver(self, broker: NodeId, queue: _Queue) -> None:
        """Send everything in the queue of ``broker``, one request after the other."""
        try:
            while queue.entries:
                entries = self._take(broker, queue)
                if entries:
                    await self._request(broker, entries)
                else:  # those that were taken are cancelled, or have another leader by now
                    await self._turn()
        finally:
            queue.is_sending = False

    def _take(self, broker: NodeId, queue: _Queue) -> list[_Entry]:
        """Remove the entries of the next request from the queue. A producer id has one marker in a request, since
        Kafka's responses have one result for it."""
        taken: dict[ProducerId, _Entry] = {}
        later, elements = list[_Entry](), 0
        while queue.entries:
            entry = queue.entries[0]
            elements += 1 + len(entry.partitions)
            if elements > MAX_ELEMENTS:
                break
            queue.entries.popleft()
            producer_id = entry.transaction.work.producer_id
            if not entry.transaction.is_sent:
                continue
            if producer_id in taken:
                later.append(entry)
            elif self._is_led_by(broker, entry):
                taken[producer_id] = entry
            else:
                self._route(entry)
        queue.entries.extendleft(later)
        return list(taken.values())

    def _is_led_by(self, broker: NodeId, entry: _Entry) -> bool:
        """Whether ``broker`` still leads all partitions of ``entry``."""
        image = self._image()
        return entry.routed_at == image.offset or all(
            _leader(image, partition) == broker for partition in entry.partitions
        )

    async def _request(self, broker: NodeId, entries: list[_Entry]) -> None:
        """Write the markers of ``entries`` with one request, and note the results."""
        try:
            response: WriteTxnMarkersResponse = await self._links.request(
                broker, ApiKey.WRITE_TXN_MARKERS, markers=[_marker(entry) for entry in entries]
            )
            results: _Results = {
                (marker.producer_id, topic.name, partition.partition_index): partition.error_code
                for marker in response.markers
                for topic in marker.topics
                for partition in topic.partitions
            }
        except Exception as error:
            if not isinstance(error, (KafkaError, ConnectionError)):
                self._runtime.contained.note("transaction markers", error, broker=broker)
            for entry in entries:
                self._retry(entry, str(error))
            return
        for entry in entries:
            try:
                self._answered(entry, results)
            except Exception as error:
                self._failed(entry.transaction, error)

    def _answered(self, entry: _Entry, results: _Results) -> None:
        transaction = entry.transaction
        if not transaction.is_sent:
            return
        producer_id = transaction.work.producer_id
        failed, reason = list[TopicPartition](), ErrorCode.NONE.value
        for partition in entry.partitions:
            error = results.get((producer_id, *partition), int(ErrorCode.UNKNOWN_SERVER_ERROR))
            if error in _FENCED:
                transaction.fence(ErrorCode(error))
                return
            if error in _WRITTEN:
                continue
            failed.append(partition)
            reason = error
            if error not in _EXPECTED:
                self._log.error(
                    "transaction marker was refused",
                    transactional_id=transaction.work.transactional_id,
                    topic=partition[0],
                    partition=partition[1],
                    error=error_name(error),
                )
        if failed:
            self._retry(_Entry(transaction, failed, entry.attempts), error_name(reason))
        transaction.written(len(entry.partitions) - len(failed))


def _leader(image: MetadataImage, partition: TopicPartition) -> NodeId | None:
    """The leader of a partition, -1 if it has none; None if the partition does not exist."""
    topic = image.topics.get(partition[0])
    found = None if topic is None else topic.partitions.get(partition[1])
    return None if found is None else found.leader


def _marker(entry: _Entry) -> dict[str, object]:
    work = entry.transaction.work
    topics: dict[str, list[int]] = {}
    for topic, index in entry.partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "producer_id": work.producer_id,
        "producer_epoch": work.producer_epoch,
        "transaction_result": work.commit,
        "topics": [{"name": topic, "partition_indexes": indexes} for topic, indexes in topics.items()],
        "coordinator_epoch": work.coordinator_epoch,
        "transaction_version": work.transaction_version,
    }
