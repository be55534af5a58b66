"""Incremental fetch sessions (KIP-227), one cache for the broker.

A session remembers what a client wants and what it was told last, so that a fetch names only what changed and its
answer carries only what is new. The cache has a fixed number of slots; a session that finds no room is not an error:
the client is answered with session id 0 and goes on with full fetches.

An incremental fetch reads only the partitions that may have news (``to_read``). A partition without news is not read
again until it has changed or the client asks for something else of it. So an idle session costs the same with one
partition and with thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, TypeAlias
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
"""A session idle for longer gives its slot to anyone; one that has lived longer may be evicted by a larger one."""

MAX_CACHED_PARTITIONS: Final = 1_000_000
"""Partitions of all sessions. Consumers find no room beyond; followers do, as they hold what is here. A partition takes
half a kilobyte."""

Key: TypeAlias = tuple[str | UUID, int]
"""A partition as the client names it: topic name, or topic id from Fetch v13 on, and index."""


class Source(Protocol):
    """A partition that tells the sessions which listen to it once of its next change (``Session.note_changed``)."""

    @property
    def listeners(self) -> dict[Wanted, Session]: ...


@dataclass(slots=True, eq=False)
class Wanted:
    """One partition of a fetch, and what its session last told of it. Offsets as on the wire, -1 if unknown."""

    topic: str | None
    """None: an id that has not been resolved to a name."""
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
    """When its session is used, as long as it belongs to one."""
    source: Source | None = None
    """The partition whose next change its session hears of."""

    @property
    def key(self) -> Key:
        name = self.topic_id if self.topic_id is not None else self.topic
        assert name is not None
        return name, self.index

    def update(self, newer: Wanted) -> None:
        """Take what a later request says, and keep what was sent; to a follower in a new epoch nothing was."""
        if newer.current_leader_epoch != self.current_leader_epoch:
            self.sent_high_watermark = -1
        self.offset = newer.offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def ignore(self) -> None:
        """Hear of no change any more."""
        if self.source is not None:
            self.source.listeners.pop(self, None)
            self.source = None

    def note_answer(self, *, high_watermark: int, log_start: int, always: bool, failed: bool) -> bool:
        """Remember what is about to be sent, and say whether it is news. ``always``: records, a diverging epoch or
        a preferred replica. A failure makes the next answer news whatever it is."""
        news = always or failed or high_watermark != self.sent_high_watermark or log_start != self.sent_log_start
        self.sent_high_watermark = -1 if failed else high_watermark
        self.sent_log_start = log_start
        return news


class Session:
    """One client's set of partitions; the next fetch reads those of ``to_read``, in order."""

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
        self.to_read = dict.fromkeys(self.partitions.values())
        self._changed: dict[Wanted, None] = {}

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Who stays when slots are short: followers over consumers, then the larger session."""
        return self.privileged, len(self.partitions), self.id

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def want(self, wanted: Wanted) -> None:
        """A new partition, or other values for a known one. It is read next."""
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
        """Read everything next time."""
        self.to_read = dict.fromkeys(self.partitions.values())

    def listen(self, wanted: Wanted, source: Source) -> None:
        """Let ``source`` tell of its next change."""
        if not self.closed:
            wanted.ignore()
            wanted.source = source
            source.listeners[wanted] = self

    def has(self, wanted: Wanted) -> bool:
        """Whether this partition is, still, of this session."""
        return wanted.visits is self.visits

    def note_changed(self, wanted: Wanted) -> None:
        """The source of ``wanted`` has changed, and listens no longer."""
        wanted.source = None
        if not self.closed and self.has(wanted):
            self.to_read[wanted] = None
            self._changed[wanted] = None

    def read_next(self, wanted: Wanted) -> None:
        """There is news of it that nobody waits for: it is read next time."""
        if self.has(wanted):
            self.to_read[wanted] = None

    def take_changed(self) -> list[Wanted]:
        """Those that have changed since this was last asked."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def served(self, wanted: Wanted) -> None:
        """It had something: it is read again next time, after the others."""
        if wanted in self.to_read:
            del self.to_read[wanted]
            self.to_read[wanted] = None

    def read_on_change(self, wanted: Wanted, source: Source) -> None:
        """All has been told: it is read again when it changes."""
        self.to_read.pop(wanted, None)
        if self.has(wanted):
            self.listen(wanted, source)

    def close(self) -> None:
        self.closed = True
        for wanted in self.partitions.values():
            wanted.ignore()


class FetchPlan(NamedTuple):
    """What to read for one request. ``session`` is None for a sessionless one, which reads ``wanted``."""

    session: Session | None
    wanted: list[Wanted]
    incremental: bool
    """Only news goes into the answer."""

    @property
    def partitions(self) -> list[Wanted]:
        """Those to be read now, in order."""
        return self.wanted if self.session is None else list(self.session.to_read)

    def is_only(self, wanted: Wanted) -> bool:
        """Whether this is all that is to be read."""
        all_of_it = self.wanted if self.session is None else self.session.to_read
        return len(all_of_it) == 1 and wanted in all_of_it

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def selects(self, wanted: Wanted, *, high_watermark: int, log_start: int, always: bool, failed: bool) -> bool:
        """Whether this result belongs in the answer. Call once for each, when the answer is made."""
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
        """In the order of last use."""

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
        FETCH_SESSION_TOPIC_ID_ERROR, which are for the whole request."""
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
            # As in Kafka the request is then one without a session, for what it names, even if it forgot that again.
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
        """Whether ``more`` partitions of this session are too many beside those of all sessions."""
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
