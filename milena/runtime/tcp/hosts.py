"""Validation of host names: which of them a lookup can possibly find. Pure, so that every entry point rejects the same
names."""

from __future__ import annotations

import errno
import socket
from typing import Any, Final

LONGEST_NAME: Final = 253
"""Maximum lengths of a name and of one label, as in DNS (RFC 1035)."""
LONGEST_LABEL: Final = 63
LAST_PORT: Final = 65_535
ALL_ADDRESSES: Final = ("", "::", "0.0.0.0")
"""Wildcard addresses: a listener may have one, but it cannot be advertised."""
_SHOWN: Final = 100

Address = tuple[Any, ...]
"""An address as the socket module returns it; its form depends on the family."""


def wildcard(port: int) -> tuple[int, Address]:
    """The family and address of all addresses of this machine: IPv6's, which accepts IPv4 if ``IPV6_V6ONLY`` is 0, or
    IPv4's if the kernel has no IPv6."""
    if socket.has_dualstack_ipv6():
        return socket.AF_INET6, ("::", port, 0, 0)
    return socket.AF_INET, ("0.0.0.0", port)


def from_here(host: str) -> str:
    """The address by which this machine reaches a listener on ``host``, which may be a wildcard address."""
    return "localhost" if host in ALL_ADDRESSES else host


def fault_of(host: str) -> str | None:
    """Why no lookup can find ``host``; None if one may. Numeric addresses are valid, IPv6 ones with their scope."""
    if not host:
        return "it is empty"
    if not host.isprintable() or any(character.isspace() for character in host):
        return "it has characters that are invalid in a host name"
    if is_numeric(host.partition("%")[0]):
        return None
    if ":" in host or "[" in host:
        return "it is not an IPv6 address"
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return "it has a label that is empty, too long or cannot be encoded"
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
    """For messages: quoted, escaped, and shortened if it is long."""
    return ascii(host) if len(host) <= _SHOWN else f"{host[:_SHOWN]!a}... ({len(host)} characters)"


class UnresolvedHost(OSError):
    """The host name of an address cannot be resolved, for whatever reason."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(errno.EADDRNOTAVAIL, f"cannot resolve {shown(host)}: {why}")
