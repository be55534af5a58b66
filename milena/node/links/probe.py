"""Whether something listens at an address: connects, and closes the connection at once."""

from __future__ import annotations

import errno
from typing import Final

from milena.node.framing import KafkaFramer
from milena.protocol.requests.frames import ReceiveBuffers
from milena.protocol.requests.memory_budget import MemoryBudget
from milena.runtime.context import Runtime
from milena.runtime.network import Connection

CONNECT_TIMEOUT: Final = 1.0
"""Seconds."""
MAX_ANSWER: Final = 1 << 20


class Prober:
    """Connects to addresses. The connections share their receive buffers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._buffers = ReceiveBuffers(MemoryBudget(MAX_ANSWER, runtime.clock.monotonic))

    async def error_of(self, host: str, port: int) -> int | None:
        """Return None if a connection is accepted, else the errno."""
        framer = KafkaFramer(self._buffers, MAX_ANSWER)
        try:
            connection = await self._runtime.network.connect(host, port, framer, _Silent(), timeout=CONNECT_TIMEOUT)
        except OSError as error:
            return error.errno or errno.EIO
        connection.close()
        return None


class _Silent:
    """Sends nothing and ignores what it receives."""

    def connection_made(self, connection: Connection) -> None:
        pass

    def frame_received(self, frame: memoryview) -> None:
        pass

    def writable(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        pass
