"""Noticing that a broker's process has gone before its session has run out (Milena's own; docs/decisions says why).

The end of the connection that carried a broker's heartbeats is a hint, no proof. The proof is that nobody listens any
more where that very incarnation was seen listening: while it was unfenced the controller has connected to its
listeners, and those that took the connection must now refuse it, all of them and twice. Anything else, a time-out or
another error among them, leaves the broker to its session.

A process that was started anew may listen already when the controller looks. It is believed to be the successor when
it registers the same addresses from the same host: two processes cannot listen there at once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from milena.controller.commands.brokers import Registration
from milena.controller.state.state import ControllerState
from milena.node.api import Caller
from milena.node.framing import KafkaFramer
from milena.node.metadata.image import BrokerImage
from milena.protocol.requests.frames import ReceiveBuffers
from milena.protocol.requests.memory_budget import MemoryBudget
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.network import Connection
from milena.runtime.tasks import Tasks

CONNECT_TIMEOUT: Final = 1.0
PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Seconds before each look: a dying process may close its connections before its listeners."""
REFUSALS: Final = 2
"""Looks in a row that must find nobody."""
MAX_ANSWER: Final = 1 << 20

Address = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Watched:
    """One incarnation. ``caller`` is the connection of its last heartbeat; ``gone`` says that it has ended."""

    broker: int
    epoch: int
    caller: Caller
    beats: int = 0
    gone: bool = False
    proving: bool = False
    seen_listening: tuple[Address, ...] = ()


class ProcessWatch:
    """Watches the connections of heartbeats. ``fence`` is called, once, for a broker whose process has gone."""

    def __init__(
        self, runtime: Runtime, tasks: Tasks, state: ControllerState, fence: Callable[[BrokerImage], None]
    ) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._state = state
        self._fence = fence
        self._watched: dict[int, _Watched] = {}
        self._buffers = ReceiveBuffers(MemoryBudget(MAX_ANSWER, runtime.clock.monotonic))
        self._closed = False
        self._log = get_logger("controller")

    def close(self) -> None:
        """What ends from now on says nothing. Idempotent."""
        self._closed = True

    def heard(self, broker_id: int, epoch: int, caller: Caller) -> None:
        """A heartbeat of this incarnation was taken; it came over ``caller``."""
        watched = self._watched.get(broker_id)
        if watched is None or watched.epoch != epoch:
            watched = self._watched[broker_id] = _Watched(broker_id, epoch, caller)
            caller.when_gone(lambda: self._lost(watched, caller))
        elif watched.caller is not caller:
            watched.caller, watched.gone = caller, False
            caller.when_gone(lambda: self._lost(watched, caller))
        watched.beats += 1
        broker = self._unfenced(watched)
        if broker is not None and not watched.proving:
            watched.proving = True
            self._tasks.attempt(self._prove(watched, broker), name=f"see broker {broker_id} listening")

    def succeeds(self, request: Registration, host: str) -> bool:
        """Whether a registering incarnation is the successor of the registered one, which has gone."""
        former = self._state.image.brokers.get(request.broker_id)
        watched = self._watched.get(request.broker_id)
        return (
            former is not None
            and watched is not None
            and watched.epoch == former.epoch
            and watched.gone
            and former.incarnation != request.incarnation
            and former.endpoints == request.endpoints
            and watched.caller.client_host == host
        )

    def _unfenced(self, watched: _Watched) -> BrokerImage | None:
        """The registration of this very incarnation, if it is unfenced."""
        broker = self._state.image.brokers.get(watched.broker)
        if broker is None or broker.epoch != watched.epoch or broker.fenced:
            return None
        return broker

    async def _prove(self, watched: _Watched, broker: BrokerImage) -> None:
        """See where it listens: an address that cannot be reached from here proves nothing later."""
        seen = []
        for endpoint in broker.endpoints:
            if await self._connect((endpoint.host, endpoint.port)) is None:
                seen.append((endpoint.host, endpoint.port))
        if not watched.gone:
            watched.seen_listening = tuple(seen)
        if not watched.gone and not seen:
            self._log.warning(
                "a broker is not reached at any address that it advertises; others may not reach it either",
                broker=watched.broker,
                advertised=[f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints],
            )

    def _lost(self, watched: _Watched, caller: Caller) -> None:
        if watched.caller is not caller or self._closed:
            return
        watched.gone = True
        if self._watched.get(watched.broker) is watched and watched.seen_listening and self._unfenced(watched):
            self._tasks.attempt(self._look(watched), name=f"look for broker {watched.broker}")

    async def _look(self, watched: _Watched) -> None:
        refused = 0
        for pause in PAUSES:
            await self._runtime.clock.sleep(pause)
            refused = refused + 1 if await self._nobody_listens(watched) else 0
            broker = self._unfenced(watched)
            if not watched.gone or broker is None:
                return
            if refused == REFUSALS:
                self._fence(broker)
                return

    async def _nobody_listens(self, watched: _Watched) -> bool:
        for address in watched.seen_listening:
            if await self._connect(address) != errno.ECONNREFUSED:
                return False
        return True

    async def _connect(self, address: Address) -> int | None:
        """None where somebody took the connection, which is closed again; else the error's number."""
        framer = KafkaFramer(self._buffers, MAX_ANSWER)
        try:
            connection = await self._runtime.network.connect(*address, framer, _Silent(), timeout=CONNECT_TIMEOUT)
        except OSError as error:
            return error.errno or errno.EIO
        connection.close()
        return None


class _Silent:
    """Says nothing and hears nothing."""

    def connection_made(self, connection: Connection) -> None:
        pass

    def frame_received(self, frame: memoryview) -> None:
        pass

    def writable(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        pass
