"""The network port: framed connections with synchronous calls in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias, final

from milena.runtime.disk import File, Handle


@final
class FileRange:
    """Bytes of a file that go to the socket without passing through Python.

    The file must be open when the range is created; it may be closed or deleted afterwards, since the range holds its
    handle. If the file is shorter than ``position + length`` when it is sent, the connection is closed.
    """

    __slots__ = ("file", "handle", "length", "position")

    file: File
    position: int
    length: int
    handle: Handle

    def __init__(self, file: File, position: int, length: int, handle: Handle | None = None) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.handle = file.handle() if handle is None else handle

    def part(self, position: int, length: int) -> FileRange:
        """Another range of the same file, which may be closed by now."""
        return FileRange(self.file, position, length, self.handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileRange) and (self.file, self.position, self.length) == (
            other.file,
            other.position,
            other.length,
        )

    def __hash__(self) -> int:
        return hash((self.file, self.position, self.length))

    def __repr__(self) -> str:
        return f"FileRange({self.file!r}, {self.position}, {self.length})"


Part: TypeAlias = bytes | bytearray | memoryview | FileRange


HIGH_WATER: Final = 128 << 10
"""Bytes. After more than this many were unsent, ``writable`` is called once they are sent."""


class FrameError(Exception):
    """The peer's bytes are not valid frames; the connection is closed."""


class Framer(Protocol):
    """Splits a byte stream into frames, sans I/O (``protocol.requests.frames`` implements Kafka's)."""

    def get_buffer(self) -> memoryview:
        """A writable, non-empty buffer for the next bytes. May be shared between connections."""
        ...

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        """Yield each frame completed by ``count`` new bytes. A frame is valid until the iterator is advanced.

        Raises FrameError if the bytes cannot be frames.
        """
        ...

    def closed(self) -> None:
        """The connection is closed; release what is held. Idempotent."""
        ...


class Connection(Protocol):
    """One connected peer."""

    @property
    def peer(self) -> str:
        """``host:port`` of the other side."""
        ...

    def send(self, parts: Sequence[Part]) -> None:
        """Queue parts in order. They are sent immediately, or at the end of the current read if one is being handled
        (one send per wake-up). Does nothing on a closed connection."""
        ...

    def unsent(self) -> int:
        """Bytes queued and not yet accepted by the kernel."""
        ...

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the kernel has accepted everything that is queued, instead of an earlier one that
        was not called yet. It is not called if the connection ends before."""
        ...

    def unsent_in_memory(self) -> int:
        """The part of ``unsent`` that is held in memory, without file ranges."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...

    def abort(self) -> None:
        """Close immediately; what is queued is lost."""
        ...


class ConnectionHandler(Protocol):
    """The callbacks of a connection to its owner. All calls are synchronous and on the loop."""

    def connection_made(self, connection: Connection) -> None: ...

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame without its length. The memory is reused afterwards: copy what must outlive the call. It is
        writable, so that a batch header can be changed in place."""
        ...

    def writable(self) -> None:
        """The send queue was drained after ``unsent()`` had been above HIGH_WATER."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """Called exactly once after connection_made; ``error`` is None if the connection was closed cleanly."""
        ...


class Listener(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stop accepting. Accepted connections stay open."""
        ...


class Network(Protocol):
    """Listening and connecting."""

    async def listen(
        self, host: str, port: int, accept: Callable[[], tuple[Framer, ConnectionHandler]], *, for_nodes: bool = False
    ) -> Listener:
        """Accept connections. Port 0 binds a free one. Raises OSError naming the address if it cannot be bound.

        ``for_nodes``: nodes of the cluster connect here; they may use descriptors that clients may not.
        """
        ...

    async def connect(
        self, host: str, port: int, framer: Framer, handler: ConnectionHandler, *, timeout: float
    ) -> Connection:
        """Connect; connection_made has been called when this returns. Raises OSError for every address that cannot be
        connected to, including UnresolvedHost and TimeoutError."""
        ...
