"""Ports: whether they can be had, and free ones."""

from __future__ import annotations

import errno
import socket

from milena.errors import UserError


def check(host: str, ports: range) -> None:
    """Raise UserError, in one sentence, where a port cannot be listened on."""
    for port in ports:
        problem = refusal(host, port)
        if problem == errno.EADDRINUSE:
            raise UserError(f"port {port} on {host} is in use: stop what listens there, or choose others with --port")
        if problem == errno.EACCES:
            raise UserError(f"port {port} on {host} needs privileges that this user has not: choose others with --port")
        if problem is not None:
            raise UserError(f"cannot listen on {host}:{port}: {errno.errorcode.get(problem, problem)}")


def refusal(host: str, port: int) -> int | None:
    """The error number of a bind that fails, or None."""
    try:
        with _bound(host, port):
            return None
    except OSError as error:
        return error.errno


def free(host: str, avoid: range, preferred: int | None = None) -> int:
    """A free port outside of ``avoid``: the preferred one where it still is."""
    if preferred is not None and preferred not in avoid and refusal(host, preferred) is None:
        return preferred
    while True:
        with _bound(host, 0) as bound:
            port: int = bound.getsockname()[1]
        if port not in avoid:
            return port


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UserError(f"--host {host}: {error.strerror}") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
