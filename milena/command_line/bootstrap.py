"""Bootstrap servers as given on a command line."""

from __future__ import annotations

import os

from milena.command_line.errors import UsageError
from milena.runtime.numbers import whole

VARIABLE = "MILENA_BOOTSTRAP"
"""Environment variable with the bootstrap servers of client commands."""


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Parse ``host:port,...``, with IPv6 hosts in brackets. Raises UsageError."""
    source = VARIABLE if text == os.environ.get(VARIABLE) else "--bootstrap-server"
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = part.rpartition(":")
        number = whole(port)
        if not host or number is None or not 0 < number < 65536:
            raise UsageError(f"{source} {text}: {part!r} is not of the form HOST:PORT")
        addresses.append((host.strip("[]"), number))
    if not addresses:
        raise UsageError(f"{source} needs at least one HOST:PORT")
    return addresses
