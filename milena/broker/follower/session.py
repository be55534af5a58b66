"""The follower's side of an incremental fetch session (KIP-227).

The leader remembers what it was told, so a fetch names only what has changed, and its response contains only what is
new: an idle partition costs nothing on either side. If the leader has no room for a session, every fetch is a full one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from milena.broker.follower.follower_state import FollowerState, Sent
from milena.protocol.errors import ErrorCode

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1

PartitionKey = tuple[UUID, int]


class SessionFetch(NamedTuple):
    """The contents of the next request."""

    session_id: int
    session_epoch: int
    wanted: list[FollowerState]
    forgotten: list[tuple[str, UUID, int]]
    """Topic name, topic id, and partition."""


class FollowerSession:
    """One fetcher's session with its leader. At most one fetch is in flight."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._ready: dict[PartitionKey, FollowerState] = {}
        """All partitions to be fetched; those that had records last come last."""
        self._changed: dict[PartitionKey, None] = {}
        """Ready partitions for which the leader may remember another position."""
        self._known: dict[PartitionKey, str] = {}
        """The partitions in the leader's session, with the topic's name."""
        self._gone: dict[PartitionKey, None] = {}
        """Known partitions that are not ready."""

    def __len__(self) -> int:
        """The number of partitions to be fetched."""
        return len(self._ready)

    @property
    def pending(self) -> bool:
        """Whether there is anything to ask for or to report."""
        return bool(self._ready or (self._gone and self._epoch != FIRST_EPOCH))

    def add(self, follower: FollowerState) -> None:
        """Start fetching it."""
        key = follower.key
        follower.sent = None
        self._ready[key] = follower
        self._changed[key] = None
        self._gone.pop(key, None)

    def remove(self, follower: FollowerState) -> None:
        """Does nothing if it is missing."""
        key = follower.key
        if self._ready.get(key) is follower:
            del self._ready[key]
            self._changed.pop(key, None)
            follower.sent = None
            if key in self._known:
                self._gone[key] = None

    def ready(self) -> list[FollowerState]:
        return list(self._ready.values())

    def find(self, key: PartitionKey) -> FollowerState | None:
        return self._ready.get(key)

    def note_changed(self, follower: FollowerState) -> None:
        """The position of a partition that is being fetched may differ from what the leader was told."""
        if follower.key in self._ready:
            self._changed[follower.key] = None

    def served(self, follower: FollowerState) -> None:
        """It had records: if the leader has no session, other partitions come first in the next fetch."""
        if self._ready.pop(follower.key, None) is not None:
            self._ready[follower.key] = follower
            self._changed[follower.key] = None

    # -- requests and responses

    def next_fetch(self) -> SessionFetch:
        """What to send now. It counts as told to the leader; a call of ``answered`` or ``broke`` must follow."""
        if self._epoch == FIRST_EPOCH:
            wanted = list(self._ready.values())
            self._known.clear()
            self._note_told(wanted)
            return SessionFetch(self._id, FIRST_EPOCH, wanted, [])
        changed = [self._ready[key] for key in self._changed]
        wanted = [follower for follower in changed if follower.sent != follower.next_position]
        forgotten = [(self._known.pop(key), *key) for key in self._gone]
        self._note_told(wanted)
        return SessionFetch(self._id, self._epoch, wanted, forgotten)

    def _note_told(self, wanted: Iterable[FollowerState]) -> None:
        self._changed.clear()
        self._gone.clear()
        for follower in wanted:
            follower.sent = Sent(*follower.next_position)
            self._known[follower.key] = follower.partition.topic

    def answered(self, session_id: int, error_code: int) -> bool:
        """Take the head of the response; False if the response contains nothing else and the next fetch starts a new
        session."""
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self.broke()
            return False
        if self._epoch == FIRST_EPOCH:
            self._id = session_id
        elif session_id != self._id:
            # The leader has closed the session.
            self._id = NO_SESSION
            self._epoch = FIRST_EPOCH
            return True
        if self._id != NO_SESSION:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def broke(self) -> None:
        """It is unknown whether the last request arrived: start a new session that replaces the old one."""
        self._epoch = FIRST_EPOCH
        for follower in self._ready.values():
            follower.sent = None
