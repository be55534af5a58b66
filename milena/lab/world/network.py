"""The simulated network: ordered byte pipes with latency, bounded buffers, cuts and dead machines."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable

from milena.lab.world.life import Life
from milena.lab.world.pipe import SimulatedConnection
from milena.runtime.network import Connection, ConnectionHandler, Framer, Listener
from milena.runtime.randomness import Randomness
from milena.runtime.tcp.hosts import LAST_PORT, UnresolvedHost, fault_of

LATENCY = (0.00005, 0.0005)
"""Latency in seconds, at random."""
FIRST_FREE_PORT = 30_000
OWN_NAMES = ("", "0.0.0.0", "::", "localhost", "127.0.0.1", "::1")

Accept = Callable[[], tuple[Framer, ConnectionHandler]]


class Fabric:
    """The network of all machines. A machine's name is its host name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Randomness) -> None:
        self.loop = loop
        self.random = random
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.connections: dict[SimulatedConnection, None] = {}
        self.digest = hashlib.sha256()
        """Digest of everything that was delivered: equal for equal seeds."""
        self._machines: dict[str, bool] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        """Cut links, from one machine to another."""
        self._delays: dict[tuple[str, str], float] = {}
        self._next_port = FIRST_FREE_PORT

    def power_on(self, machine: str) -> None:
        self._machines[machine] = True

    def is_up(self, machine: str) -> bool:
        return self._machines[machine]

    def machine_of(self, host: str, asking: str) -> str | None:
        if host in OWN_NAMES:
            return asking
        return host if host in self._machines else None

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def latency(self) -> float:
        return self.random.uniform(*LATENCY)

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Hold data in flight between the two; connecting times out. ``one_way``: only data that ``one`` sends, as with
        a firewall that has lost its state."""
        self._cuts[one, other] = None
        if not one_way:
            self._cuts[other, one] = None

    def slow(self, one: str, other: str, seconds: float) -> None:
        """Add this latency between the two until the link is healed."""
        self._delays[one, other] = self._delays[other, one] = seconds

    def heal(self, one: str, other: str) -> None:
        for link in ((one, other), (other, one)):
            self._cuts.pop(link, None)
            self._delays.pop(link, None)
        for connection in list(self.connections):
            connection.resume_arrivals()

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cuts

    def delay(self, sender: str, receiver: str) -> float:
        """Latency in seconds."""
        seconds = self.latency()
        return seconds + self._delays[sender, receiver] if (sender, receiver) in self._delays else seconds

    def end_process(self, life: Life) -> None:
        """End a process whose machine stays up: peers see their connections closed."""
        self._drop(life, SimulatedConnection.vanish_with_reset)

    def lose_power(self, life: Life) -> None:
        """Cut the power of a process's machine: peers receive nothing until the machine is up again and resets their
        connections."""
        self._machines[life.name] = False
        self._drop(life, SimulatedConnection.vanish)

    def _drop(self, life: Life, end: Callable[[SimulatedConnection], None]) -> None:
        for address, listener in list(self.listeners.items()):
            if listener.life is life:
                del self.listeners[address]
        for connection in list(self.connections):
            if connection.life is life:
                end(connection)


class SimulatedListener:
    """Implements ``runtime.network.Listener``."""

    def __init__(
        self, fabric: Fabric, life: Life, network: SimulatedNetwork, host: str, port: int, accept: Accept
    ) -> None:
        self.life = life
        self.network = network
        self.host = host
        self.port = port
        self.accept = accept
        self._fabric = fabric

    def close(self) -> None:
        key = (self.life.name, self.port)
        if self._fabric.listeners.get(key) is self:
            del self._fabric.listeners[key]


class SimulatedNetwork:
    """Implements ``runtime.network.Network`` for one run of one node."""

    def __init__(self, fabric: Fabric, life: Life) -> None:
        self.fabric = fabric
        self.life = life
        self.deferred: list[SimulatedConnection] | None = None
        """The connections to flush at the end of the read that is being handled; None outside of one."""

    async def listen(self, host: str, port: int, accept: Accept, *, for_nodes: bool = False) -> Listener:
        self.life.check()
        if not 0 <= port <= LAST_PORT or self.fabric.machine_of(host, self.life.name) != self.life.name:
            raise _error(errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}")
        port = port or self.fabric.free_port()
        if (self.life.name, port) in self.fabric.listeners:
            raise _error(errno.EADDRINUSE, f"cannot listen on {host}:{port}")
        listener = SimulatedListener(self.fabric, self.life, self, host, port, accept)
        self.fabric.listeners[self.life.name, port] = listener
        return listener

    async def connect(
        self, host: str, port: int, framer: Framer, handler: ConnectionHandler, *, timeout: float
    ) -> Connection:
        await self.life.wait_resumed()
        self.life.check()
        fabric = self.fabric
        if not 0 <= port <= LAST_PORT:
            raise OSError(errno.EADDRNOTAVAIL, f"{port} is not a port")
        fault = fault_of(host)
        machine = None if fault else fabric.machine_of(host, self.life.name)
        if machine is None:
            raise UnresolvedHost(host, fault or "no machine has this name")
        there, back = (self.life.name, machine), (machine, self.life.name)
        latency = 2 * fabric.delay(*there)
        if latency > timeout or not fabric.is_up(machine) or fabric.is_cut(*there) or fabric.is_cut(*back):
            await asyncio.sleep(timeout)
            raise TimeoutError(errno.ETIMEDOUT, f"connecting to {host}:{port} took longer than {timeout:g} s")
        await asyncio.sleep(latency)
        self.life.check()
        listener = fabric.listeners.get((machine, port))
        if listener is None:
            raise _error(errno.ECONNREFUSED, f"cannot connect to {host}:{port}")
        own_port = fabric.free_port()
        theirs = SimulatedConnection(listener.network, f"{self.life.name}:{own_port}", *listener.accept())
        ours = SimulatedConnection(self, f"{host}:{port}", framer, handler)
        ours.join(theirs)
        theirs.start()
        ours.start()
        return ours


def _error(number: int, text: str) -> OSError:
    return OSError(number, f"{text}: {os.strerror(number).lower()}")
