"""Ports: checks whether they are free, and the choice of free ones."""

from __future__ import annotations

import errno
import os
import socket

from milena.command_line.errors import UserError
from milena.runtime.tcp.hosts import ALL_ADDRESSES, Address, wildcard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

LOWEST, HIGHEST = 10_000, 32_000


def check(host: str, ports: range, option: str = "--port") -> None:
    """Raise UserError if a port cannot be bound. ``option``: the option that the message names."""
    for port in ports:
        problem = refusal(host, port)
        if problem == errno.EADDRINUSE:
            raise UserError(
                f"port {port} on {host} is in use: stop the process that listens there, or choose other "
                f"ports with {option}"
            )
        if problem == errno.EACCES:
            raise UserError(
                f"port {port} on {host} needs privileges that this user does not have: choose other ports with {option}"
            )
        if problem is not None:
            raise UserError(f"cannot listen on {host}:{port}: {os.strerror(problem)}")


def refusal(host: str, port: int) -> int | None:
    """Return the errno of binding the port, or None if it can be bound."""
    try:
        with _bound(host, port):
            return None
    except OSError as error:
        return error.errno


def free(host: str, count: int, avoid: Collection[int] = ()) -> range:
    """Return consecutive free ports below the system's range for outgoing connections."""
    while True:
        first = LOWEST + int.from_bytes(os.urandom(2), "big") % (HIGHEST - LOWEST - count)
        ports = range(first, first + count)
        if not set(ports) & set(avoid) and all(refusal(host, port) is None for port in ports):
            return ports


def _bound(host: str, port: int) -> socket.socket:
    is_wildcard = host in ALL_ADDRESSES
    try:
        family, address = wildcard(port) if is_wildcard else _first_address(host, port)
    except socket.gaierror as error:
        raise UserError(f"--host {host}: {error.strerror}") from None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if is_wildcard else 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _first_address(host: str, port: int) -> tuple[int, Address]:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, address
