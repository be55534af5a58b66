"""The purgatory: operations that wait for a partition to change, or for their time to run out.

Kafka's DelayedOperationPurgatory. An operation watches partitions; whoever changes one (append, high watermark,
leadership, log start, truncation, deletion) calls ``changed``. Operations are completed on the loop by the caller
of ``changed``, in the order in which they began to wait. An error in one that nobody foresaw is its own: neither the
caller, who may have appended, nor the others that wait have to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from broker.deadlines import Deadline, Deadlines
from runtime.clock import Clock
from runtime.containment import Containment


class Waiting(Protocol):
    """An operation that waits. All calls are synchronous; exactly one of the last three ends it, once."""

    def ready(self, key: Hashable) -> bool:
        """``key`` has changed: is it time to complete? Must not change anything but the operation itself."""
        ...

    def complete(self) -> None:
        """It was ready, and is out of the purgatory now. May itself change partitions."""
        ...

    def expire(self) -> None:
        """The time is up: complete with what there is."""
        ...

    def abandon(self) -> None:
        """The broker stops; answer with an error where that makes sense."""
        ...


class Ticket:
    """One operation's place in the purgatory."""

    __slots__ = ("deadline", "keys", "operation")

    def __init__(self, operation: Waiting, keys: tuple[Hashable, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.deadline: Deadline | None = None


class Purgatory:
    """Operations by the keys they watch. Keys are partitions, compared by identity."""

    def __init__(self, clock: Clock, contained: Containment) -> None:
        self.deadlines = Deadlines(clock)
        self._contained = contained
        self._watchers: dict[Hashable, dict[Ticket, None]] = {}
        self._tickets: dict[Ticket, None] = {}
        self._held: dict[Hashable, None] | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def wait(self, operation: Waiting, keys: Iterable[Hashable], seconds: float) -> Ticket:
        """Let ``operation`` wait for a change of any of ``keys`` for at most ``seconds``."""
        ticket = Ticket(operation, tuple(keys))
        self._tickets[ticket] = None
        for key in ticket.keys:
            self._watchers.setdefault(key, {})[ticket] = None
        ticket.deadline = self.deadlines.after(seconds, lambda: self._expire(ticket))
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Take an operation out without completing it (its client is gone). Idempotent."""
        if ticket not in self._tickets:
            return
        del self._tickets[ticket]
        if ticket.deadline is not None:
            ticket.deadline.cancel()
        for key in ticket.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(ticket, None)
                if not watchers:
                    del self._watchers[key]

    def changed(self, key: Hashable) -> None:
        """Offer the change of ``key`` to all that watch it."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        if self._held is not None:
            self._held[key] = None
            return
        for ticket in tuple(watchers):
            if ticket in self._tickets:
                self._offer(ticket, key)

    def _offer(self, ticket: Ticket, key: Hashable) -> None:
        operation = ticket.operation
        try:
            if operation.ready(key):
                self.leave(ticket)
                operation.complete()
        except Exception as error:
            self._failed(ticket, error)

    def _failed(self, ticket: Ticket, error: Exception) -> None:
        self._contained.note("an operation that waits", error)
        self.leave(ticket)
        try:
            ticket.operation.abandon()
        except Exception as further:
            self._contained.note("an operation that has failed", further)

    def hold(self) -> None:
        """Keep changes back until ``release``: a producer's answer is made before the fetches that its records
        complete. Not to be nested."""
        assert self._held is None
        self._held = {}

    def release(self) -> None:
        """Offer what has changed since ``hold``."""
        held, self._held = self._held, None
        for key in held or ():
            self.changed(key)

    def close(self) -> None:
        """Abandon every waiting operation, in the order in which they came."""
        while self._tickets:
            ticket = next(iter(self._tickets))
            self.leave(ticket)
            ticket.operation.abandon()
        self.deadlines.close()

    def _expire(self, ticket: Ticket) -> None:
        self.leave(ticket)
        try:
            ticket.operation.expire()
        except Exception as error:
            self._failed(ticket, error)


class OffsetReached:
    """Waits for a high watermark: calls back with True once reached, with False when it is no longer awaited."""

    __slots__ = ("_callback", "_reached")

    def __init__(self, reached: Callable[[], bool | None], callback: Callable[[bool], object]) -> None:
        """``reached`` gives True (there), False (not yet) or None (never: the leadership is lost)."""
        self._reached = reached
        self._callback = callback

    def ready(self, key: Hashable) -> bool:
        return self._reached() is not False

    def complete(self) -> None:
        self._callback(self._reached() is True)

    def expire(self) -> None:
        self._callback(False)

    def abandon(self) -> None:
        self._callback(False)
