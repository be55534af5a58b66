"""Notification that descriptors are readable or writable, on any event loop.

uvloop never reports a connection that the peer has reset: libuv stops watching a descriptor with an error without
calling anything. So on uvloop an epoll instance of our own watches all connections, and the loop watches that epoll,
which has no errors.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Final, Protocol

EVENTS_PER_WAKE_UP: Final = 256
WRITABLE: Final = getattr(select, "EPOLLOUT", 0)
READABLE: Final = getattr(select, "EPOLLIN", 0)

Callback = Callable[[], object]


class Readiness(Protocol):
    """The interface of asyncio's loops. A reader is also called on errors and at the end of the stream."""

    def add_reader(self, fd: int, callback: Callback) -> None: ...

    def remove_reader(self, fd: int) -> object: ...

    def add_writer(self, fd: int, callback: Callback) -> None: ...

    def remove_writer(self, fd: int) -> object: ...


def readiness_of(loop: asyncio.AbstractEventLoop) -> Readiness:
    """Return the loop itself if it reports every descriptor; otherwise, as for uvloop, an ``EpollReadiness`` on top of
    it."""
    if isinstance(loop, asyncio.SelectorEventLoop) or not hasattr(select, "epoll"):
        return loop
    return EpollReadiness(loop)


class EpollReadiness:
    """An epoll inside the loop's. Level-triggered: what is not handled in one wake-up is reported again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        loop.add_reader(self._epoll.fileno(), self._ready)

    def add_reader(self, fd: int, callback: Callback) -> None:
        self._readers[fd] = callback
        self._watch(fd, added=READABLE)

    def remove_reader(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._unwatch(fd)

    def add_writer(self, fd: int, callback: Callback) -> None:
        self._writers[fd] = callback
        self._watch(fd, added=WRITABLE)

    def remove_writer(self, fd: int) -> None:
        if self._writers.pop(fd, None) is not None:
            self._unwatch(fd)

    def _wanted(self, fd: int) -> int:
        return (READABLE if fd in self._readers else 0) | (WRITABLE if fd in self._writers else 0)

    def _watch(self, fd: int, *, added: int) -> None:
        wanted = self._wanted(fd)
        if wanted == added:
            self._epoll.register(fd, wanted)
        else:
            self._epoll.modify(fd, wanted)

    def _unwatch(self, fd: int) -> None:
        wanted = self._wanted(fd)
        if wanted:
            self._epoll.modify(fd, wanted)
        else:
            self._epoll.unregister(fd)

    def _ready(self) -> None:
        """Call the callbacks of ready descriptors. A callback may close other connections: each is looked up again."""
        for fd, events in self._epoll.poll(0, EVENTS_PER_WAKE_UP):
            if events & ~WRITABLE and (reader := self._readers.get(fd)) is not None:
                reader()
            if events & ~READABLE and (writer := self._writers.get(fd)) is not None:
                writer()
