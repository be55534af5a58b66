"""Offset look-ups by timestamp in logs that are partly in the tier (docs/kafka-semantics.md: Special timestamps). Like
Kafka's DelayedRemoteListOffsets, the request waits in the purgatory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from milena.broker.reading.remote_waits import ReadKey, RemoteWait, code_of
from milena.broker.replica.offset_search import NOT_FOUND, TimeSearch, found_offset
from milena.broker.waiting.purgatory import Purgatory, Requester
from milena.node.metrics import Counter
from milena.protocol.errors import ErrorCode, KafkaError
from milena.storage.log.segment import TimedRecord
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.reading.reader_pool import ReaderPool
from milena.tiered.reading.remote_reader import RemoteLogReader
from milena.tiered.reading.remote_search import first_at_or_after
from milena.tiered.segments.segment_metadata import TopicIdPartition


class RemoteListOffsets(RemoteWait["TimedRecord | None"]):
    """The look-ups of one ListOffsets request."""

    def __init__(
        self,
        pool: ReaderPool,
        purgatory: Purgatory,
        reader: RemoteLogReader,
        expired: Counter,
        done: Callable[[], object],
    ) -> None:
        super().__init__(pool, purgatory)
        self._reader = reader
        self._expirations = expired
        self._done = done
        self._searches: dict[ReadKey, TimeSearch] = {}
        self._expired = False

    def start(self, searches: Sequence[TimeSearch], seconds: float, requester: Requester) -> None:
        """Start the searches. Each gets its result by its own ``done``; then the request's ``done`` is called, at the
        latest after ``seconds``."""
        for search in searches:
            try:
                self._searches[self._submit_search(search)] = search
            except KafkaError as error:
                search.done(NOT_FOUND, error.code)
        self.wait(seconds, requester)

    def _submit_search(self, search: TimeSearch) -> ReadKey:
        async def work(name: TopicIdPartition, log: UnifiedLog) -> TimedRecord | None:
            return await first_at_or_after(self._reader, name, log, search.timestamp)

        return self.submit(search.partition, ("offset by time", search.timestamp), work)

    def expire(self) -> None:
        self._expired = True
        self._expirations.add(len(self._unfinished))
        super().expire()

    def _on_read(self, key: ReadKey, result: TimedRecord | None, error: Exception | None) -> None:
        search = self._searches[key]
        if error is not None:
            search.done(NOT_FOUND, code_of(error))
            return
        partition, requester = search.partition, search.requester
        try:
            log = partition.require(requester.current_leader_epoch, leader=requester.needs_leader)
            search.done(requester.visible(partition, log, found_offset(result)), ErrorCode.NONE)
        except KafkaError as failure:
            search.done(NOT_FOUND, failure.code)

    def _on_unread(self, key: ReadKey) -> None:
        search, code = self._searches[key], ErrorCode.REQUEST_TIMED_OUT
        if not self._expired:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # leadership or log has changed: the client refreshes its metadata
        search.done(NOT_FOUND, code)

    def _finish(self) -> None:
        self._done()
