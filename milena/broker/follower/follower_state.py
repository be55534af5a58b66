"""One replica that follows one leader in one leader epoch: its state, and how the leader's responses change its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from milena.broker.follower.fetch_states import Event, FetchState, beginning, event_of, step
from milena.broker.follower.truncation import cut_for
from milena.broker.replica.partition import Partition
from milena.node.metrics import Counter
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.requests.fetch_response import FetchedPartition
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.logging import get_logger
from milena.storage.log import tiering
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.log.validation import split_batches
from milena.storage.state.epoch_cache import EpochEntry

_CORRUPT: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})

FIRST_PAUSE: Final = 0.02
"""Seconds; each further pause is twice as long, up to ``replica.fetch.backoff.ms``."""


class Sent(NamedTuple):
    """The position that the leader was last told for a partition."""

    offset: Offset
    last_fetched_epoch: LeaderEpoch | None
    log_start: Offset


def refusal(error_code: int) -> Event:
    """What an error means if the request was not for records."""
    return Event.FENCED if event_of(error_code) is Event.FENCED else Event.RETRIABLE


class FollowerState:
    """Another leader epoch or another log is another FollowerState: late responses for this one are dropped."""

    __slots__ = (
        "_log_events",
        "caught_up",
        "errors_in_a_row",
        "lag",
        "leader_epoch",
        "local_log_emptied",
        "log",
        "partition",
        "paused",
        "sent",
        "state",
        "trouble",
    )

    def __init__(self, partition: Partition) -> None:
        """Cuts a log without epochs to its high watermark. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self.partition: Final = partition
        self.log: Final[UnifiedLog] = partition.online_log
        self.leader_epoch: Final = partition.leader_epoch
        self.paused = False
        """Whether it waits after an error."""
        self.errors_in_a_row = 0
        """The number of consecutive steps that ended with an error."""
        self.local_log_emptied = False
        """Whether the last truncation removed everything local."""
        self.trouble = ""
        """The last reported error that kept it from starting in the tier."""
        self.sent: Sent | None = None
        """None until the leader has been asked for records in this session."""
        self.lag = 0
        """Records up to the leader's high watermark."""
        self.caught_up = False
        """Whether its lag was 0 when the leader last answered: in sync, as far as a follower can tell."""
        self._log_events = get_logger("follower")
        log = self.log
        self.state, cut = beginning(
            log.epochs,
            leader_epoch=self.leader_epoch,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        if cut is not None:
            self._truncate(cut)
        if log.remote_enabled and not tiering.epochs_reach_start(log):
            self._begin_anew()

    def __repr__(self) -> str:
        return f"<{self.partition.topic}-{self.partition.index} {self.state.value} at {self.log.log_end_offset}>"

    @property
    def key(self) -> tuple[UUID, int]:
        return self.partition.topic_id, self.partition.index

    @property
    def is_current(self) -> bool:
        """Whether the partition still has this log and this leader epoch."""
        partition = self.partition
        return partition.log is self.log and partition.leader_epoch == self.leader_epoch and not partition.is_leader

    @property
    def next_position(self) -> Sent:
        """What to ask for next: the position after the end of the log."""
        log = self.log
        return Sent(log.log_end_offset, log.epochs.latest, log.log_start_offset)

    def advance(self, event: Event) -> None:
        """Apply an event by the table of transitions."""
        self.state, self.paused = step(self.state, event)
        self.errors_in_a_row = self.errors_in_a_row + 1 if event is Event.RETRIABLE else 0

    def pause(self, longest: float) -> float:
        """Seconds to wait after an error. The first pauses are short: a new leader often learns of its epoch a moment
        after its followers, and its high watermark waits for them."""
        return min(longest, FIRST_PAUSE * 2 ** min(self.errors_in_a_row - 1, 32)) if self.errors_in_a_row else longest

    # -- the leader's responses

    def take(self, fetched: FetchedPartition, bytes_in: Counter) -> Event | None:
        """Apply the response to the last fetch; None if it no longer matches the state of this replica."""
        sent, log = self.sent, self.log
        if sent is None or self.paused or self.state is not FetchState.FETCHING or not self.is_current:
            return None
        if sent.offset != log.log_end_offset:
            return None
        if fetched.error_code:
            event = event_of(fetched.error_code)
            return self.leave_to_tier() if event is Event.MOVED_TO_TIER else event
        try:
            if fetched.diverging_epoch is not None:
                self._cut(*fetched.diverging_epoch, fallback=log.log_end_offset)
                return self._after_cut(Event.DIVERGED)
            return self._append(fetched, bytes_in)
        except BrokenInvariant as broken:
            self.partition.end(broken)
            return Event.BROKEN
        except KafkaError as error:
            return self._refused(error)

    def take_epoch_end(self, asked: LeaderEpoch, error_code: int, epoch: int, end: int) -> Event | None:
        """Apply where the leader's log leaves ``asked``, the newest epoch here when the request was sent (-1: unknown
        to the leader)."""
        if self.state is not FetchState.TRUNCATING or not self.is_current or self.log.epochs.latest != asked:
            return None
        if error_code:
            return refusal(error_code)
        log_end = self.log.log_end_offset
        try:
            agreed = self._cut(epoch, end, fallback=self.log.high_watermark)
        except KafkaError as error:
            return self._refused(error)
        if not agreed and self.log.log_end_offset == log_end:
            return Event.RETRIABLE  # the response names an epoch above the requested one, and says nothing
        return self._after_cut(Event.EPOCHS_AGREE if agreed or self.log.epochs.latest is None else Event.EPOCHS_OPEN)

    def shorten(self, leader_end: Offset) -> bool:
        """The leader's log ends at ``leader_end``. If this log is longer, cut it and return True: the leader has lost
        those records (docs/kafka-semantics.md: Offset out of range).

        Raises KafkaError."""
        if leader_end >= self.log.log_end_offset:
            return False
        self._truncate(leader_end)
        return True

    def move_up(self, leader_start: Offset) -> None:
        """The leader's log begins at ``leader_start``, and no record before it can be fetched (docs/kafka-semantics.md:
        Offset out of range). Raises KafkaError."""
        if leader_start > self.log.log_end_offset:
            self.log.truncate_fully_and_start_at(leader_start)
            self.partition.changed()

    def leave_to_tier(self) -> Event:
        """The leader has the next records only in the tier: remove everything local (KIP-405, scenario 2)."""
        log = self.log
        if not log.remote_enabled:
            return Event.RETRIABLE  # the topic's configuration has not arrived yet
        self._log_events.info(
            "leader's log moved to the tier",
            topic=self.partition.topic,
            partition=self.partition.index,
            leader_epoch=self.leader_epoch,
            offset=log.log_end_offset,
        )
        try:
            tiering.clear_local(log)
        except KafkaError as error:
            return self._refused(error)
        self.partition.changed()
        return Event.MOVED_TO_TIER

    def _begin_anew(self) -> None:
        """The leader epochs of the records in the tier were lost. A member of the ISR must keep its records all the
        same. Any other replica keeps them until it has their replacement: the leader may be dead, and this replica may
        win an unclean election."""
        self._log_events.warning(
            "leader epochs do not reach back to the log's start",
            topic=self.partition.topic,
            partition=self.partition.index,
            log_start=self.log.log_start_offset,
        )
        if not self.partition.is_in_sync:
            self.state = FetchState.LOCATING_LOCAL

    def begin_at(self, leader_start: Offset) -> Event:
        """Start at ``leader_start``: the leader has nothing in the tier, or no longer has anything there."""
        try:
            self.log.truncate_fully_and_start_at(leader_start)
        except KafkaError as error:
            return self._refused(error)
        return Event.BUILT

    def start_in_tier(
        self, offset: Offset, *, log_start: Offset, epochs: Iterable[EpochEntry], producers: bytes
    ) -> Event:
        """Continue at ``offset``, after the records in the tier (docs/kafka-semantics.md: Followers that begin in the
        tier)."""
        try:
            tiering.start_in_tier(self.log, offset, log_start=log_start, epochs=epochs, snapshot=producers)
        except KafkaError as error:
            return self._refused(error)
        self._log_events.info(
            "remote log auxiliary state built",
            topic=self.partition.topic,
            partition=self.partition.index,
            leader_epoch=self.leader_epoch,
            log_start=log_start,
            offset=offset,
        )
        self.partition.changed()
        return Event.BUILT

    def _append(self, fetched: FetchedPartition, bytes_in: Counter) -> Event:
        log = self.log
        records = fetched.records
        if records:
            assert isinstance(records, memoryview)
            self._begin_within(records, fetched.log_start_offset)
            info = log.append_as_follower(records, leader_epoch=self.leader_epoch)
            if log.epochs.latest is not None and log.epochs.latest > self.leader_epoch:
                raise BrokenInvariant(f"records of epoch {log.epochs.latest} from a leader of {self.leader_epoch}")
            bytes_in.value += info.size
        self.lag = max(0, fetched.high_watermark - log.log_end_offset)
        self.caught_up = self.lag == 0
        high_watermark = Offset(min(fetched.high_watermark, log.log_end_offset))
        moved = high_watermark > log.high_watermark
        if moved:
            log.set_high_watermark(high_watermark)
        if fetched.log_start_offset > log.log_start_offset:
            log.increment_log_start(Offset(fetched.log_start_offset))
        elif moved:
            self.partition.changed()
        return Event.RECORDS

    def _begin_within(self, records: memoryview, leader_start: int) -> None:
        """The leader's log may start within a batch (DeleteRecords). If this log has nothing that the leader still has,
        it begins with the whole batch. What it has at those offsets may be of an epoch that the leader has forgotten
        with the records, so that no truncation removes it."""
        log = self.log
        if log.log_end_offset > max(log.log_start_offset, leader_start):
            return
        for first in split_batches(records)[:1]:
            if first.base_offset < log.log_end_offset < first.next_offset:
                log.truncate_fully_and_start_at(Offset(first.base_offset))

    def _after_cut(self, event: Event) -> Event:
        """MOVED_TO_TIER if only records in the tier are left, since their producers are not known here; else
        ``event``."""
        local_log_emptied, self.local_log_emptied = self.local_log_emptied, False
        return Event.MOVED_TO_TIER if local_log_emptied else event

    def _cut(self, epoch: int, end: int, *, fallback: Offset) -> bool:
        """Truncate according to the leader's (epoch, end); returns whether the logs agree now."""
        log = self.log
        cut = cut_for(
            log.epochs,
            log_end=log.log_end_offset,
            fallback=fallback,
            leader_epoch=LeaderEpoch(epoch) if epoch >= 0 else None,
            end_offset=Offset(end) if end >= 0 else None,
        )
        self._truncate(cut.offset)
        return cut.agreed

    def _truncate(self, offset: Offset) -> None:
        log, before = self.log, self.log.log_end_offset
        if log.truncate_to(offset):
            self._log_events.info(
                "log truncated",
                topic=self.partition.topic,
                partition=self.partition.index,
                leader_epoch=self.leader_epoch,
                from_offset=before,
                to_offset=log.log_end_offset,
            )
            self.local_log_emptied = log.log_start_offset < log.local_log_start_offset == log.log_end_offset
            self.partition.changed()

    def _refused(self, error: KafkaError) -> Event:
        """The local log has refused the operation. Records that arrived damaged are fetched again."""
        event = Event.RETRIABLE if error.code in _CORRUPT else Event.BROKEN
        self._log_events.error(
            "replica cannot follow", topic=self.partition.topic, partition=self.partition.index, reason=error.message
        )
        return event
