"""Framers, handlers and connected pairs for the network's contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from milena.runtime.network import Connection, FrameError, Listener
from tests.contract.worlds import Surroundings


class Lines:
    """Frames that end with a line feed; ``!`` cannot be a frame."""

    def __init__(self) -> None:
        self._buffer = bytearray(64 * 1024)
        self._partial = b""
        self.closed_count = 0

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        *frames, self._partial = (self._partial + bytes(self._buffer[:count])).split(b"\n")
        for frame in frames:
            if frame == b"!":
                raise FrameError("not a frame")
            yield memoryview(bytearray(frame))

    def closed(self) -> None:
        self.closed_count += 1


class Chunks(Lines):
    """A framer without frames: each piece of received bytes is passed on as it arrives."""

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        yield memoryview(self._buffer)[:count]


class Peer:
    """A handler that records every callback of its connection, and lets a test wait for them."""

    def __init__(self, *, chunks: bool = False, on_frame: Callable[[Peer, bytes], None] | None = None) -> None:
        self.framer = Chunks() if chunks else Lines()
        self.frames: list[bytes] = []
        self.bytes_received = 0
        self.writable_count = 0
        self.lost: list[Exception | None] = []
        self.connection: Connection
        self._on_frame = on_frame
        self._changed = asyncio.Event()

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection
        self._changed.set()

    def frame_received(self, frame: memoryview) -> None:
        self.bytes_received += len(frame)
        data = bytes(frame)
        self.frames.append(data)
        if self._on_frame is not None:
            self._on_frame(self, data)
        self._changed.set()

    def writable(self) -> None:
        self.writable_count += 1
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)
        self._changed.set()

    def abort(self) -> None:
        self.connection.abort()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the recorded callbacks make ``condition`` true."""
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def connected(it: Surroundings, server: Peer, client: Peer) -> Listener:
    """Connect two peers over the loopback address; both connections are closed at the end of the scenario."""
    listener = await it.runtime.network.listen("127.0.0.1", 0, lambda: (server.framer, server))
    await it.runtime.network.connect("127.0.0.1", listener.port, client.framer, client, timeout=5)
    await server.until(lambda: hasattr(server, "connection"))
    it.ending(listener.close, server.abort, client.abort)
    return listener
