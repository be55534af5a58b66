"""The purgatory: operations that wait until a partition changes or their time runs out (Kafka's
DelayedOperationPurgatory).

An operation watches keys such as partitions. Code that changes a partition (append, high watermark, leadership, log
start, truncation, deletion) calls ``changed``, which completes operations in the order in which they began to wait. If
many operations wait, some are completed in later iterations of the event loop, so that other requests are served in
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
"""The maximum number of operations that are completed in one iteration of the loop, if more than these watch a key."""
COMPLETIONS_PER_TURN: Final = 16
"""Completions for one key before the next key is served."""
COMPLETION_COST: Final = 16
"""Cost of one completion, in calls of ``ready`` that return False."""


class DelayedOperation(Protocol):
    """An operation that waits in the purgatory (Kafka's DelayedOperation). All methods are synchronous. The operation
    ends with ``complete``, ``expire`` or ``abandon``; if one of the first two raises, ``abandon`` follows."""

    def ready(self, key: Hashable) -> bool:
        """Whether the operation can complete, now that ``key`` has changed. It must not change anything else."""
        ...

    def complete(self) -> None:
        """Complete the operation, which was ready and has left the purgatory. This may change partitions."""
        ...

    def expire(self) -> None:
        """Complete the operation after its timeout, with the present result."""
        ...

    def abandon(self) -> None:
        """End the operation: the broker stops, the client has disconnected, or an error occurred. Answer with an error
        if possible."""
        ...


class Requester(Protocol):
    """The request of a delayed operation (``node.api.RequestContext``)."""

    forget: Callable[[], object] | None
    """Called when the client disconnects."""

    @property
    def closed(self) -> bool:
        """Whether the client has disconnected."""
        ...

    def lost(self) -> None:
        """Close the connection of a request that cannot be answered, unless it has been answered."""
        ...


class Ticket:
    """An operation in the purgatory."""

    __slots__ = ("deadline", "keys", "operation", "requester")

    def __init__(self, operation: DelayedOperation, keys: tuple[Hashable, ...], requester: Requester | None) -> None:
        self.operation = operation
        self.keys = keys
        self.requester = requester
        self.deadline: Deadline | None = None


class Purgatory:
    """Waiting operations by the keys that they watch: partitions, fetch sessions, logs, ``FollowerFetches``."""

    def __init__(self, clock: Clock, contained: Containment) -> None:
        self.deadlines = Deadlines(clock)
        self.observer: Callable[[Hashable], object] | None = None
        """Called with each changed key before its operations are checked."""
        self._contained = contained
        self._clock = clock
        self._unchecked: dict[Hashable, Iterator[Ticket]] = {}
        """Changed keys with many operations, each with an iterator over the operations not yet checked."""
        self._queue: deque[Hashable] = deque()
        """The keys of ``_unchecked``, in the order in which they are served."""
        self._changed_again: set[Hashable] = set()
        """The keys of ``_unchecked`` that have changed since the iterator was created."""
        self._is_scheduled = False
        """Whether ``_run_iteration`` runs or is scheduled."""
        self._watchers: dict[Hashable, dict[Ticket, None]] = {}
        self._tickets: dict[Ticket, None] = {}
        self._held: dict[Hashable, None] | None = None
        """The keys that have changed since ``hold``; None if changes are not held."""

    def __len__(self) -> int:
        return len(self._tickets)

    def wait(
        self,
        operation: DelayedOperation,
        keys: Iterable[Hashable],
        seconds: float,
        requester: Requester | None = None,
    ) -> Ticket:
        """Let ``operation`` wait for a change of any of ``keys``, for at most ``seconds``. It is abandoned if the
        client of ``requester`` disconnects, within this call if it has disconnected already."""
        ticket = Ticket(operation, tuple(keys), requester)
        if requester is not None:
            if requester.closed:
                self._abandon(ticket)
                return ticket
            requester.forget = lambda: self._client_gone(ticket)
        self._tickets[ticket] = None
        for key in ticket.keys:
            self._watchers.setdefault(key, {})[ticket] = None
        ticket.deadline = self.deadlines.after(seconds, lambda: self._expire(ticket))
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Remove an operation without completing it, if it is still waiting."""
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
        if len(watchers) > OPERATIONS_PER_ITERATION or key in self._unchecked:
            self._check_cooperatively(key)
            if not self._is_scheduled:
                self._run_iteration()
            return
        for ticket in tuple(watchers):
            self._check(ticket, key)

    def _check(self, ticket: Ticket, key: Hashable) -> bool:
        """Check one operation, and complete it if it is ready. Returns whether it has ended."""
        if ticket not in self._tickets:
            return False
        try:
            if not ticket.operation.ready(key):
                return False
            if ticket not in self._tickets:  # what ``ready`` has read failed, and that has completed the operation
                return True
            self.leave(ticket)
            ticket.operation.complete()
        except Exception as error:
            self.fail(ticket, error)
        return True

    def _abandon(self, ticket: Ticket) -> None:
        try:
            ticket.operation.abandon()
        except Exception as error:
            self._contained.note("abandoned operation", error)

    def fail(self, ticket: Ticket, error: Exception) -> None:
        """Abandon an operation after an unexpected error. If ``abandon`` does not answer the client, it is
        disconnected."""
        self._contained.note("delayed operation", error)
        self.leave(ticket)
        self._abandon(ticket)
        if ticket.requester is not None:
            ticket.requester.lost()

    def _client_gone(self, ticket: Ticket) -> None:
        """Abandon an operation whose client has disconnected."""
        if ticket in self._tickets:
            self.leave(ticket)
            self._abandon(ticket)

    def _check_cooperatively(self, key: Hashable) -> None:
        """Check all operations that watch ``key``, oldest first, in as many iterations of the loop as needed."""
        if key in self._unchecked:
            self._changed_again.add(key)
        else:
            self._unchecked[key] = iter(tuple(self._watchers.get(key, ())))
            self._queue.append(key)

    def _run_iteration(self) -> None:
        """Check some operations of each queued key until the budget of this iteration is used; schedule the next
        iteration if any key remains."""
        self._is_scheduled = True
        budget = OPERATIONS_PER_ITERATION * COMPLETION_COST
        queue = self._queue
        try:
            while queue and budget > 0:
                key = queue[0]
                cost, ended = self._check_some(key)
                budget -= cost
                queue.popleft()
                if not ended:
                    queue.append(key)
                    continue
                del self._unchecked[key]
                if key in self._changed_again:
                    self._changed_again.discard(key)
                    self._check_cooperatively(key)
        finally:
            self._is_scheduled = bool(queue)
            if self._is_scheduled:
                self._clock.call_later(0, self._run_iteration)

    def _check_some(self, key: Hashable) -> tuple[int, bool]:
        """Check operations of ``key`` until the budget of one key is used. Returns the cost, and whether all operations
        have been checked."""
        cost = 0
        for ticket in self._unchecked[key]:
            cost += COMPLETION_COST if self._check(ticket, key) else 1
            if cost >= COMPLETIONS_PER_TURN * COMPLETION_COST:
                return cost, False
        return cost + 1, True

    def hold(self) -> None:
        """Collect changes until ``release``, so that a Produce request is answered before the fetches that its records
        complete. Raises BrokenInvariant if it is nested."""
        if self._held is not None:
            raise BrokenInvariant(f"changes are held already: {len(self._held)} keys")
        self._held = {}

    def release(self) -> None:
        """Check the operations of everything that has changed since ``hold``."""
        held, self._held = self._held, None
        budget = OPERATIONS_PER_ITERATION
        for key in held or ():
            # One key is checked at once however many operations it has: ``changed`` limits that itself.
            budget -= len(self._watchers.get(key, ()))
            if budget >= 0 or len(held or ()) == 1:
                self.changed(key)
            else:
                self._check_cooperatively(key)
        if self._queue and not self._is_scheduled:
            self._run_iteration()

    def close(self) -> None:
        """Abandon every waiting operation, oldest first."""
        while self._tickets:
            ticket = next(iter(self._tickets))
            self.leave(ticket)
            self._abandon(ticket)
        if self._watchers:
            raise BrokenInvariant(f"{len(self._watchers)} keys are watched although no operation waits")
        self._unchecked.clear()
        self._queue.clear()
        self._changed_again.clear()
        self.deadlines.close()

    def _expire(self, ticket: Ticket) -> None:
        self.leave(ticket)
        try:
            ticket.operation.expire()
        except Exception as error:
            self.fail(ticket, error)


class OffsetReached:
    """Waits for a high watermark: calls ``callback`` with True once it is reached, with False if the wait ends before
    that."""

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
