"""The real network: listening and connecting. ``runtime.tcp.connection`` implements established connections."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from functools import cached_property
from typing import Final

from milena.runtime.clock import Clock, Timer
from milena.runtime.descriptors import kept, limit, open_now, room_for_a_connection
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from milena.runtime.network import Connection, ConnectionHandler, Framer, Listener
from milena.runtime.readiness import readiness_of
from milena.runtime.tcp.addresses import bind, resolve
from milena.runtime.tcp.connection import TcpConnection

ACCEPTS_PER_WAKE_UP: Final = 64
ACCEPT_PAUSE: Final = 0.1
"""Seconds without accepting after the process has run out of descriptors."""
OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TcpListener:
    """Implements ``runtime.network.Listener``."""

    def __init__(
        self,
        network: TcpNetwork,
        sock: socket.socket,
        accept: Callable[[], tuple[Framer, ConnectionHandler]],
        *,
        for_nodes: bool,
    ) -> None:
        self._network = network
        self._socket = sock
        self._accept = accept
        self._for_nodes = for_nodes
        self._pause: Timer | None = None
        self.host, self.port = sock.getsockname()[:2]
        self._listening = True
        self._start()

    def close(self) -> None:
        if self._listening:
            self._listening = False
            if self._pause is not None:
                self._pause.cancel()
            else:
                self._network.readiness.remove_reader(self._socket.fileno())
            self._socket.close()

    def _start(self) -> None:
        self._pause = None
        self._network.readiness.add_reader(self._socket.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE_UP):
            try:
                if not room_for_a_connection(self._socket.fileno(), self._for_nodes):
                    self._wait_for_room()
                    return
                sock, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                self._wait_for_room()
                return
            prepare(sock)
            framer, handler = self._accept()
            TcpConnection(self._network, sock, framer, handler).start()
            if not self._listening:
                return

    def _wait_for_room(self) -> None:
        """Stop accepting for a moment. Connections wait in the kernel's queue, as with Kafka's acceptor."""
        self._network.log.warning(
            "accepting paused, too few file descriptors",
            listener=f"{self.host}:{self.port}",
            open=open_now(),
            limit=limit(),
            kept_for_files=kept(),
        )
        self._network.readiness.remove_reader(self._socket.fileno())
        self._pause = self._network.clock.call_later(ACCEPT_PAUSE, self._start)


class TcpNetwork:
    """Implements ``runtime.network.Network``. Create it inside the running loop."""

    def __init__(self, clock: Clock, *, use_sendfile: bool | None = None) -> None:
        """``use_sendfile``: None uses it if the system has Linux's form of it."""
        self.loop = asyncio.get_running_loop()
        self.readiness = readiness_of(self.loop)
        self.clock = clock
        self.use_sendfile = os.uname().sysname == "Linux" if use_sendfile is None else use_sendfile
        self.sent = 0
        """Bytes of long queues that were sent in this iteration of the loop."""
        self._in_round = False
        self.deferred: list[TcpConnection] | None = None
        """The connections to flush at the end of the present read; None outside of one."""

    def sent_in_round(self) -> int:
        """Bytes of long queues that were sent since the loop last polled the sockets."""
        if not self._in_round:
            self._in_round = True
            self.sent = 0
            self.loop.call_soon(self._round_ends)
        return self.sent

    def _round_ends(self) -> None:
        self._in_round = False

    @cached_property
    def log(self) -> LimitedLog:
        return LimitedLog(get_logger("network"), self.clock.monotonic)

    async def listen(
        self, host: str, port: int, accept: Callable[[], tuple[Framer, ConnectionHandler]], *, for_nodes: bool = False
    ) -> Listener:
        return TcpListener(self, await bind(self.loop, host, port), accept, for_nodes=for_nodes)

    async def connect(
        self, host: str, port: int, framer: Framer, handler: ConnectionHandler, *, timeout: float
    ) -> Connection:
        try:
            async with asyncio.timeout(timeout):
                sock = await self._connect_first(host, port)
        except TimeoutError:
            message = f"connecting to {host}:{port} took longer than {timeout:g} s"
            raise TimeoutError(errno.ETIMEDOUT, message) from None
        prepare(sock)
        connection = TcpConnection(self, sock, framer, handler)
        connection.start()
        return connection

    async def _connect_first(self, host: str, port: int) -> socket.socket:
        """Try the addresses of ``host`` in order; raises the last error."""
        failure: OSError | None = None
        for family, address in await resolve(self.loop, host, port):
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                await self.loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        assert failure is not None
        raise type(failure)(failure.errno, f"cannot connect to {host}:{port}: {os.strerror(failure.errno or 0)}")


def prepare(sock: socket.socket) -> None:
    """Set the socket options of every connection as Kafka does: TCP_NODELAY, keep-alive."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
