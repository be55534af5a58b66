"""The purgatory: operations that wait for a partition to change, or for their time to run out.

Kafka's DelayedOperationPurgatory. An operation watches partitions; whoever changes one (append, high watermark,
leadership, log start, truncation, deletion) calls ``changed``. Operations are completed on the loop by the caller
of ``changed``, in the order in which they began to wait. If many wait, the rest is completed in later iterations of the
loop, so that other requests are served in between. An unexpected error fails only that operation, not the caller, which
may have appended, nor the others that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, Protocol

from milena.broker.waiting.deadlines import Deadline, Deadlines
from milena.protocol.invariants import BrokenInvariant
from milena.runtime.clock import Clock
from milena.runtime.containment import Containment

AT_ONCE: Final = 64
"""Operations that one change completes at once."""
COMPLETIONS_PER_TURN: Final = 16
"""Completions for one key before the next key gets its turn."""
COMPLETION_COST: Final = 16
"""Cost of one completion, in calls of ``ready`` that return False."""


class Waiting(Protocol):
    """An operation that waits. All calls are synchronous; one of the last three ends it. If ``complete`` or
    ``expire`` raises, ``abandon`` follows."""

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
        """The broker stops, who asked is gone, or an error ended it; answer with an error if that makes sense."""
        ...


class Requester(Protocol):
    """A request for which an operation waits (``node.api.RequestContext``)."""

    forget: Callable[[], object] | None
    """To be called when its client is gone."""

    def lost(self) -> None:
        """Nobody will answer it, if nobody has."""
        ...


class Ticket:
    """One operation's place in the purgatory."""

    __slots__ = ("deadline", "keys", "operation", "requester")

    def __init__(self, operation: Waiting, keys: tuple[Hashable, ...], requester: Requester | None) -> None:
        self.operation = operation
        self.keys = keys
        self.requester = requester
        self.deadline: Deadline | None = None


class Purgatory:
    """Operations by the keys they watch: partitions, fetch sessions, logs, or values that stand for several of them."""

    def __init__(self, clock: Clock, contained: Containment) -> None:
        self.deadlines = Deadlines(clock)
        self._contained = contained
        self._clock = clock
        self._rounds: dict[Hashable, Iterator[Ticket]] = {}
        """Keys with many waiting operations, each with an iterator over those not yet checked."""
        self._turns: deque[Hashable] = deque()
        self._again: set[Hashable] = set()
        """Those that have changed since their round began."""
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
        """Let ``operation`` wait for a change of any of ``keys`` for at most ``seconds``, and no longer than its
        ``requester`` is there."""
        ticket = Ticket(operation, tuple(keys), requester)
        if requester is not None:
            requester.forget = lambda: self._forget(ticket)
        self._tickets[ticket] = None
        for key in ticket.keys:
            self._watchers.setdefault(key, {})[ticket] = None
        ticket.deadline = self.deadlines.after(seconds, lambda: self._expire(ticket))
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Take an operation out without completing it. Idempotent."""
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
        """Offer the change of ``key`` to all that watch it."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        if self._held is not None:
            self._held[key] = None
            return
        if len(watchers) > AT_ONCE or key in self._rounds:
            self._go_through(key)
            if not self._going:
                self._turns_of_one_go()
            return
        for ticket in tuple(watchers):
            self._look(ticket, key)

    def _look(self, ticket: Ticket, key: Hashable) -> bool:
        """Whether the operation has ended."""
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
        """An error in an operation: it is abandoned. Who asked hears of it, whatever else goes wrong."""
        self._contained.note("an operation that waits", error)
        self.leave(ticket)
        self._abandon(ticket)
        if ticket.requester is not None:
            ticket.requester.lost()

    def _forget(self, ticket: Ticket) -> None:
        """Who asked is gone."""
        if ticket in self._tickets:
            self.leave(ticket)
            self._abandon(ticket)

    def _go_through(self, key: Hashable) -> None:
        """All that watch ``key`` have their turn, those who came first first."""
        if key in self._rounds:
            self._again.add(key)
        else:
            self._rounds[key] = iter(tuple(self._watchers.get(key, ())))
            self._turns.append(key)

    def _turns_of_one_go(self) -> None:
        """Each crowd has a share; the rest has later goes."""
        self._going = True
        left = AT_ONCE * COMPLETION_COST
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
        """The looks that were used, and whether the round has ended."""
        used = 0
        for ticket in self._rounds[key]:
            used += COMPLETION_COST if self._look(ticket, key) else 1
            if used >= COMPLETIONS_PER_TURN * COMPLETION_COST:
                return used, False
        return used + 1, True

    def hold(self) -> None:
        """Keep changes back until ``release``: a producer's answer is made before the fetches that its records
        complete. Not to be nested."""
        if self._held is not None:
            raise BrokenInvariant(f"{len(self._held)} changes are held back already")
        self._held = {}

    def release(self) -> None:
        """Offer what has changed since ``hold``."""
        held, self._held = self._held, None
        left = AT_ONCE
        for key in held or ():
            left -= len(self._watchers.get(key, ()))
            if left >= 0 or len(held or ()) == 1:
                self.changed(key)
            else:
                self._go_through(key)
        if self._turns and not self._going:
            self._turns_of_one_go()

    def close(self) -> None:
        """Abandon every waiting operation, in the order in which they came."""
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
