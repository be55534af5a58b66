"""Frames written to a socket directly, for requests that no client library sends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

API_VERSIONS = 18
LIMIT = 10.0


@contextmanager
def connected(address: str, *, receive_buffer: int = 0) -> Iterator[socket.socket]:
    """A TCP connection to ``host:port``."""
    host, _, port = address.rpartition(":")
    with socket.socket() as plain:
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(LIMIT)
        plain.connect((host, int(port)))
        yield plain


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(key: int, version: int, correlation: int, body: bytes = b"", *, flexible: bool = False) -> bytes:
    """Return a framed request with client id ``raw``."""
    return frame(struct.pack(">hhih3s", key, version, correlation, 3, b"raw") + (b"\0" if flexible else b"") + body)


def api_versions(correlation: int) -> bytes:
    return request(API_VERSIONS, 0, correlation)


def receive(plain: socket.socket, count: int) -> bytes:
    """Receive exactly ``count`` bytes. Raises ConnectionError if the other side closes before."""
    data = b""
    while len(data) < count:
        piece = plain.recv(count - len(data))
        if not piece:
            raise ConnectionError(f"closed after {len(data)} of {count} bytes")
        data += piece
    return data


def receive_frame(plain: socket.socket) -> bytes:
    return receive(plain, struct.unpack(">i", receive(plain, 4))[0])


def is_closed(plain: socket.socket) -> bool:
    """Whether the other side closes the connection without a response. Raises TimeoutError after the time limit."""
    try:
        return plain.recv(1) == b""
    except ConnectionResetError:
        return True


def answers(address: str) -> bool:
    """Whether a node answers an ApiVersions request on a new connection."""
    with connected(address) as plain:
        plain.sendall(api_versions(7))
        return receive_frame(plain)[:4] == struct.pack(">i", 7)
