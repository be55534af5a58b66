"""Offset lookup by timestamp if part of the log is in the tier: ListOffsets waits (docs/kafka-semantics.md: Special
timestamps)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from milena.broker.reading.remote_waits import ReadKey, RemoteWait, code_of
from milena.broker.replica.offset_search import NOTHING, TimeSearch, found_record
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
    """One request."""

    def __init__(
        self,
        pool: ReaderPool,
        purgatory: Purgatory,
        reader: RemoteLogReader,
        late: Counter,
        done: Callable[[], object],
    ) -> None:
        super().__init__(pool, purgatory)
        self._reader = reader
        self._late = late
        self._done = done
        self._searches: dict[ReadKey, TimeSearch] = {}
        self._expired = False

    def start(self, searches: Sequence[TimeSearch], seconds: float, requester: Requester) -> None:
        """Search, and call ``done`` when all searches have been told their result, at the latest after ``seconds``."""
        for search in searches:
            try:
                self._searches[self._searched(search)] = search
            except KafkaError as error:
                search.tell(NOTHING, error.code)
        self.begin(seconds, requester)

    def _searched(self, search: TimeSearch) -> ReadKey:
        async def work(name: TopicIdPartition, log: UnifiedLog) -> TimedRecord | None:
            return await first_at_or_after(self._reader, name, log, search.timestamp)

        return self.submit(search.partition, ("offset by time", search.timestamp), work)

    def expire(self) -> None:
        self._expired = True
        self._late.add(len(self._open))
        super().expire()

    def _take(self, key: ReadKey, result: TimedRecord | None, error: Exception | None) -> None:
        search = self._searches[key]
        if error is not None:
            search.tell(NOTHING, code_of(error))
            return
        partition, asker = search.partition, search.asker
        try:
            log = partition.require(asker.current_leader_epoch, leader=asker.needs_leader)
            search.tell(asker.shown(partition, log, found_record(result)), ErrorCode.NONE)
        except KafkaError as failure:
            search.tell(NOTHING, failure.code)

    def _give_up(self, key: ReadKey) -> None:
        search, code = self._searches[key], ErrorCode.REQUEST_TIMED_OUT
        if not self._expired:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # the client then finds the current leader, and asks it
        search.tell(NOTHING, code)

    def _finish(self) -> None:
        self._done()
