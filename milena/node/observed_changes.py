"""What an observer of a node has seen, so that the next answer has the changes only.

An observer calls the lab command ``observe`` page by page with a name of its own, its session. A session holds the last
row of each partition; a node without observers keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

PAGE: Final = 500
"""Partitions in one page: few milliseconds of the node's event loop."""
MOST_SESSIONS: Final = 4
"""The maximum number of sessions in memory. A new session replaces the least recently used session."""

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")


class Session(Generic[Key, Row]):
    """The rows that one observer has seen, by key."""

    def __init__(self) -> None:
        self._seen: dict[Key, Row] = {}
        self.first = True
        """Whether this is its first round: what it does not list does not exist."""

    def page(self, rows: Iterator[tuple[Key, Row]], size: int = PAGE) -> tuple[list[tuple[Key, Row]], bool]:
        """Look at the next ``size`` rows. Return those that differ from the rows seen before, and whether there are no
        further ones. ``rows``: made when they are read."""
        changed, count = [], 0
        for key, row in islice(rows, size):
            count += 1
            if self._seen.get(key) != row:
                self._seen[key] = row
                changed.append((key, row))
        return changed, count < size

    def gone(self, exists: Callable[[Key], bool]) -> list[Key]:
        """Return the seen keys that no longer exist, and forget them."""
        gone = [key for key in self._seen if not exists(key)]
        for key in gone:
            del self._seen[key]
        return gone


class Sessions(Generic[Key, Row]):
    """The sessions of a node's observers."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session[Key, Row]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def use(self, name: str, *, start: int) -> Session[Key, Row]:
        """Return the session of this name. It is made for a first page. Raises LookupError for a later page of an
        unknown session: it was replaced, and the observer has to begin again under another name."""
        session = self._sessions.pop(name, None)
        if session is None and start:
            raise LookupError(f"no session {name!r}: begin a new one with from=0")
        if session is None:
            session = Session()
        elif not start:
            session.first = False
        self._sessions[name] = session
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def end(self, name: str) -> None:
        self._sessions.pop(name, None)


def skip(items: Iterable[Row], count: int) -> Iterator[Row]:
    """Return the items after the first ``count``."""
    return islice(items, count, None)
