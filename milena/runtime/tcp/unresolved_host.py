"""The error of a host name that has no address."""

from __future__ import annotations

import errno

from milena.runtime.tcp.hosts import shown


class UnresolvedHost(OSError):
    """The host name of an address cannot be resolved, for whatever reason."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(errno.EADDRNOTAVAIL, f"cannot resolve {shown(host)}: {why}")
