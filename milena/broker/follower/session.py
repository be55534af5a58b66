"""The follower's side of an incremental fetch session, like Kafka's FetchSessionHandler (KIP-227).

The leader stores the session's partitions, so a request names only changed partitions, and its response contains only
changed ones: an idle partition costs nothing. If the leader's session cache is full, every fetch is a full one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from milena.broker.follower.follower_state import FollowerState, SentPosition
from milena.protocol.errors import ErrorCode

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
"""The session epoch of a full fetch, which starts a session."""
_LAST_EPOCH: Final = 2**31 - 1

PartitionKey = tuple[UUID, int]


class SessionFetch(NamedTuple):
    """The contents of one Fetch request."""

    session_id: int
    session_epoch: int
    partitions: list[FollowerState]
    forgotten: list[tuple[str, UUID, int]]
    """Topic name, topic id, and partition."""


class FollowerSession:
    """One fetcher's session with its leader. At most one fetch is in flight."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._ready: dict[PartitionKey, FollowerState] = {}
        """All partitions to fetch; those that most recently had records come last."""
        self._changed: dict[PartitionKey, None] = {}
        """Partitions of ``_ready`` whose position in the leader's session may be outdated."""
        self._in_session: dict[PartitionKey, str] = {}
        """The partitions in the leader's session, with their topic names."""
        self._to_forget: dict[PartitionKey, None] = {}
        """Partitions of ``_in_session`` that are not in ``_ready``."""

    def __len__(self) -> int:
        """The number of partitions to fetch."""
        return len(self._ready)

    @property
    def pending(self) -> bool:
        """Whether a request is needed: there are partitions to fetch or to remove from the session."""
        return bool(self._ready or (self._to_forget and self._epoch != FIRST_EPOCH))

    def add(self, follower: FollowerState) -> None:
        """Start fetching a partition."""
        key = follower.key
        follower.sent = None
        self._ready[key] = follower
        self._changed[key] = None
        self._to_forget.pop(key, None)

    def remove(self, follower: FollowerState) -> None:
        """Stop fetching a partition, if it is fetched."""
        key = follower.key
        if self._ready.get(key) is follower:
            del self._ready[key]
            self._changed.pop(key, None)
            follower.sent = None
            if key in self._in_session:
                self._to_forget[key] = None

    def ready(self) -> list[FollowerState]:
        """All partitions to fetch."""
        return list(self._ready.values())

    def find(self, key: PartitionKey) -> FollowerState | None:
        return self._ready.get(key)

    def position_changed(self, follower: FollowerState) -> None:
        """Let the next request name a fetched partition, if its position differs from that in the session."""
        if follower.key in self._ready:
            self._changed[follower.key] = None

    def move_to_end(self, follower: FollowerState) -> None:
        """Fetch a partition last, because it had records: without a session, the leader would otherwise always serve
        the same partitions first."""
        if self._ready.pop(follower.key, None) is not None:
            self._ready[follower.key] = follower
            self._changed[follower.key] = None

    # -- requests and responses

    def next_fetch(self) -> SessionFetch:
        """The next request, whose positions are marked as sent. ``response_received`` or ``reset`` must follow."""
        if self._epoch == FIRST_EPOCH:
            partitions = list(self._ready.values())
            self._in_session.clear()
            self._mark_sent(partitions)
            return SessionFetch(self._id, FIRST_EPOCH, partitions, [])
        changed = [self._ready[key] for key in self._changed]
        partitions = [follower for follower in changed if follower.sent != follower.next_position]
        forgotten = [(self._in_session.pop(key), *key) for key in self._to_forget]
        self._mark_sent(partitions)
        return SessionFetch(self._id, self._epoch, partitions, forgotten)

    def _mark_sent(self, partitions: Iterable[FollowerState]) -> None:
        self._changed.clear()
        self._to_forget.clear()
        for follower in partitions:
            follower.sent = SentPosition(*follower.next_position)
            self._in_session[follower.key] = follower.partition.topic

    def response_received(self, session_id: int, error_code: int) -> bool:
        """Apply the session id and error code of a response. Returns False after an error: the response has no
        partitions, and the next fetch starts a new session."""
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self.reset()
            return False
        if self._epoch == FIRST_EPOCH:
            self._id = session_id
        elif session_id != self._id:
            # The leader has closed the session; the response is valid.
            self._id = NO_SESSION
            self._epoch = FIRST_EPOCH
            return True
        if self._id != NO_SESSION:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def reset(self) -> None:
        """Start a new session with the next fetch, because it is unknown whether the last request was received."""
        self._epoch = FIRST_EPOCH
        for follower in self._ready.values():
            follower.sent = None
