"""One end of a simulated connection: it delivers data to the other end in order, through bounded buffers."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from milena.runtime.disk import Bytes
from milena.runtime.network import HIGH_WATER, ConnectionHandler, FileRange, FrameError, Framer, Part

if TYPE_CHECKING:
    from milena.lab.world.network import SimulatedNetwork

WINDOW = 256 * 1024
"""Bytes that the kernels of both sides buffer between sending and reading."""


class SimulatedConnection:
    """Implements ``runtime.network.Connection``."""

    def __init__(self, network: SimulatedNetwork, peer: str, framer: Framer, handler: ConnectionHandler) -> None:
        self.network = network
        self.life = network.life
        self.peer = peer
        self._framer = framer
        self._handler = handler
        self._other: SimulatedConnection
        self._queue: deque[Part] = deque()
        self._sent_of_first = 0
        self._unsent = 0
        self._above_high_water = False
        self._when_sent: Callable[[], None] | None = None
        self._travelling: deque[bytes | None] = deque()
        self._arrived: deque[bytes | None] = deque()
        self._held = 0
        self._last_arrival = 0.0
        self._open = False
        self._closing = False
        self._reading = False
        self._reading_soon = False

    def join(self, other: SimulatedConnection) -> None:
        self._other = other
        other._other = self

    def start(self) -> None:
        self._open = self._reading = True
        self.network.fabric.connections[self] = None
        self._handler.connection_made(self)

    def unsent(self) -> int:
        return self._unsent

    def when_sent(self, callback: Callable[[], None]) -> None:
        self._when_sent = callback

    def unsent_in_memory(self) -> int:
        return sum(len(part) for part in self._queue if not isinstance(part, FileRange))

    def send(self, parts: Sequence[Part]) -> None:
        if not self._open or self._closing:
            return
        was_empty = not self._queue
        for part in parts:
            length = part.length if isinstance(part, FileRange) else len(part)
            if length:
                self._queue.append(part)
                self._unsent += length
        if was_empty and self._queue:
            if self.network.deferred is None:
                self._flush()
            else:
                self.network.deferred.append(self)
        if self._unsent > HIGH_WATER:
            self._above_high_water = True

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and self._open and not self._closing:
            self._reading = True
            self._read_soon()

    def close(self) -> None:
        if self._open and not self._closing:
            self._closing = True
            self._reading = False
            if not self._queue:
                self._end(None)

    def abort(self) -> None:
        self._end(None)

    def vanish(self) -> None:
        """End the connection as in a power loss: the peer is not notified."""
        self._open = False
        self.network.fabric.connections.pop(self, None)

    def vanish_with_reset(self) -> None:
        """End the connection as when the process has ended: its kernel resets the connection."""
        self.vanish()
        self._transmit(None)

    def resume_arrivals(self) -> None:
        """Let waiting data arrive, since a cut was healed."""
        for _ in range(len(self._travelling)):
            self._schedule_arrival()

    def _flush(self) -> None:
        """Pass as many bytes to the simulated kernel as fit, in one piece. A paused process does it when it continues,
        unless it was killed during the pause."""
        if self.life.paused:
            self.life.later(self._flush)
            return
        if not self._open or not self.life.alive:
            return
        pieces: list[Bytes] = []
        failure: OSError | None = None
        while self._queue and self._held < WINDOW and failure is None:
            try:
                piece = self._take(WINDOW - self._held)
            except OSError as error:
                failure = error
            else:
                pieces.append(piece)
                self._held += len(piece)
                self._unsent -= len(piece)
        if pieces:
            self._transmit(b"".join(pieces))
        if failure is not None:
            self._end(failure)
        if not self._open or self._queue:
            return
        if self._when_sent is not None:
            callback, self._when_sent = self._when_sent, None
            callback()
        if self._closing:
            self._end(None)
        elif self._above_high_water:
            self._above_high_water = False
            self._handler.writable()

    def _take(self, limit: int) -> Bytes:
        """Return the next bytes, at most ``limit``. Raises OSError if a file is too short."""
        part = self._queue[0]
        start = self._sent_of_first
        data: Bytes
        if isinstance(part, FileRange):
            wanted = min(limit, part.length - start)
            data = part.handle.pread(wanted, part.position + start)
            if len(data) < wanted:
                raise OSError(errno.EIO, "file is shorter than the range to be sent", part.file.path)
            length = part.length
        else:
            length = len(part)
            data = part if not start and length <= limit else bytes(memoryview(part)[start : start + limit])
        self._sent_of_first = start + len(data)
        if self._sent_of_first == length:
            self._queue.popleft()
            self._sent_of_first = 0
        return data

    def _transmit(self, data: bytes | None) -> None:
        """Send to the other end; None is the end of the stream."""
        self._travelling.append(data)
        self._schedule_arrival()

    def _schedule_arrival(self) -> None:
        fabric = self.network.fabric
        delay = fabric.delay(self.life.name, self._other.life.name)
        self._last_arrival = max(self._last_arrival, fabric.loop.time() + delay)
        fabric.loop.call_at(self._last_arrival, self._arrive)

    def _arrive(self) -> None:
        fabric = self.network.fabric
        if not self._travelling or fabric.is_cut(self.life.name, self._other.life.name):
            return
        data = self._travelling.popleft()
        other = self._other
        if other._open:
            other._arrived.append(data)
            other._read_soon()
        elif self._open and data is not None and fabric.is_up(other.life.name):
            # A machine without power does not answer: the sender must notice by its own time-outs.
            self._end(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _read_soon(self) -> None:
        if self._reading and self._arrived and not self._reading_soon:
            self._reading_soon = True
            self.network.fabric.loop.call_soon(self._read)

    def _read(self) -> None:
        """Handle one wake-up: one read, all frames in it, and then the sends that they caused."""
        if self.life.paused:
            self.life.later(self._read)
            return
        self._reading_soon = False
        if not self._open or not self._reading or not self._arrived:
            return
        data = self._arrived.popleft()
        if data is None:
            self._end(None)
            return
        buffer = self._framer.get_buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        if count < len(data):
            self._arrived.appendleft(data[count:])
        self._note(data[:count])
        self._handle(count)
        self._other._taken(count)
        self._read_soon()

    def _handle(self, count: int) -> None:
        self.network.deferred = deferred = list[SimulatedConnection]()
        failure: Exception | None = None
        try:
            for frame in self._framer.buffer_updated(count):
                self._handler.frame_received(frame)
                if self._closing or not self._open:
                    break
        except FrameError as error:
            failure = error
        except BaseException:
            self.abort()
            raise
        finally:
            self.network.deferred = None
            for connection in deferred:
                connection._flush()
            if failure is not None:
                self._end(failure)

    def _taken(self, count: int) -> None:
        self._held -= count
        if self._open and self._queue:
            self._flush()

    def _note(self, data: bytes) -> None:
        fabric = self.network.fabric
        head = f"{fabric.loop.time():.9f} {self.peer} {self.life.name} {len(data)} "
        fabric.digest.update(head.encode() + data)

    def _end(self, error: Exception | None) -> None:
        if not self._open:
            return
        self._open = self._reading = False
        self._closing = True
        self._queue.clear()
        self._unsent = 0
        self.network.fabric.connections.pop(self, None)
        self._transmit(None)
        self.network.fabric.loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        if self.life.paused:
            self.life.later(lambda: self._lost(error))
        elif self.life.alive:
            self._framer.closed()
            self._handler.connection_lost(error)
