"""The network port: framed connections with synchronous calls in both directions."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from milena.runtime.disk import File, Handle
from milena.runtime.hosts import shown


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a file that go to the socket without passing through Python.

    The file must be open when the range is made; it may be closed or deleted afterwards: the range holds its handle.
    If the file is shorter than ``position + length`` when it is sent, the connection is closed.
    """

    file: File
    position: int
    length: int
    handle: Handle = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "handle", self.file.handle())

    def part(self, position: int, length: int) -> FileRange:
        """Other bytes of the same file, which may be closed by now."""
        part = object.__new__(FileRange)
        for name, value in (("file", self.file), ("position", position), ("length", length), ("handle", self.handle)):
            object.__setattr__(part, name, value)
        return part


Part: TypeAlias = bytes | bytearray | memoryview | FileRange


HIGH_WATER: Final = 128 << 10
"""Bytes. Once more than this are unsent, ``writable`` tells when they have gone."""


class UnresolvedHost(OSError):
    """The name of an address that cannot be looked up, whatever is wrong with it."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(errno.EADDRNOTAVAIL, f"cannot resolve {shown(host)}: {why}")


class FrameError(Exception):
    """The peer's bytes are no frames; the connection is closed."""


class Framer(Protocol):
    """Cuts a byte stream into frames, sans I/O (``protocol.requests.frames`` has Kafka's)."""

    def get_buffer(self) -> memoryview:
        """A writable, non-empty buffer for the next bytes. May be shared between connections."""
        ...

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        """Yield each frame completed by ``count`` new bytes. A frame is valid until the iterator goes on.

        Raises FrameError where the bytes cannot be frames.
        """
        ...

    def closed(self) -> None:
        """The connection is gone; give back what is held. Idempotent."""
        ...


class Connection(Protocol):
    """One connected peer."""

    @property
    def peer(self) -> str:
        """``host:port`` of the other side."""
        ...

    def send(self, parts: Sequence[Part]) -> None:
        """Queue parts in order. They leave at once, or at the end of the current read where one is being handled
        (one send per wake-up). No effect on a closed connection."""
        ...

    def unsent(self) -> int:
        """Bytes queued and not yet taken by the kernel."""
        ...

    def unsent_in_memory(self) -> int:
        """Those of them that are no ranges of files."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...

    def abort(self) -> None:
        """Close now; what is queued is lost."""
        ...


class ConnectionHandler(Protocol):
    """What a connection tells its owner. All calls are synchronous and on the loop."""

    def connection_made(self, connection: Connection) -> None: ...

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame without its length. The memory is reused afterwards: copy what outlives the call.
        It is writable, so that a batch header can be changed in place."""
        ...

    def writable(self) -> None:
        """The send queue has drained after ``unsent()`` was above HIGH_WATER."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """Called exactly once after connection_made; ``error`` is None for an orderly end."""
        ...


class Listener(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stop accepting. Accepted connections stay."""
        ...


class Network(Protocol):
    """Listening and connecting."""

    async def listen(
        self, host: str, port: int, accept: Callable[[], tuple[Framer, ConnectionHandler]], *, for_nodes: bool = False
    ) -> Listener:
        """Accept connections. Port 0 takes a free one. Raises OSError naming the address where it cannot bind.

        ``for_nodes``: nodes of the cluster come here, which may use descriptors that clients may not."""
        ...

    async def connect(
        self, host: str, port: int, framer: Framer, handler: ConnectionHandler, *, timeout: float
    ) -> Connection:
        """Connect; connection_made has been called when this returns. Raises OSError whatever the address is, among
        them UnresolvedHost and TimeoutError."""
        ...
