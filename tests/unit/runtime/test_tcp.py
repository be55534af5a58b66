"""The real network where the simulated one has nothing to show: backlogs, half-open peers, descriptors, lingering."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from milena.runtime.clock import SystemClock, Timer
from milena.runtime.descriptors import kept, limit
from milena.runtime.network import Framer
from milena.runtime.tcp.addresses import bind
from milena.runtime.tcp.connection import TcpConnection
from milena.runtime.tcp.hosts import from_here
from milena.runtime.tcp.sockets import TcpNetwork
from tests.contract.peers import Peer


class HastyClock(SystemClock):
    """Timers fire almost at once."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return super().call_later(min(delay, 0.02), callback)


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used.fileno() + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        used.close()


@contextmanager
def few_descriptors(*, more: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used.fileno() + more, hard))
    used.close()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connecting_gives_up_after_its_timeout() -> None:
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.create_connection(full.getsockname())]
        peer, port = Peer(), full.getsockname()[1]
        with pytest.raises(TimeoutError, match=r"took longer than 0\.1 s"):
            await TcpNetwork(SystemClock()).connect("127.0.0.1", port, peer.framer, peer, timeout=0.1)
        for sock in waiting:
            sock.close()


async def test_a_peer_that_shuts_down_its_sending_side_is_disconnected() -> None:
    server = Peer()
    listener = await TcpNetwork(SystemClock()).listen("127.0.0.1", 0, lambda: (server.framer, server))
    with closing(socket.create_connection(("127.0.0.1", listener.port))) as client:
        client.sendall(b"last\nhalf")
        client.shutdown(socket.SHUT_WR)
        await server.until(lambda: len(server.lost) == 1)
    assert server.frames == [b"last"]
    assert server.lost == [None]
    listener.close()


async def test_a_reset_is_reported() -> None:
    server = Peer()
    listener = await TcpNetwork(SystemClock()).listen("127.0.0.1", 0, lambda: (server.framer, server))
    client = socket.create_connection(("127.0.0.1", listener.port))
    await server.until(lambda: hasattr(server, "connection"))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    await server.until(lambda: len(server.lost) == 1)
    assert isinstance(server.lost[0], ConnectionResetError)
    assert server.connection.peer == "closed"
    listener.close()


async def test_a_closing_connection_does_not_wait_for_ever_for_a_peer_that_reads_nothing() -> None:
    server = Peer()
    listener = await TcpNetwork(HastyClock()).listen("127.0.0.1", 0, lambda: (server.framer, server))
    with closing(socket.create_connection(("127.0.0.1", listener.port))):
        await server.until(lambda: hasattr(server, "connection"))
        server.connection.send([bytes(32 * 1024 * 1024)])
        server.connection.close()
        await server.until(lambda: server.lost == [None])
    listener.close()


async def test_without_descriptors_accepting_pauses_and_goes_on() -> None:
    server = Peer()
    listener = await TcpNetwork(SystemClock()).listen("127.0.0.1", 0, lambda: (server.framer, server))
    with closing(socket.socket()) as client:
        with no_more_descriptors():
            client.connect(("127.0.0.1", listener.port))
            await asyncio.sleep(0.01)
            assert not hasattr(server, "connection")
        await server.until(lambda: hasattr(server, "connection"))
        server.abort()
    listener.close()


async def test_connections_leave_the_last_descriptors_to_files(capsys: pytest.CaptureFixture[str]) -> None:
    server = Peer()
    accepted: list[Peer] = []

    def accept() -> tuple[Framer, Peer]:
        accepted.append(Peer())
        return accepted[-1].framer, accepted[-1]

    listener = await TcpNetwork(HastyClock()).listen("127.0.0.1", 0, accept)
    clients: list[socket.socket] = []
    with few_descriptors(more=80):
        while len(clients) - len(accepted) < 3:
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", listener.port))
            clients.append(client)
            for _ in range(10):
                await asyncio.sleep(0)
        room = limit() - (clients[-1].fileno() + 1)
        assert kept() - 5 <= room <= kept()
        assert capsys.readouterr().err.count("accepting paused, too few file descriptors") <= 10
        for _ in range(6):
            clients.pop(0).close()
        await server.until(lambda: len(accepted) >= len(clients) + 6 - 3)
    for peer in accepted:
        peer.abort()
    for client in clients:
        client.close()
    listener.close()
    await asyncio.sleep(0)


async def test_a_connection_without_delay_and_with_keep_alive() -> None:
    server, client = Peer(), Peer()
    network = TcpNetwork(SystemClock())
    listener = await network.listen("127.0.0.1", 0, lambda: (server.framer, server))
    connection = await network.connect("127.0.0.1", listener.port, client.framer, client, timeout=1)
    assert isinstance(connection, TcpConnection)
    with socket.socket(fileno=socket.dup(connection._fd)) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await server.until(lambda: hasattr(server, "connection"))
    for peer in (server, client):
        peer.abort()
    listener.close()
    await asyncio.sleep(0)


async def test_ipv6_peers_are_named_in_brackets() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    server, client = Peer(), Peer()
    network = TcpNetwork(SystemClock())
    listener = await network.listen("::1", 0, lambda: (server.framer, server))
    await network.connect("::1", listener.port, client.framer, client, timeout=1)
    assert client.connection.peer == f"[::1]:{listener.port}"
    await server.until(lambda: hasattr(server, "connection"))
    for peer in (server, client):
        peer.abort()
    listener.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
async def test_a_wildcard_listener_accepts_ipv4_and_ipv6_as_in_java(host: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    listening = await bind(asyncio.get_running_loop(), host, 0)
    port = listening.getsockname()[1]
    for address in ("127.0.0.1", "::1"):
        with socket.create_connection((address, port), timeout=5):
            accepted, _ = listening.accept()
            accepted.close()
    listening.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
async def test_without_ipv6_a_wildcard_listener_accepts_ipv4(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    sock = await bind(asyncio.get_running_loop(), host, 0)
    assert (sock.family, sock.getsockname()[0]) == (socket.AF_INET, "0.0.0.0")
    sock.close()


def test_what_listens_on_all_addresses_is_reached_on_this_machine_with_and_without_ipv6() -> None:
    assert [from_here(host) for host in ("::", "0.0.0.0", "")] == ["localhost"] * 3
    assert from_here("broker-1") == "broker-1"
