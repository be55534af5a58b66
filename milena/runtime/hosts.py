"""Host names: which of them a look-up can find at all. Pure, so that a name is refused alike wherever it comes in."""

from __future__ import annotations

import socket
from typing import Final

LONGEST_NAME: Final = 253
"""Of a whole name and of one label: what DNS allows (RFC 1035)."""
LONGEST_LABEL: Final = 63
LAST_PORT: Final = 65_535
_SHOWN: Final = 100


def fault_of(host: str) -> str | None:
    """Why no look-up can find ``host``; None where one may. Numeric addresses are fine, an IPv6 one with its scope."""
    if not host:
        return "it is empty"
    if not host.isprintable() or any(character.isspace() for character in host):
        return "it has characters that no name has"
    if is_numeric(host.partition("%")[0]):
        return None
    if ":" in host or "[" in host:
        return "it is no IPv6 address"
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return "it has a label that is empty, too long or not to be encoded"
    if len(host) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} characters"
    labels = host.removesuffix(".").split(".")
    if not all(labels):
        return "it has an empty label"
    return f"it has a label longer than {LONGEST_LABEL} characters" if max(map(len, labels)) > LONGEST_LABEL else None


def is_numeric(host: str) -> bool:
    """Whether this is an IPv4 or IPv6 address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False


def shown(host: str) -> str:
    """For messages: quoted, escaped, and cut where it is long."""
    return ascii(host) if len(host) <= _SHOWN else f"{host[:_SHOWN]!a}... ({len(host)} characters)"
