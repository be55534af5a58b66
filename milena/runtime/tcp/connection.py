"""One connection of the real network: a raw non-blocking socket driven by the loop's readiness callbacks.

No task, stream or future belongs to a connection, so an idle one costs a socket and one small object. Everything that
is sent while a read is handled leaves at the end of it, with one ``sendmsg`` per connection.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from milena.runtime.clock import Timer
from milena.runtime.network import HIGH_WATER, ConnectionHandler, FileRange, FrameError, Framer, Part
from milena.runtime.tcp.addresses import describe

if TYPE_CHECKING:
    from milena.runtime.tcp.sockets import TcpNetwork

BYTES_PER_WAKE_UP: Final = 2 * 1024 * 1024
"""A connection sends at most about this many bytes before the other connections get their turn."""
BYTES_PER_ROUND: Final = 4 * 1024 * 1024
"""Once all connections together have sent this many bytes in one iteration of the loop, each further one sends at most
SMALLEST_SHARE in it."""
SMALLEST_SHARE: Final = 64 * 1024
SMALL_RANGE: Final = 16 * 1024
"""File ranges up to this length are read and sent together with the surrounding memory."""
READ_BYTES_PER_SEND: Final = 256 * 1024
CLOSE_LINGER: Final = 10.0
"""Seconds that a closing connection may take to send what is queued."""
IOV_LIMIT: Final = 1024
# If more data follows from a file, the header waits for its first bytes: one packet, and one wake-up of the peer.
MORE: Final = getattr(socket, "MSG_MORE", 0)


class TcpConnection:
    """Implements ``runtime.network.Connection``."""

    __slots__ = (
        "_above_high_water",
        "_closing",
        "_fd",
        "_framer",
        "_handler",
        "_linger",
        "_network",
        "_queue",
        "_reading",
        "_sent_of_first",
        "_socket",
        "_unsent",
        "_when_sent",
        "_writing",
    )

    def __init__(self, network: TcpNetwork, sock: socket.socket, framer: Framer, handler: ConnectionHandler) -> None:
        self._network = network
        self._socket: socket.socket | None = sock
        self._fd = sock.fileno()
        self._framer = framer
        self._handler = handler
        self._queue: list[Part] = []
        self._sent_of_first = 0
        self._unsent = 0
        self._above_high_water = False
        self._when_sent: Callable[[], None] | None = None
        self._reading = False
        self._writing = False
        self._closing = False
        self._linger: Timer | None = None

    def start(self) -> None:
        self.resume_reading()
        self._handler.connection_made(self)

    @property
    def peer(self) -> str:
        if self._socket is None:
            return "closed"
        try:
            return describe(self._socket.getpeername())
        except OSError:
            return "gone"

    def unsent(self) -> int:
        return self._unsent

    def when_sent(self, callback: Callable[[], None]) -> None:
        self._when_sent = callback

    def unsent_in_memory(self) -> int:
        return sum(len(part) for part in self._queue if not isinstance(part, FileRange))

    def send(self, parts: Sequence[Part]) -> None:
        if self._socket is None or self._closing:
            return
        queue = self._queue
        was_empty = not queue
        for part in parts:
            length = part.length if type(part) is FileRange else len(part)
            if length:
                queue.append(part)
                self._unsent += length
        if was_empty and queue:
            if self._network.deferred is None:
                self._flush()
            else:
                self._network.deferred.append(self)
        if self._unsent > HIGH_WATER:
            self._above_high_water = True

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._network.readiness.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._reading and not self._closing and self._socket is not None:
            self._reading = True
            self._network.readiness.add_reader(self._fd, self._readable)

    def close(self) -> None:
        if self._socket is None or self._closing:
            return
        self._closing = True
        self.pause_reading()
        if self._queue:
            self._linger = self._network.clock.call_later(CLOSE_LINGER, self.abort)
        else:
            self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _readable(self) -> None:
        """One wake-up: one read, all its frames, then one send for each connection that has something to send."""
        buffer = self._framer.get_buffer()
        try:
            count = self._socket.recv_into(buffer)  # type: ignore[union-attr]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as lost:
            self._end(lost)
            return
        if not count:
            self._end(None)
            return
        network = self._network
        deferred: list[TcpConnection] = []
        network.deferred = deferred
        failure: Exception | None = None
        try:
            for frame in self._framer.buffer_updated(count):
                self._handler.frame_received(frame)
                if self._closing or self._socket is None:
                    break
        except FrameError as malformed:
            failure = malformed
        except BaseException as error:
            failure = error if isinstance(error, Exception) else None
            self.abort()
            raise
        finally:
            network.deferred = None
            # The connection that sent the request is flushed last: the others have waited for its data.
            for connection in deferred:
                if connection is not self:
                    connection._flush()
            if self in deferred:
                self._flush()
            if failure is not None:
                self._end(failure)

    def _writable(self) -> None:
        self._flush()

    def _flush(self) -> None:
        """Send until the queue is empty, the kernel accepts no more, or the connection has used its share."""
        if self._socket is None:
            return
        try:
            finished = self._send_queue()
        except (BlockingIOError, InterruptedError):
            finished = False
        except OSError as error:
            self._end(error)
            return
        if not finished:
            if not self._writing:
                self._writing = True
                self._network.readiness.add_writer(self._fd, self._writable)
            return
        if self._writing:
            self._writing = False
            self._network.readiness.remove_writer(self._fd)
        if self._when_sent is not None:
            callback, self._when_sent = self._when_sent, None
            callback()
        if self._closing:
            self._end(None)
        elif self._above_high_water:
            self._above_high_water = False
            self._handler.writable()

    def _send_queue(self) -> bool:
        queue = self._queue
        if self._unsent <= SMALL_RANGE:
            self._send_small()
            return not queue
        network = self._network
        share = max(SMALLEST_SHARE, min(BYTES_PER_WAKE_UP, BYTES_PER_ROUND - network.sent_in_round()))
        before = self._unsent
        try:
            return self._send_share(share)
        finally:
            network.sent += before - self._unsent

    def _send_share(self, budget: int) -> bool:
        queue = self._queue
        while queue:
            if budget <= 0:
                return False
            first = queue[0]
            if type(first) is not FileRange or first.length <= SMALL_RANGE:
                before = self._unsent
                self._send_memory()
                budget -= before - self._unsent
                continue
            sent = self._send_file(first, min(first.length - self._sent_of_first, budget))
            budget -= sent
            self._unsent -= sent
            self._sent_of_first += sent
            if self._sent_of_first == first.length:
                del queue[0]
                self._sent_of_first = 0
        return True

    def _send_small(self) -> None:
        """Send a short queue as one joined buffer: that costs less than sending its parts."""
        queue = self._queue
        data = b"".join(
            [self._read(part, part.position, part.length) if isinstance(part, FileRange) else part for part in queue]
        )
        rest = memoryview(data)[self._sent_of_first :] if self._sent_of_first else data
        sent = self._socket.send(rest)  # type: ignore[union-attr]
        self._unsent -= sent
        if self._unsent:
            queue[:] = [memoryview(rest)[sent:]]
        else:
            queue.clear()
        self._sent_of_first = 0

    def _send_memory(self) -> None:
        """One ``sendmsg`` of the parts up to the next large file range. Small ranges are read, which costs less."""
        parts: list[bytes | bytearray | memoryview] = []
        flags = 0
        budget = READ_BYTES_PER_SEND
        for index, part in enumerate(self._queue):
            if len(parts) == IOV_LIMIT or budget <= 0:
                break
            if isinstance(part, FileRange):
                if part.length > SMALL_RANGE:  # sent next, with sendfile
                    flags = MORE
                    break
                part = self._queue[index] = self._read(part, part.position, part.length)
                budget -= len(part)
            parts.append(part)
        if self._sent_of_first:
            parts[0] = memoryview(parts[0])[self._sent_of_first :]
        sent = self._socket.sendmsg(parts, (), flags)  # type: ignore[union-attr]
        self._unsent -= sent
        count = 0
        for part in parts:
            length = len(part)
            if sent < length:
                break
            sent -= length
            count += 1
        if count:
            del self._queue[:count]
            self._sent_of_first = sent
        else:
            self._sent_of_first += sent

    def _send_file(self, part: FileRange, length: int) -> int:
        position = part.position + self._sent_of_first
        if self._network.use_sendfile:
            sent = os.sendfile(self._fd, part.handle.fileno(), position, length)
        else:
            sent = self._socket.send(self._read(part, position, length))  # type: ignore[union-attr]
        if not sent:
            raise _too_short(part)
        return sent

    def _read(self, part: FileRange, position: int, length: int) -> bytes:
        data = part.handle.pread(length, position)
        if len(data) < length:
            raise _too_short(part)
        return data

    def _end(self, error: Exception | None) -> None:
        """Release the descriptor now; the handler is called from the loop, never inside its own calls."""
        sock = self._socket
        if sock is None:
            return
        self.pause_reading()
        if self._writing:
            self._writing = False
            self._network.readiness.remove_writer(self._fd)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._socket = None
        self._closing = True
        self._queue.clear()
        self._unsent = 0
        self._when_sent = None
        sock.close()
        self._network.loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self._framer.closed()
        self._handler.connection_lost(error)


def _too_short(part: FileRange) -> OSError:
    return OSError(errno.EIO, "file is shorter than the range to be sent", part.file.path)
