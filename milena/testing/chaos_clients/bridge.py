"""Calls between threads and the event loop: blocking libraries run on threads of their own, and call back from them."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from milena.lab.chaos.clients import Got
from milena.protocol.types import TopicPartition

T = TypeVar("T")
P = ParamSpec("P")

UNDER_WAY = 256
"""The maximum number of records of one partition that a producer has accepted and that have no outcome yet."""
AT_ONCE = 500
"""Maximum records that one poll returns."""
SLICE = 1.0
"""Maximum seconds of one poll in a thread; closing waits for its end."""
LATE = 0.05
"""Seconds by which a poll in a thread may exceed its timeout; its records are then returned by the next poll."""

_NUMBERS = itertools.count(1)


def new_name(kind: str) -> str:
    """Return a name that is unique in this process."""
    return f"{kind} {next(_NUMBERS)}"


def settle(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


class Mailbox:
    """Runs calls of other threads on the loop. Calls that arrive before the loop runs share one wake-up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._due = False

    def post(self, function: Callable[P, object], *arguments: P.args, **_none: P.kwargs) -> None:
        """Call ``function`` on the loop. May be used in any thread. Ignored if the loop has been closed."""
        with self._lock:
            self._calls.append((function, arguments))
            if self._due:
                return
            self._due = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._due = False
        for function, arguments in calls:
            function(*arguments)


class Windows:
    """Backpressure: limits the records of each partition without an outcome. Callers wait in the order of their calls;
    a call below the limit does not suspend."""

    def __init__(self, size: int = UNDER_WAY) -> None:
        self._size = size
        self._windows: dict[TopicPartition, asyncio.Semaphore] = {}

    def of(self, partition: TopicPartition) -> asyncio.Semaphore:
        if partition not in self._windows:
            self._windows[partition] = asyncio.Semaphore(self._size)
        return self._windows[partition]


class Worker:
    """A thread that executes calls one after the other."""

    def __init__(self, name: str) -> None:
        self._mailbox = Mailbox()
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False
        # A daemon, so that the process can end even if a library hangs.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Execute a call in the thread. The future has its result or exception, and is cancelled if the worker has been
        closed. The call is executed even if the future is cancelled."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing:
            future.cancel()
        else:
            self._calls.put((future, lambda: function(*arguments, **named)))
        return future

    async def close(self, seconds: float) -> bool:
        """End the thread after the pending calls. Returns whether it has ended within ``seconds``."""
        self.end()
        await asyncio.wait([self._ended], timeout=seconds)
        if self._ended.done():
            self._thread.join()
        return self._ended.done()

    def end(self) -> None:
        """End the thread after the pending calls, without waiting."""
        if not self._closing:
            self._closing = True
            self._calls.put(None)

    def _run(self) -> None:
        while (work := self._calls.get()) is not None:
            future, function = work
            try:
                result = function()
            except Exception as error:
                self._mailbox.post(_fail, future, error)
            else:
                self._mailbox.post(settle, future, result)
                del result
            del work, future, function  # drop references: some objects must be finalized before the next call
        self._mailbox.post(settle, self._ended, None)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


async def made(worker: Worker, make: Callable[[], T | None], dispose: Callable[[T], object]) -> T:
    """Call ``make`` on the worker until it returns a client; None means that no broker has answered. If the caller is
    cancelled, a client that was created is disposed of, and the worker ends."""
    while True:
        making = worker.call(make)
        try:
            await asyncio.wait([making])
        except asyncio.CancelledError:
            making.add_done_callback(lambda done: _dispose(worker, done, dispose))
            raise
        if (thing := making.result()) is not None:
            return thing


def _dispose(worker: Worker, done: asyncio.Future[T | None], dispose: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None and (thing := done.result()) is not None:
        worker.call(dispose, thing)
    worker.end()


class Polling:
    """Polls in slices, one at a time. If the caller is cancelled, the next call returns the records of the pending
    poll."""

    def __init__(self, begin: Callable[[float], asyncio.Future[list[Got]]]) -> None:
        self._begin = begin
        self._pending: asyncio.Future[list[Got]] | None = None

    async def __call__(self, seconds: float) -> Sequence[Got]:
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while True:
            left = max(0.0, end - now())
            if self._pending is None:
                self._pending = self._begin(min(left, SLICE))
            pending = self._pending
            await asyncio.wait([pending], timeout=left + LATE)
            if not pending.done():
                return ()
            self._pending = None
            if pending.cancelled() or (found := pending.result()) or now() >= end:
                return () if pending.cancelled() else found
