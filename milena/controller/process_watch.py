"""Detects that a broker's process has ended before its session expires (not in Kafka; docs/decisions has the reasons).

That the connection of a broker's heartbeats closed is a hint. The proof is that connections to the listeners of that
incarnation are refused. While the broker was unfenced, the controller connected to its listeners once; all of those
that accepted must now refuse, twice in a row. After any other result, such as a timeout, the broker keeps its session.

A restarted process may listen again when the controller checks. It is taken as the successor if it registers the same
addresses from the same host: two processes cannot listen there at the same time.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from milena.controller.commands.brokers import Registration
from milena.controller.state.state import ControllerState
from milena.node.api import Caller
from milena.node.links.probe import Prober
from milena.node.metadata.image import BrokerImage
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks

PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Seconds before each check: a dying process may close its connections before its listeners."""
REFUSALS: Final = 2
"""Checks in a row in which all listeners must refuse."""

Address = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Watched:
    """One incarnation. ``caller``: the connection of its last heartbeat; ``gone``: it has closed."""

    broker: int
    epoch: int
    caller: Caller
    beats: int = 0
    gone: bool = False
    proving: bool = False
    seen_listening: tuple[Address, ...] = ()
    unreachable: bool = False
    """Not logged yet: no address accepted a connection."""


class ProcessWatch:
    """Watches the connections of heartbeats. ``fence`` is called once for a broker whose process has ended."""

    def __init__(
        self, runtime: Runtime, tasks: Tasks, state: ControllerState, fence: Callable[[BrokerImage], None]
    ) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._state = state
        self._fence = fence
        self._watched: dict[int, _Watched] = {}
        self._prober = Prober(runtime)
        self._closed = False
        self._log = get_logger("controller")

    def close(self) -> None:
        """Ignore connections that close from now on. Idempotent."""
        self._closed = True

    def heartbeat_received(self, broker_id: int, epoch: int, caller: Caller) -> None:
        """Record that a heartbeat of this incarnation came over ``caller``."""
        watched = self._watched.get(broker_id)
        if watched is None or watched.epoch != epoch:
            watched = self._watched[broker_id] = _Watched(broker_id, epoch, caller)
            caller.on_disconnect(lambda: self._lost(watched, caller))
        elif watched.caller is not caller:
            watched.caller, watched.gone = caller, False
            caller.on_disconnect(lambda: self._lost(watched, caller))
        watched.beats += 1
        broker = self._unfenced(watched)
        if broker is not None and not watched.proving:
            watched.proving = True
            self._tasks.attempt(self._prove(watched, broker), name=f"probe listeners of broker {broker_id}")
        if broker is not None and watched.unreachable and len(self._state.image.brokers) > 1:
            watched.unreachable = False
            self._log.warning(
                "broker unreachable at its advertised addresses",
                broker=watched.broker,
                advertised=[f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints],
            )

    def succeeds(self, request: Registration, host: str) -> bool:
        """Return whether the request registers the successor of an incarnation whose process has ended."""
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
        """Return the registration of this incarnation if it is unfenced, else None."""
        broker = self._state.image.brokers.get(watched.broker)
        if broker is None or broker.epoch != watched.epoch or broker.fenced:
            return None
        return broker

    async def _prove(self, watched: _Watched, broker: BrokerImage) -> None:
        """Record which listeners accept connections. An address that is unreachable from here cannot be a proof
        later."""
        seen = []
        for endpoint in broker.endpoints:
            if await self._prober.error_of(endpoint.host, endpoint.port) is None:
                seen.append((endpoint.host, endpoint.port))
        if not watched.gone:
            watched.seen_listening = tuple(seen)
        # A single broker may advertise an address for its clients only, such as a published port of a container.
        watched.unreachable = not watched.gone and not seen

    def _lost(self, watched: _Watched, caller: Caller) -> None:
        if watched.caller is not caller or self._closed:
            return
        watched.gone = True
        if self._watched.get(watched.broker) is watched and watched.seen_listening and self._unfenced(watched):
            self._tasks.attempt(self._check(watched), name=f"check that broker {watched.broker} has ended")

    async def _check(self, watched: _Watched) -> None:
        refused = 0
        for pause in PAUSES:
            await self._runtime.clock.sleep(pause)
            refused = refused + 1 if await self._all_refuse(watched) else 0
            broker = self._unfenced(watched)
            if not watched.gone or broker is None:
                return
            if refused == REFUSALS:
                self._fence(broker)
                return

    async def _all_refuse(self, watched: _Watched) -> bool:
        for address in watched.seen_listening:
            if await self._prober.error_of(*address) != errno.ECONNREFUSED:
                return False
        return True
