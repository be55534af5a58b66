"""Incremental fetch sessions (KIP-227): one cache for the broker.

A session stores the partitions that a client fetches and the offsets that it was last sent, so that a request names
only changed partitions and its response contains only changed ones. The cache has a fixed number of slots. If it is
full, the client gets session id 0 and continues with full fetches, as in Kafka.

An incremental fetch reads only the partitions in ``to_read``: those that may have something to send. Other partitions
are read again only after they have changed or the client has changed their offset. So an idle session costs the same
with one partition as with thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias, final
from uuid import UUID

from milena.broker.replica.replica_state import FetchTimes
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1

EVICTION_MS: Final = 120_000
"""A session idle for longer than this may be evicted by any other; one that was created longer ago may be evicted by a
larger one."""

MAX_CACHED_PARTITIONS: Final = 1_000_000
"""The maximum partitions in all sessions. It limits consumers only: followers fetch what this broker hosts. A partition
takes half a kilobyte."""

Key: TypeAlias = tuple[str | UUID, int]
"""A partition as the client names it: topic name, or topic id from Fetch v13 on, and index."""


class NotifyingPartition(Protocol):
    """A partition that notifies its listeners, once each, of its next change (``Session.note_changed``)."""

    @property
    def listeners(self) -> dict[RequestedPartition, Session]: ...


@dataclass(slots=True, eq=False)
class RequestedPartition:
    """One partition of a Fetch request, and what its session last sent to the client (Kafka's CachedPartition). Offsets
    are as on the wire, -1 if unknown."""

    topic: str | None
    """None while the topic id has not been resolved to a name."""
    topic_id: UUID | None
    """None below Fetch v13."""
    index: int
    offset: int
    max_bytes: int
    current_leader_epoch: int | None
    last_fetched_epoch: int | None
    log_start_offset: int = -1
    sent_high_watermark: int = -1
    sent_log_start: int = -1
    fetch_times: FetchTimes | None = None
    """The fetch times of its session, while it belongs to one."""
    source: NotifyingPartition | None = None
    """The partition on which it listens, if any."""

    @property
    def key(self) -> Key:
        name = self.topic_id if self.topic_id is not None else self.topic
        assert name is not None
        return name, self.index

    def update(self, newer: RequestedPartition) -> None:
        """Take the values of a later request. In a new leader epoch, the next response includes the high watermark."""
        if newer.current_leader_epoch != self.current_leader_epoch:
            self.sent_high_watermark = -1
        self.offset = newer.offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def ignore(self) -> None:
        """Stop listening for changes."""
        if self.source is not None:
            self.source.listeners.pop(self, None)
            self.source = None

    def update_sent(self, *, high_watermark: int, log_start: int, always: bool, failed: bool) -> bool:
        """Store the offsets that are about to be sent. Returns whether an incremental response includes the partition
        (Kafka's maybeUpdateResponseData). ``always``: the result has records, a diverging epoch or a preferred
        replica. ``failed``: it has an error; then the next response includes the partition too."""
        must_respond = (
            always or failed or high_watermark != self.sent_high_watermark or log_start != self.sent_log_start
        )
        self.sent_high_watermark = -1 if failed else high_watermark
        self.sent_log_start = log_start
        return must_respond


class Session:
    """The partitions of one client (Kafka's FetchSession). The next fetch reads those in ``to_read``, in order."""

    __slots__ = (
        "_changed",
        "closed",
        "created_ms",
        "epoch",
        "fetch_times",
        "id",
        "partitions",
        "privileged",
        "to_read",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        requested: Iterable[RequestedPartition],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        self.epoch = INITIAL_EPOCH + 1
        self.closed = False
        self.fetch_times = FetchTimes()
        self.partitions = {partition.key: partition for partition in requested}
        for partition in self.partitions.values():
            partition.fetch_times = self.fetch_times
        self.to_read: dict[RequestedPartition, object] = dict.fromkeys(self.partitions.values())
        """The partitions to read, each with the reader that ``note_read`` stored; None if it has changed since."""
        self._changed: dict[RequestedPartition, None] = {}
        """The partitions that have changed since ``take_changed``."""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The order of eviction, lowest first: consumers before followers, then the smaller session."""
        return self.privileged, len(self.partitions), self.id

    def advance(self) -> None:
        """Advance to the session epoch of the next request."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def add_or_update(self, requested: RequestedPartition) -> None:
        """Add a partition, or update a known one. The next fetch reads it."""
        known = self.partitions.setdefault(requested.key, requested)
        if known is requested:
            requested.fetch_times = self.fetch_times
        else:
            known.update(requested)
        self.to_read[known] = None

    def forget(self, key: Key) -> None:
        """Remove a partition, if the session has it."""
        requested = self.partitions.pop(key, None)
        if requested is not None:
            self.to_read.pop(requested, None)
            requested.ignore()
            requested.fetch_times = replace(self.fetch_times)

    def read_all_next(self) -> None:
        """Let the next fetch read all partitions."""
        self.to_read = dict.fromkeys(self.partitions.values())

    def listen(self, requested: RequestedPartition, source: NotifyingPartition) -> None:
        """Listen for the next change of ``source``, unless the partition was removed from the session."""
        if not self.closed and self.has(requested):
            requested.ignore()
            requested.source = source
            source.listeners[requested] = self

    def has(self, requested: RequestedPartition) -> bool:
        """Whether the partition belongs to this session."""
        return requested.fetch_times is self.fetch_times

    def note_changed(self, requested: RequestedPartition) -> None:
        """Read ``requested`` again: its source has changed, and no longer notifies this session."""
        requested.source = None
        if not self.closed and self.has(requested):
            self.to_read[requested] = None
            self._changed[requested] = None

    def read_next(self, requested: RequestedPartition) -> None:
        """Let the next fetch read ``requested``, without completing a waiting one."""
        if self.has(requested):
            self.to_read[requested] = None

    def take_changed(self) -> list[RequestedPartition]:
        """The partitions that have changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def move_to_end(self, requested: RequestedPartition) -> None:
        """Read ``requested`` last in the next fetch: it had records, and others must not starve."""
        if requested in self.to_read:
            self.to_read[requested] = self.to_read.pop(requested)

    def note_read(self, requested: RequestedPartition, source: NotifyingPartition, reader: object) -> None:
        """Note that ``reader`` has read ``requested`` for a response that is sent later, and listen for changes."""
        self.listen(requested, source)
        if requested in self.to_read:
            self.to_read[requested] = reader

    def is_unchanged_since_read(self, requested: RequestedPartition, reader: object) -> bool:
        """Whether there was no change, no later request and no other reader since ``reader`` called ``note_read``."""
        return self.to_read.get(requested) is reader

    def read_on_change(self, requested: RequestedPartition, source: NotifyingPartition) -> None:
        """Read ``requested`` again only after ``source`` has changed: the client has everything."""
        self.to_read.pop(requested, None)
        self.listen(requested, source)

    def close(self) -> None:
        """Stop listening for changes of all partitions."""
        self.closed = True
        for requested in self.partitions.values():
            requested.ignore()


@final
class FetchPlan:
    """What to read for one request. A sessionless request (``session`` is None) reads ``requested``."""

    __slots__ = ("incremental", "notes_reads", "requested", "session")

    def __init__(self, session: Session | None, requested: list[RequestedPartition], *, incremental: bool) -> None:
        self.session = session
        self.requested = requested
        self.incremental = incremental
        """Whether the response contains only changed partitions."""
        self.notes_reads = False
        """Whether each read is stored with ``Session.note_read``: the fetch yields, and a partition may change between
        its read and the response."""

    @property
    def partitions(self) -> list[RequestedPartition]:
        """The partitions to read now, in order."""
        return self.requested if self.session is None else list(self.session.to_read)

    def is_only(self, requested: RequestedPartition) -> bool:
        """Whether ``requested`` is the only partition to read."""
        all_requested = self.requested if self.session is None else self.session.to_read
        return len(all_requested) == 1 and requested in all_requested

    def is_unchanged_since_read(self, requested: RequestedPartition) -> bool:
        """Whether the partition has not changed since this request read it."""
        return not self.notes_reads or self.session is None or self.session.is_unchanged_since_read(requested, self)

    def create_temporary_session(self, now_ms: int) -> None:
        """Give a sessionless request a session until ``close``, so that changes of its partitions complete it. A
        partition that is named twice is read once."""
        self.session = Session(NO_SESSION, self.requested, privileged=False, uses_topic_ids=True, now_ms=now_ms)
        self.session.fetch_times.note(now_ms)

    def close(self) -> None:
        """Close the temporary session. To be called when the request is answered or dropped."""
        if self.session is not None and self.session.id == NO_SESSION:
            self.session.close()

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def includes(
        self, requested: RequestedPartition, *, high_watermark: int, log_start: int, always: bool, failed: bool
    ) -> bool:
        """Whether the response includes this result. To be called once per result, when the response is built."""
        if self.session is None:
            return True
        must_respond = requested.update_sent(
            high_watermark=high_watermark, log_start=log_start, always=always, failed=failed
        )
        return must_respond or not self.incremental


class FetchSessions:
    """All sessions of a broker (Kafka's FetchSessionCache)."""

    def __init__(
        self, clock: Clock, random: Randomness, slots: int, max_partitions: int = MAX_CACHED_PARTITIONS
    ) -> None:
        self._clock = clock
        self._max_partitions = max_partitions
        self._random = random
        self._slots = slots
        self._sessions: dict[int, Session] = {}
        """In order of last use."""
        self.evictions = 0
        """The number of sessions that were evicted in favor of others."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def partitions_of(self, session_id: int) -> Iterator[tuple[str | None, int]]:
        """The topic names (None if not resolved yet) and indexes of a session; empty if the session does not exist."""
        session = self._sessions.get(session_id)
        for requested in () if session is None else session.partitions.values():
            yield requested.topic, requested.index

    def plan(
        self,
        session_id: int,
        session_epoch: int,
        requested: list[RequestedPartition],
        forgotten: Iterable[Key],
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> FetchPlan:
        """Create, continue or close the session of a request, and return what to read. Raises KafkaError
        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR for the whole
        request."""
        # Of a partition that is listed twice the last entry counts, at the place of the first (FetchRequest.fetchData).
        unique = {partition.key: partition for partition in requested}
        if len(unique) < len(requested):
            requested = list(unique.values())
        # A full fetch: it closes the named session, and INITIAL_EPOCH asks for a new one.
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(session_id)
            session = None
            if session_epoch == INITIAL_EPOCH:
                session = self._create(requested, privileged=privileged, uses_topic_ids=uses_topic_ids)
            return FetchPlan(session, requested, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, requested, forgotten)

    def _continue(self, session: Session, requested: list[RequestedPartition], forgotten: Iterable[Key]) -> FetchPlan:
        before = len(session.partitions)
        for partition in requested:
            session.add_or_update(partition)
        for key in forgotten:
            session.forget(key)
        if len(session.partitions) > before and self._overflows(session, 0):
            self._drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            # As in Kafka, the request is then sessionless, for the partitions it names, even those it also forgets.
            self._drop(session.id)
            return FetchPlan(None, requested, incremental=False)
        session.advance()
        session.used_ms = self._now()
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchPlan(session, [], incremental=True)

    def _create(self, requested: list[RequestedPartition], *, privileged: bool, uses_topic_ids: bool) -> Session | None:
        now = self._now()
        session = Session(0, requested, privileged=privileged, uses_topic_ids=uses_topic_ids, now_ms=now)
        if self._overflows(session, len(session.partitions)):
            return None
        if len(self._sessions) >= self._slots and not self._evict_for(session, now):
            return None
        while session.id in self._sessions or session.id == NO_SESSION:
            session.id = 1 + self._random.below(_MAX_EPOCH)
        self._sessions[session.id] = session
        return session

    def _overflows(self, session: Session, added: int) -> bool:
        """Whether ``added`` more partitions in this session exceed the limit over all sessions."""
        return not session.privileged and self.partitions + added > self._max_partitions

    def _evict_for(self, new_session: Session, now: int) -> bool:
        """Evict a session in favor of a new one by Kafka's rules. Returns whether a slot is free."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.used_ms > EVICTION_MS:
            self._evict(oldest)
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now - session.created_ms > EVICTION_MS or (new_session.privileged and not session.privileged)
        ]
        weakest = min(evictable, key=lambda session: session.rank, default=None)
        if weakest is None or new_session.rank[:2] < weakest.rank[:2]:
            return False
        self._evict(weakest)
        return True

    def _evict(self, session: Session) -> None:
        self.evictions += 1
        self._drop(session.id)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)
