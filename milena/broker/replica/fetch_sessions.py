"""Incremental fetch sessions (KIP-227): one cache for the broker.

A session remembers what a client wants and what it was last told, so that a fetch names only what has changed and its
response contains only what is new. The cache has a fixed number of slots. If there is no room, that is no error: the
client gets session id 0 and continues with full fetches.

An incremental fetch reads only the partitions that may have news (``to_read``). A partition without news is read again
only after it has changed or the client asks for something else. So an idle session costs the same with one partition as
with thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias, final
from uuid import UUID

from milena.broker.replica.replica_state import Visits
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1

EVICTION_MS: Final = 120_000
"""After this idle time any session may take the slot; a session older than this may be evicted by a larger one."""

MAX_CACHED_PARTITIONS: Final = 1_000_000
"""The limit of partitions in all sessions. Beyond it consumers find no room; followers do, since they fetch what this
broker hosts. A partition takes half a kilobyte."""

Key: TypeAlias = tuple[str | UUID, int]
"""A partition as the client names it: topic name, or topic id from Fetch v13 on, and index."""


class Source(Protocol):
    """A partition that notifies listening sessions, once, of its next change (``Session.note_changed``)."""

    @property
    def listeners(self) -> dict[Wanted, Session]: ...


@dataclass(slots=True, eq=False)
class Wanted:
    """One partition of a fetch, and what its session last told the client. Offsets as on the wire, -1 if unknown."""

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
    visits: Visits | None = None
    """The visits of its session, while it belongs to one."""
    source: Source | None = None
    """The partition whose next change is notified to its session."""

    @property
    def key(self) -> Key:
        name = self.topic_id if self.topic_id is not None else self.topic
        assert name is not None
        return name, self.index

    def update(self, newer: Wanted) -> None:
        """Take the values of a later request, and keep what was sent; in a new epoch, a follower has been sent
        nothing."""
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

    def note_answer(self, *, high_watermark: int, log_start: int, always: bool, failed: bool) -> bool:
        """Remember what is about to be sent; returns whether it is news. ``always``: the response has records, a
        diverging epoch or a preferred replica. After an error, the next response is always news."""
        news = always or failed or high_watermark != self.sent_high_watermark or log_start != self.sent_log_start
        self.sent_high_watermark = -1 if failed else high_watermark
        self.sent_log_start = log_start
        return news


class Session:
    """One client's set of partitions. The next fetch reads those in ``to_read``, in order."""

    __slots__ = (
        "_changed",
        "closed",
        "created_ms",
        "epoch",
        "id",
        "partitions",
        "privileged",
        "to_read",
        "used_ms",
        "uses_topic_ids",
        "visits",
    )

    def __init__(
        self, session_id: int, wanted: Iterable[Wanted], *, privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        self.epoch = INITIAL_EPOCH + 1
        self.closed = False
        self.visits = Visits()
        self.partitions = {partition.key: partition for partition in wanted}
        for partition in self.partitions.values():
            partition.visits = self.visits
        self.to_read: dict[Wanted, object] = dict.fromkeys(self.partitions.values())
        """With what ``note_read`` noted last, until there is a reason to read the partition again."""
        self._changed: dict[Wanted, None] = {}

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Which session stays if slots are short: followers before consumers, then the larger session."""
        return self.privileged, len(self.partitions), self.id

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def want(self, wanted: Wanted) -> None:
        """Add a partition, or change the values of a known one. It is read next."""
        known = self.partitions.setdefault(wanted.key, wanted)
        if known is wanted:
            wanted.visits = self.visits
        else:
            known.update(wanted)
        self.to_read[known] = None

    def forget(self, key: Key) -> None:
        """Does nothing if it is missing."""
        wanted = self.partitions.pop(key, None)
        if wanted is not None:
            self.to_read.pop(wanted, None)
            wanted.ignore()
            wanted.visits = replace(self.visits)

    def read_all_next(self) -> None:
        """Read all partitions next time."""
        self.to_read = dict.fromkeys(self.partitions.values())

    def listen(self, wanted: Wanted, source: Source) -> None:
        """Listen for the next change of ``source``, unless the partition was forgotten meanwhile."""
        if not self.closed and self.has(wanted):
            wanted.ignore()
            wanted.source = source
            source.listeners[wanted] = self

    def has(self, wanted: Wanted) -> bool:
        """Whether this session (still) has the partition."""
        return wanted.visits is self.visits

    def note_changed(self, wanted: Wanted) -> None:
        """The source of ``wanted`` has changed, and no longer notifies this session."""
        wanted.source = None
        if not self.closed and self.has(wanted):
            self.to_read[wanted] = None
            self._changed[wanted] = None

    def read_next(self, wanted: Wanted) -> None:
        """It has news that no fetch waits for: read it next time."""
        if self.has(wanted):
            self.to_read[wanted] = None

    def take_changed(self) -> list[Wanted]:
        """The partitions that have changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def served(self, wanted: Wanted) -> None:
        """It had something to send: read it again next time, after the others."""
        if wanted in self.to_read:
            self.to_read[wanted] = self.to_read.pop(wanted)

    def note_read(self, wanted: Wanted, source: Source, reader: object) -> None:
        """``reader`` has just read ``wanted``, and tells of it later."""
        self.listen(wanted, source)
        if wanted in self.to_read:
            self.to_read[wanted] = reader

    def is_as_read(self, wanted: Wanted, reader: object) -> bool:
        """Whether what ``reader`` has read is still all: no change, no other request, and no other reader since."""
        return self.to_read.get(wanted) is reader

    def read_on_change(self, wanted: Wanted, source: Source) -> None:
        """There is nothing more to tell: read it again when it changes."""
        self.to_read.pop(wanted, None)
        self.listen(wanted, source)

    def close(self) -> None:
        self.closed = True
        for wanted in self.partitions.values():
            wanted.ignore()


@final
class FetchPlan:
    """What to read for one request. A sessionless request (``session`` is None) reads ``wanted``."""

    __slots__ = ("incremental", "notes_reads", "session", "wanted")

    def __init__(self, session: Session | None, wanted: list[Wanted], *, incremental: bool) -> None:
        self.session = session
        self.wanted = wanted
        self.incremental = incremental
        """Whether the response contains only news."""
        self.notes_reads = False
        """Whether the session notes each read, because the fetch yields, so that a partition may change between its
        read and the response."""

    @property
    def partitions(self) -> list[Wanted]:
        """The partitions to be read now, in order."""
        return self.wanted if self.session is None else list(self.session.to_read)

    def is_only(self, wanted: Wanted) -> bool:
        """Whether this is the only partition to be read."""
        all_of_it = self.wanted if self.session is None else self.session.to_read
        return len(all_of_it) == 1 and wanted in all_of_it

    def is_as_read(self, wanted: Wanted) -> bool:
        """Whether what was read last is still all that there is to tell."""
        return not self.notes_reads or self.session is None or self.session.is_as_read(wanted, self)

    def make_own_session(self, now_ms: int) -> None:
        """Give a sessionless request a session of its own, through which it learns of changes until ``close``. A
        partition that is named twice is read once."""
        self.session = Session(NO_SESSION, self.wanted, privileged=False, uses_topic_ids=True, now_ms=now_ms)
        self.session.visits.note(now_ms)

    def close(self) -> None:
        """Close the request's own session. Call it when the request is answered, or will not be."""
        if self.session is not None and self.session.id == NO_SESSION:
            self.session.close()

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def selects(self, wanted: Wanted, *, high_watermark: int, log_start: int, always: bool, failed: bool) -> bool:
        """Whether the response includes this result. Call once per result, when the response is made."""
        if self.session is None:
            return True
        news = wanted.note_answer(high_watermark=high_watermark, log_start=log_start, always=always, failed=failed)
        return news or not self.incremental


class FetchSessions:
    """All sessions of a broker."""

    def __init__(
        self, clock: Clock, random: Randomness, slots: int, max_partitions: int = MAX_CACHED_PARTITIONS
    ) -> None:
        self._clock = clock
        self._max_partitions = max_partitions
        self._random = random
        self._slots = slots
        self._sessions: dict[int, Session] = {}
        """In order of last use."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def partitions_of(self, session_id: int) -> Iterator[tuple[str | None, int]]:
        """The topic names (None: not known yet) and indexes in a session; none if there is no such session."""
        session = self._sessions.get(session_id)
        for wanted in () if session is None else session.partitions.values():
            yield wanted.topic, wanted.index

    def plan(
        self,
        session_id: int,
        session_epoch: int,
        wanted: list[Wanted],
        forgotten: Iterable[Key],
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> FetchPlan:
        """What to read. Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR for the whole request."""
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(session_id)
            session = None
            if session_epoch == INITIAL_EPOCH:
                session = self._create(wanted, privileged=privileged, uses_topic_ids=uses_topic_ids)
            return FetchPlan(session, wanted, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, wanted, forgotten)

    def _continue(self, session: Session, wanted: list[Wanted], forgotten: Iterable[Key]) -> FetchPlan:
        before = len(session.partitions)
        for partition in wanted:
            session.want(partition)
        for key in forgotten:
            session.forget(key)
        if len(session.partitions) > before and self._overflows(session, 0):
            self._drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            # As in Kafka, the request is then sessionless, for the partitions it names, even those it also forgets.
            self._drop(session.id)
            return FetchPlan(None, wanted, incremental=False)
        session.advance()
        session.used_ms = self._now()
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchPlan(session, [], incremental=True)

    def _create(self, wanted: list[Wanted], *, privileged: bool, uses_topic_ids: bool) -> Session | None:
        now = self._now()
        session = Session(0, wanted, privileged=privileged, uses_topic_ids=uses_topic_ids, now_ms=now)
        if self._overflows(session, len(session.partitions)):
            return None
        if len(self._sessions) >= self._slots and not self._evict_for(session, now):
            return None
        while session.id in self._sessions or session.id == NO_SESSION:
            session.id = 1 + self._random.below(_MAX_EPOCH)
        self._sessions[session.id] = session
        return session

    def _overflows(self, session: Session, more: int) -> bool:
        """Whether adding ``more`` partitions to this session exceeds the limit over all sessions."""
        return not session.privileged and self.partitions + more > self._max_partitions

    def _evict_for(self, newcomer: Session, now: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.used_ms > EVICTION_MS:
            self._drop(oldest.id)
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now - session.created_ms > EVICTION_MS or (newcomer.privileged and not session.privileged)
        ]
        weakest = min(evictable, key=lambda session: session.rank, default=None)
        if weakest is None or newcomer.rank[:2] < weakest.rank[:2]:
            return False
        self._drop(weakest.id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)
