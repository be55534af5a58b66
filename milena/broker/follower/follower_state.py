"""The state of one follower in one leader epoch, and how the leader's responses change its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from milena.broker.follower.fetch_states import PROGRESS, Event, FetchState, event_of, initial_state, transition
from milena.broker.follower.transition_log import SourceSegment, StateChange, TransitionLog
from milena.broker.follower.truncation import truncation_for
from milena.broker.replica.partition import Partition
from milena.node.metrics import Counter
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.batch import split_batches
from milena.protocol.requests.fetch_response import FetchedPartition
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.logging import get_logger
from milena.storage.log import tiering
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import EpochEntry

_CORRUPT: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})

FIRST_PAUSE: Final = 0.02
"""Seconds of the first pause after an error; each further pause is twice as long, up to
``replica.fetch.backoff.ms``."""


class SentPosition(NamedTuple):
    """The position that was last sent to the leader for a partition."""

    offset: Offset
    last_fetched_epoch: LeaderEpoch | None
    log_start: Offset


def lookup_error_event(error_code: int) -> Event:
    """The event for an error code in an OffsetForLeaderEpoch or ListOffsets response."""
    return Event.FENCED if event_of(error_code) is Event.FENCED else Event.RETRIABLE


class FollowerState:
    """One follower. For another leader epoch or another log there is another FollowerState, so that late responses are
    not applied to it."""

    __slots__ = (
        "_handled",
        "_log_events",
        "_transitions",
        "caught_up",
        "consecutive_errors",
        "lag",
        "last_error",
        "leader_epoch",
        "local_log_emptied",
        "log",
        "partition",
        "paused",
        "sent",
        "source_segment",
        "state",
    )

    def __init__(self, partition: Partition, transitions: TransitionLog) -> None:
        """Determine the first state; a log without epochs is truncated to its high watermark. Raises KafkaError
        KAFKA_STORAGE_ERROR."""
        self.partition: Final = partition
        self.log: Final[UnifiedLog] = partition.online_log
        self.leader_epoch: Final = partition.leader_epoch
        self.paused = False
        """Whether no request is sent for it now, after an error or because of a quota."""
        self.consecutive_errors = 0
        """The number of errors since the last event in PROGRESS: RETRIABLE, or an event in ``_handled``."""
        self._handled: frozenset[Event] = frozenset()
        """The events that have ended FETCHING since the last RETRIABLE event or event in PROGRESS."""
        self.source_segment: SourceSegment | None = None
        """The segment whose leader epochs were read when the auxiliary state was built."""
        self._transitions = transitions
        self.local_log_emptied = False
        """Whether the last truncation removed all local records, while others are in the tier."""
        self.last_error = ""
        """The last logged error of an attempt to build the auxiliary state."""
        self.sent: SentPosition | None = None
        """The position in the leader's fetch session; None if it is not in the session yet."""
        self.lag = 0
        """Records up to the leader's high watermark."""
        self.caught_up = False
        """Whether the lag was 0 at the leader's last response: a follower's approximation of being in sync."""
        self._log_events = get_logger("follower")
        log = self.log
        self.state, truncate_to = initial_state(
            log.epochs,
            leader_epoch=self.leader_epoch,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        if truncate_to is not None:
            self._truncate(truncate_to)
        if log.remote_enabled and not tiering.epochs_reach_start(log):
            self._rebuild_unless_in_sync()
        self._note_state(None, None)

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
    def next_position(self) -> SentPosition:
        """The position of the next fetch: the end of the log."""
        log = self.log
        return SentPosition(log.log_end_offset, log.epochs.latest, log.log_start_offset)

    def advance(self, event: Event) -> None:
        """Apply an event. Raises BrokenInvariant if it is impossible in this state."""
        before = self.state
        self.state, self.paused = transition(before, event)
        if event in PROGRESS:
            self.consecutive_errors, self._handled = 0, frozenset()
        elif before is FetchState.FETCHING and self.state is not before:
            self.paused = event in self._handled
            self.consecutive_errors += self.paused
            self._handled |= {event}
        elif event is Event.RETRIABLE:
            self.consecutive_errors += 1
            self._handled = frozenset()  # it pauses now, and what it did may not have been complete
        if self.state is not before:
            self._note_state(before, event)

    def _note_state(self, before: FetchState | None, event: Event | None) -> None:
        partition = self.partition
        segment = self.source_segment if event is Event.BUILT else None
        end = self.log.log_end_offset
        self._transitions.add(
            StateChange(partition.topic, partition.index, self.leader_epoch, before, self.state, event, end, segment)
        )

    def pause(self, maximum: float) -> float:
        """Seconds to pause after an error, at most ``maximum``. The first pauses are short: a new leader often applies
        the metadata of its election a moment after its followers, and its high watermark waits for them."""
        return (
            min(maximum, FIRST_PAUSE * 2 ** min(self.consecutive_errors - 1, 32))
            if self.consecutive_errors
            else maximum
        )

    # -- the leader's responses

    def apply_fetch(self, fetched: FetchedPartition, bytes_in: Counter) -> Event | None:
        """Apply a partition's response to the last fetch. Returns None, and does nothing, if it no longer matches this
        follower's state."""
        sent, log = self.sent, self.log
        if sent is None or self.paused or self.state is not FetchState.FETCHING or not self.is_current:
            return None
        if sent.offset != log.log_end_offset:
            return None
        if fetched.error_code:
            event = event_of(fetched.error_code)
            return self.remove_local_log() if event is Event.MOVED_TO_TIER else event
        try:
            if fetched.diverging_epoch is not None:
                self._truncate_for_epoch(*fetched.diverging_epoch, fallback=log.log_end_offset)
                return self._after_truncation(Event.DIVERGED)
            return self._append(fetched, bytes_in)
        except BrokenInvariant as broken:
            self.partition.fail(broken)
            return Event.BROKEN
        except KafkaError as error:
            return self._failed(error)

    def apply_epoch_end(self, requested: LeaderEpoch, error_code: int, epoch: int, end: int) -> Event | None:
        """Apply an OffsetForLeaderEpoch response for ``requested``, which was this log's latest epoch: in the leader's
        log, ``epoch`` is the largest one not above it, and ``end`` its end offset (-1: unknown). Returns None, and does
        nothing, if it no longer matches this follower's state."""
        if self.state is not FetchState.TRUNCATING or not self.is_current or self.log.epochs.latest != requested:
            return None
        if error_code:
            return lookup_error_event(error_code)
        log_end = self.log.log_end_offset
        try:
            agreed = self._truncate_for_epoch(epoch, end, fallback=self.log.high_watermark)
        except KafkaError as error:
            return self._failed(error)
        if not agreed and self.log.log_end_offset == log_end:
            return Event.RETRIABLE  # the response has an epoch above the requested one, which is not valid
        return self._after_truncation(
            Event.EPOCHS_AGREE if agreed or self.log.epochs.latest is None else Event.EPOCHS_UNDECIDED
        )

    def truncate_to_leader_end(self, leader_end: Offset) -> bool:
        """If this log is longer than the leader's, which ends at ``leader_end``, truncate it and return True
        (docs/kafka-semantics.md: Offset out of range). Raises KafkaError."""
        if leader_end >= self.log.log_end_offset:
            return False
        self._truncate(leader_end)
        return True

    def start_at_leader_start(self, leader_start: Offset) -> None:
        """If this log ends before the leader's log start, remove everything and start there (docs/kafka-semantics.md:
        Offset out of range). Raises KafkaError."""
        if leader_start > self.log.log_end_offset:
            self.log.truncate_fully_and_start_at(leader_start)
            self.partition.changed()

    def remove_local_log(self) -> Event:
        """Remove the local log, because the leader has the next records only in the tier (KIP-405, scenario 2)."""
        log = self.log
        if not log.remote_enabled:
            return Event.RETRIABLE  # the topic's configuration has not arrived yet
        try:
            tiering.clear_local(log)
        except KafkaError as error:
            return self._failed(error)
        self.partition.changed()
        return Event.MOVED_TO_TIER

    def _rebuild_unless_in_sync(self) -> None:
        """Build the auxiliary state again if this replica is not in sync: the leader epochs of its records in the tier
        were lost. A member of the ISR must keep its records. Another replica keeps them too until the state is built,
        because the leader may be dead, and this replica may win an unclean election."""
        self._log_events.warning(
            "leader epochs do not reach back to the log start",
            topic=self.partition.topic,
            partition=self.partition.index,
            log_start=self.log.log_start_offset,
        )
        if not self.partition.is_in_sync:
            self.state = FetchState.LOCATING_LOCAL

    def start_at(self, leader_start: Offset) -> Event:
        """Remove everything and start at ``leader_start``, because the leader has nothing in the tier (any more)."""
        try:
            self.log.truncate_fully_and_start_at(leader_start)
        except KafkaError as error:
            return self._failed(error)
        self.source_segment = None
        return Event.BUILT

    def start_in_tier(
        self,
        offset: Offset,
        *,
        log_start: Offset,
        epochs: Iterable[EpochEntry],
        producers: bytes,
        source: SourceSegment,
    ) -> Event:
        """Start at ``offset``, after the records in the tier, with their auxiliary state (docs/kafka-semantics.md:
        Followers that begin in the tier). ``source``: the segment that the epochs come from."""
        try:
            tiering.start_in_tier(self.log, offset, log_start=log_start, epochs=epochs, snapshot=producers)
        except KafkaError as error:
            return self._failed(error)
        self.source_segment = source
        self.partition.changed()
        return Event.BUILT

    def _append(self, fetched: FetchedPartition, bytes_in: Counter) -> Event:
        """Append the leader's records, and apply its high watermark and log start. Raises KafkaError,
        BrokenInvariant."""
        log = self.log
        records = fetched.records
        if records:
            assert isinstance(records, memoryview)
            self._start_at_batch(records, fetched.log_start_offset)
            info = log.append_as_follower(records, leader_epoch=self.leader_epoch)
            if log.epochs.latest is not None and log.epochs.latest > self.leader_epoch:
                raise BrokenInvariant(
                    f"the leader of epoch {self.leader_epoch} sent records of epoch {log.epochs.latest}"
                )
            bytes_in.value += info.size
        self.lag = max(0, fetched.high_watermark - log.log_end_offset)
        self.caught_up = self.lag == 0
        high_watermark = Offset(min(fetched.high_watermark, log.log_end_offset))
        has_moved = high_watermark > log.high_watermark
        if has_moved:
            log.set_high_watermark(high_watermark)
        if fetched.log_start_offset > log.log_start_offset:
            log.increment_log_start(Offset(fetched.log_start_offset))
        elif has_moved:
            self.partition.changed()
        return Event.RECORDS

    def _start_at_batch(self, records: memoryview, leader_start: int) -> None:
        """Start this log at the base offset of the first batch if it has no record that the leader still has.

        The leader's log may start within a batch (DeleteRecords). Records of this log at the batch's first offsets may
        be of an epoch that the leader has removed with its records, so that no truncation would remove them."""
        log = self.log
        if log.log_end_offset > max(log.log_start_offset, leader_start):
            return
        for first in split_batches(records)[:1]:
            if first.base_offset < log.log_end_offset < first.next_offset:
                log.truncate_fully_and_start_at(Offset(first.base_offset))

    def _after_truncation(self, event: Event) -> Event:
        """Return MOVED_TO_TIER if the truncation left only records in the tier, because the producer state at their end
        must be built; else ``event``."""
        local_log_emptied, self.local_log_emptied = self.local_log_emptied, False
        return Event.MOVED_TO_TIER if local_log_emptied else event

    def _truncate_for_epoch(self, epoch: int, end: int, *, fallback: Offset) -> bool:
        """Truncate by the leader's (epoch, end offset), see ``truncation_for``. Returns whether the logs agree now."""
        log = self.log
        truncate_to = truncation_for(
            log.epochs,
            log_end=log.log_end_offset,
            fallback=fallback,
            leader_epoch=LeaderEpoch(epoch) if epoch >= 0 else None,
            end_offset=Offset(end) if end >= 0 else None,
        )
        self._truncate(truncate_to.offset)
        return truncate_to.agreed

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

    def _failed(self, error: KafkaError) -> Event:
        """Log an error of the local log and return its event: RETRIABLE for corrupt records, which are fetched again,
        else BROKEN."""
        event = Event.RETRIABLE if error.code in _CORRUPT else Event.BROKEN
        self._log_events.error(
            "replica cannot follow", topic=self.partition.topic, partition=self.partition.index, reason=error.message
        )
        return event
