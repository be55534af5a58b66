"""Resolution of host names to socket addresses, and listening sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Final

from milena.runtime.tcp.hosts import ALL_ADDRESSES, LAST_PORT, Address, UnresolvedHost, fault_of, wildcard

BACKLOG: Final = 1024


async def resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[int, Address]]:
    """(family, address) pairs of ``host``, IPv4 first as in Java. A numeric address needs no lookup.

    Raises UnresolvedHost if the name cannot be resolved, OSError if the port is invalid.
    """
    if not 0 <= port <= LAST_PORT:
        raise OSError(errno.EADDRNOTAVAIL, f"{port} is not a port")
    fault = fault_of(host)
    if fault is not None:
        raise UnresolvedHost(host, fault)
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))]
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise UnresolvedHost(host, str(error.strerror)) from None
    except ValueError as invalid:  # including UnicodeError, from the loop's encoding of names
        raise UnresolvedHost(host, str(invalid)) from None
    if not found:
        raise UnresolvedHost(host, "it has no address")
    return sorted(((family, address) for family, _, _, _, address in found), key=lambda pair: pair[0])


async def bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A listening, non-blocking socket. As in Java, a wildcard ``host`` (empty, ``0.0.0.0`` or ``::``) binds all
    addresses, IPv4 and IPv6 if the kernel has both, and a name binds its first address."""
    is_wildcard = host in ALL_ADDRESSES
    family, address = wildcard(port) if is_wildcard else (await resolve(loop, host, port))[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if is_wildcard else 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        reason = os.strerror(error.errno or 0).lower()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from None
    return sock


def describe(address: Address) -> str:
    """``host:port``; an IPv6 host in brackets, an IPv4 host of a dual-stack socket in IPv4 form."""
    host = str(address[0]).removeprefix("::ffff:")
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
