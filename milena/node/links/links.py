"""Connections between nodes ("links") that can be cut: a decorator of the network port for nodes in the lab.

A cut link delivers no data and closes no connection. Data that this node sends is buffered here; data that the peer
sends is buffered here and in the kernels, until the link is healed or one side times out. Connecting over a cut link
times out. ``direction`` makes a half-open connection: ``in`` is data from the peer, ``out`` data to it.

For a connection that this node opened, the peer is identified by its address (``node_at``); for an accepted one, by the
client id of its first request. So a peer can still connect to this node's kernel over a cut link, and waits for its
first answer.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from enum import Flag

from milena.node.rules.rules import is_peer
from milena.protocol.requests.headers import parse_request_header
from milena.protocol.schemas.undecodable import DecodeError
from milena.runtime.clock import Clock
from milena.runtime.network import (
    HIGH_WATER,
    Connection,
    ConnectionHandler,
    FileRange,
    Framer,
    Listener,
    Network,
    Part,
)


class Direction(Flag):
    """The directions of a link that are cut."""

    NONE = 0
    IN = 1
    OUT = 2
    BOTH = 3


class Links:
    """Implements ``runtime.network.Network`` as a decorator. ``node_at``: the node at an address, if known."""

    def __init__(
        self, network: Network, clock: Clock, node_at: Callable[[str, int], int | None] = lambda host, port: None
    ) -> None:
        self.node_at = node_at
        self._network = network
        self._clock = clock
        self._cuts: dict[str, Direction] = {}
        self._connections: dict[LinkConnection, None] = {}
        self._healed = asyncio.Event()

    # -- lab commands

    def cut(self, peer: str | int, direction: str = "both") -> list[dict[str, object]]:
        self._cuts[str(peer)] = self._cuts.get(str(peer), Direction.NONE) | Direction[direction.upper()]
        self._apply_cuts()
        return self.links()

    def heal(self, peer: str | int | None = None) -> list[dict[str, object]]:
        if peer is None:
            self._cuts.clear()
        else:
            self._cuts.pop(str(peer), None)
        self._healed.set()
        self._apply_cuts()
        return self.links()

    def links(self) -> list[dict[str, object]]:
        return [
            {
                "peer": peer,
                "direction": str(direction.name).lower(),
                "connections": sum(connection.is_of(peer) for connection in self._connections),
            }
            for peer, direction in self._cuts.items()
        ]

    def _apply_cuts(self) -> None:
        for connection in list(self._connections):
            connection.apply_cuts()

    # -- called by connections

    def cut_to(self, name: str | None) -> Direction:
        """The directions of the link to a peer with this client id or node id that are cut."""
        directions = Direction.NONE
        for peer, direction in self._cuts.items():
            if is_peer(peer, name):
                directions |= direction
        return directions

    def call_soon(self, call: Callable[[], object]) -> None:
        self._clock.call_later(0, call)

    def add(self, connection: LinkConnection) -> None:
        self._connections[connection] = None

    def remove(self, connection: LinkConnection) -> None:
        self._connections.pop(connection, None)

    # -- the network port

    async def listen(
        self, host: str, port: int, accept: Callable[[], tuple[Framer, ConnectionHandler]], *, for_nodes: bool = False
    ) -> Listener:
        def accept_link() -> tuple[Framer, ConnectionHandler]:
            framer, handler = accept()
            return framer, LinkConnection(self, handler, None)

        return await self._network.listen(host, port, accept_link, for_nodes=for_nodes)

    async def connect(
        self, host: str, port: int, framer: Framer, handler: ConnectionHandler, *, timeout: float
    ) -> Connection:
        link = LinkConnection(self, handler, (host, port))
        deadline = self._clock.monotonic() + timeout
        try:
            async with asyncio.timeout(timeout):
                while link.is_cut():
                    self._healed.clear()
                    await self._healed.wait()
        except TimeoutError:
            message = f"connecting to {host}:{port} took longer than {timeout:g} s"
            raise TimeoutError(errno.ETIMEDOUT, message) from None
        left = max(deadline - self._clock.monotonic(), 0.001)
        await self._network.connect(host, port, framer, link, timeout=left)
        return link


class LinkConnection:
    """Sits between a connection of the network and its owner: a handler for the network, a connection for the owner."""

    __slots__ = (
        "_address",
        "_arrived",
        "_client_id",
        "_cut",
        "_detached",
        "_ended",
        "_handler",
        "_links",
        "_lost",
        "_reading",
        "_real",
        "_unsent",
        "_waiting",
    )

    def __init__(self, links: Links, handler: ConnectionHandler, address: tuple[str, int] | None) -> None:
        """``address``: the address connected to; None for an accepted connection, which its first request
        identifies."""
        self._links = links
        self._handler = handler
        self._address = address
        self._client_id: str | None = None
        self._real: Connection
        self._cut = Direction.NONE
        self._reading = True
        self._arrived: list[bytearray] = []
        self._waiting: list[Part] = []
        self._unsent = 0
        self._lost: list[Exception | None] = []
        """The error with which the connection was lost while the link was cut; not reported to the owner yet."""
        self._ended = False
        """Whether the owner has closed this connection."""
        self._detached: Callable[[], None] | None = None
        """Set if the owner closed this connection while the link was cut: the call that closes the real connection."""

    def is_of(self, peer: str) -> bool:
        return is_peer(peer, self._name())

    def is_cut(self) -> bool:
        return bool(self._links.cut_to(self._name()))

    def _name(self) -> str | None:
        if self._address is None:
            return self._client_id
        node = self._links.node_at(*self._address)
        return None if node is None else str(node)

    def apply_cuts(self) -> None:
        """Pause, resume or flush this connection after the cuts have changed or its peer has been identified."""
        before, self._cut = self._cut, self._links.cut_to(self._name())
        if Direction.IN in self._cut and Direction.IN not in before:
            self._real.pause_reading()
        if Direction.OUT in before and Direction.OUT not in self._cut:
            self._send_waiting()
        if Direction.IN in before and Direction.IN not in self._cut:
            self._deliver_arrived()

    # -- the network's handler

    def connection_made(self, connection: Connection) -> None:
        self._real = connection
        self._links.add(self)
        self._handler.connection_made(self)
        self.apply_cuts()

    def frame_received(self, frame: memoryview) -> None:
        if self._address is None and self._client_id is None:
            self._client_id = _client_of(frame)
            self.apply_cuts()
        if Direction.IN in self._cut:
            self._arrived.append(bytearray(frame))
        elif not self._ended:
            self._handler.frame_received(frame)

    def writable(self) -> None:
        if not self._ended:
            self._handler.writable()

    def connection_lost(self, error: Exception | None) -> None:
        if Direction.IN in self._cut and not self._ended:
            self._lost.append(error)
            return
        self._links.remove(self)
        if self._detached is None:
            self._handler.connection_lost(error)

    # -- the owner's connection

    @property
    def peer(self) -> str:
        return self._real.peer

    def send(self, parts: Sequence[Part]) -> None:
        if self._ended:
            return
        if Direction.OUT in self._cut:
            self._waiting.extend(parts)
            self._unsent += sum(part.length if isinstance(part, FileRange) else len(part) for part in parts)
        else:
            self._real.send(parts)

    def unsent(self) -> int:
        return self._real.unsent() + self._unsent

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Pass ``callback`` on; while the link is cut it is called without regard to what waits here."""
        self._real.when_sent(callback)

    def unsent_in_memory(self) -> int:
        waiting = sum(len(part) for part in self._waiting if not isinstance(part, FileRange))
        return self._real.unsent_in_memory() + waiting

    def pause_reading(self) -> None:
        self._reading = False
        self._real.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if Direction.IN not in self._cut:
            self._real.resume_reading()

    def close(self) -> None:
        if not self._ended:
            self._end(self._real.close)

    def abort(self) -> None:
        self._waiting.clear()
        self._unsent = 0
        self._end(self._real.abort)

    def _end(self, ending: Callable[[], None]) -> None:
        """The owner closes this connection and is notified soon. ``ending`` closes the real connection, which notifies
        the peer: now, or when an outgoing cut is healed."""
        was_ended, self._ended = self._ended, True
        self._arrived.clear()
        if self._lost:
            self._lost.clear()
            self._links.remove(self)
            self._links.call_soon(lambda: self._handler.connection_lost(None))
        elif self._detached is not None:
            self._detached = ending
        elif Direction.OUT in self._cut and not was_ended:
            self._detached = ending
            self._links.call_soon(lambda: self._handler.connection_lost(None))
        else:
            ending()

    def _send_waiting(self) -> None:
        waiting, self._waiting, held, self._unsent = self._waiting, [], self._unsent, 0
        if waiting:
            self._real.send(waiting)
        if self._detached is not None:
            self._detached()
        elif held > HIGH_WATER >= self._real.unsent() and not self._ended:
            self._handler.writable()

    def _deliver_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for frame in arrived:
            if not self._ended:
                self._handler.frame_received(memoryview(frame))
        if self._lost:
            self._links.remove(self)
            self._handler.connection_lost(self._lost.pop())
        elif self._reading and not self._ended:
            self._real.resume_reading()


def _client_of(request: memoryview) -> str | None:
    try:
        return parse_request_header(request)[0].client_id
    except DecodeError:
        return None


def link_commands(network: Network) -> dict[str, Callable[..., object]]:
    """The commands of a node whose network has links."""
    return {"cut": network.cut, "heal": network.heal, "links": network.links} if isinstance(network, Links) else {}
