"""The purgatory: operations that wait until a partition changes or their time runs out (Kafka's
DelayedOperationPurgatory).

An operation watches keys such as partitions. Code that changes a partition (append, high watermark, leadership, log
start, truncation, deletion) calls ``changed``, which completes operations on the loop, in the order in which they began
to wait. If many wait, the rest is completed in later iterations of the loop, so that other requests are served in
between. An unexpected error fails only that operation: neither the caller, which may have appended, nor the other
operations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, Protocol

from milena.broker.waiting.deadlines import Deadline, Deadlines
from milena.protocol.invariants import BrokenInvariant
from milena.runtime.clock import Clock
from milena.runtime.containment import Containment

OPERATIONS_PER_ITERATION: Final = 64
"""Operations that one change completes in one iteration of the loop."""
COMPLETIONS_PER_TURN: Final = 16
"""Completions for one key before the next key is served."""
COMPLETION_COST: Final = 16
"""Cost of one completion, in calls of ``ready`` that return False."""


class Waiting(Protocol):
    """A delayed operation. All methods are synchronous; one of the last three ends it. If ``complete`` or ``expire``
    raises, ``abandon`` follows."""

    def ready(self, key: Hashable) -> bool:
        """Whether it can complete, now that ``key`` has changed. Must change nothing but the operation itself."""
        ...

    def complete(self) -> None:
        """It was ready, and has left the purgatory. This may change partitions."""
        ...

    def expire(self) -> None:
        """The time is up: complete with what there is."""
        ...

    def abandon(self) -> None:
        """The broker stops, the client is gone, or an error ended the operation. Answer with an error if that makes
        sense."""
        ...


class Requester(Protocol):
    """The request of a delayed operation (``node.api.RequestContext``)."""

    forget: Callable[[], object] | None
    """Called when its client is gone."""

    @property
    def closed(self) -> bool:
        """Whether its client is gone."""
        ...

    def lost(self) -> None:
        """The request will not be answered, unless it has been."""
        ...


class Ticket:
    """An operation in the purgatory."""

    __slots__ = ("deadline", "keys", "operation", "requester")

    def __init__(self, operation: Waiting, keys: tuple[Hashable, ...], requester: Requester | None) -> None:
        self.operation = operation
        self.keys = keys
        self.requester = requester
        self.deadline: Deadline | None = None


class Purgatory:
    """Operations by the keys that they watch: partitions, fetch sessions, logs, or keys that stand for several of
    them."""

    def __init__(self, clock: Clock, contained: Containment) -> None:
        self.deadlines = Deadlines(clock)
        self.observer: Callable[[Hashable], object] | None = None
        """Is told each key that has changed, before the operations are."""
        self._contained = contained
        self._clock = clock
        self._rounds: dict[Hashable, Iterator[Ticket]] = {}
        """Keys with many waiting operations, each with an iterator over those not yet checked."""
        self._turns: deque[Hashable] = deque()
        self._again: set[Hashable] = set()
        """Those of them that changed again since their operations were last listed."""
        self._going = False
        self._watchers: dict[Hashable, dict[Ticket, None]] = {}
        self._tickets: dict[Ticket, None] = {}
        self._held: dict[Hashable, None] | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def wait(
        self,
        operation: Waiting,
        keys: Iterable[Hashable],
        seconds: float,
        requester: Requester | None = None,
    ) -> Ticket:
        """Let ``operation`` wait for a change of any of ``keys``, for at most ``seconds`` and no longer than its
        ``requester`` exists: it is abandoned at once if that is gone already."""
        ticket = Ticket(operation, tuple(keys), requester)
        if requester is not None:
            if requester.closed:
                self._abandon(ticket)
                return ticket
            requester.forget = lambda: self._forget(ticket)
        self._tickets[ticket] = None
        for key in ticket.keys:
            self._watchers.setdefault(key, {})[ticket] = None
        ticket.deadline = self.deadlines.after(seconds, lambda: self._expire(ticket))
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Remove an operation without completing it. Idempotent."""
        if ticket not in self._tickets:
            return
        del self._tickets[ticket]
        if ticket.deadline is not None:
            ticket.deadline.cancel()
        if ticket.requester is not None:
            ticket.requester.forget = None
        for key in ticket.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(ticket, None)
                if not watchers:
                    del self._watchers[key]

    def changed(self, key: Hashable) -> None:
        """Check the operations that watch ``key``, which has changed."""
        if self.observer is not None:
            self.observer(key)
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        if self._held is not None:
            self._held[key] = None
            return
        if len(watchers) > OPERATIONS_PER_ITERATION or key in self._rounds:
            self._go_through(key)
            if not self._going:
                self._turns_of_one_go()
            return
        for ticket in tuple(watchers):
            self._look(ticket, key)

    def _look(self, ticket: Ticket, key: Hashable) -> bool:
        """Check one operation. Returns whether it has ended."""
        if ticket not in self._tickets:
            return False
        try:
            if not ticket.operation.ready(key):
                return False
            self.leave(ticket)
            ticket.operation.complete()
        except Exception as error:
            self.fail(ticket, error)
        return True

    def _abandon(self, ticket: Ticket) -> None:
        try:
            ticket.operation.abandon()
        except Exception as error:
            self._contained.note("an operation that is abandoned", error)

    def fail(self, ticket: Ticket, error: Exception) -> None:
        """An error in an operation: it is abandoned, and its client gets an error or is disconnected, whatever else
        fails."""
        self._contained.note("an operation that waits", error)
        self.leave(ticket)
        self._abandon(ticket)
        if ticket.requester is not None:
            ticket.requester.lost()

    def _forget(self, ticket: Ticket) -> None:
        """The client of an operation is gone."""
        if ticket in self._tickets:
            self.leave(ticket)
            self._abandon(ticket)

    def _go_through(self, key: Hashable) -> None:
        """Check all operations that watch ``key``, the oldest first, over as many iterations of the loop as it
        takes."""
        if key in self._rounds:
            self._again.add(key)
        else:
            self._rounds[key] = iter(tuple(self._watchers.get(key, ())))
            self._turns.append(key)

    def _turns_of_one_go(self) -> None:
        """One iteration of the loop: each key with many operations gets its share."""
        self._going = True
        left = OPERATIONS_PER_ITERATION * COMPLETION_COST
        turns = self._turns
        try:
            while turns and left > 0:
                key = turns[0]
                used, ended = self._share(key)
                left -= used
                turns.popleft()
                if not ended:
                    turns.append(key)
                    continue
                del self._rounds[key]
                if key in self._again:
                    self._again.discard(key)
                    self._go_through(key)
        finally:
            self._going = bool(turns)
            if self._going:
                self._clock.call_later(0, self._turns_of_one_go)

    def _share(self, key: Hashable) -> tuple[int, bool]:
        """Check some operations of ``key``. Returns the cost, and whether all have been checked."""
        used = 0
        for ticket in self._rounds[key]:
            used += COMPLETION_COST if self._look(ticket, key) else 1
            if used >= COMPLETIONS_PER_TURN * COMPLETION_COST:
                return used, False
        return used + 1, True

    def hold(self) -> None:
        """Collect changes until ``release``, so that a produce request is answered before the fetches that its records
        complete. Must not be nested."""
        if self._held is not None:
            raise BrokenInvariant(f"{len(self._held)} changes are held back already")
        self._held = {}

    def release(self) -> None:
        """Check the operations of everything that has changed since ``hold``."""
        held, self._held = self._held, None
        left = OPERATIONS_PER_ITERATION
        for key in held or ():
            left -= len(self._watchers.get(key, ()))
            if left >= 0 or len(held or ()) == 1:
                self.changed(key)
            else:
                self._go_through(key)
        if self._turns and not self._going:
            self._turns_of_one_go()

    def close(self) -> None:
        """Abandon every waiting operation, the oldest first."""
        while self._tickets:
            ticket = next(iter(self._tickets))
            self.leave(ticket)
            self._abandon(ticket)
        if self._watchers:
            raise BrokenInvariant(f"{len(self._watchers)} keys are watched when no operation waits")
        self._rounds.clear()
        self._turns.clear()
        self._again.clear()
        self.deadlines.close()

    def _expire(self, ticket: Ticket) -> None:
        self.leave(ticket)
        try:
            ticket.operation.expire()
        except Exception as error:
            self.fail(ticket, error)


class OffsetReached:
    """Waits for a high watermark: calls back with True once it is reached, with False if the wait ends without that."""

    __slots__ = ("_callback", "_reached")

    def __init__(self, reached: Callable[[], bool | None], callback: Callable[[bool], object]) -> None:
        """``reached`` returns True (reached), False (not yet) or None (never: the leadership is lost)."""
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
