"""Host names that cannot be resolved and invalid ports: every network raises the same subclass of OSError."""

from __future__ import annotations

from typing import Final

import pytest

from milena.runtime.tcp.hosts import UnresolvedHost
from tests.contract.peers import Peer
from tests.contract.worlds import Surroundings, on_all_networks

NOWHERE: Final = (
    "kafka..local",
    ".kafka",
    "h" * 64,
    "x" * 30_000,
    ".".join(["h" * 60] * 5),
    "a\0b",
    "\0",
    "a b",
    "a\nb",
    "\ud800",
    "",
    "bücher..local",
    "1::2::3",
    "127.0.0.1:9092",
    "[::1]",
    "nowhere.invalid",
)
"""Host names as a peer may send them: too long, with empty labels, with NUL bytes, or unknown."""


@on_all_networks
async def test_connecting_to_a_host_that_cannot_be_resolved_raises_unresolved_host(it: Surroundings) -> None:
    for host in NOWHERE:
        with pytest.raises(UnresolvedHost) as failure:
            await it.runtime.network.connect(host, 9092, Peer().framer, Peer(), timeout=20)
        said = failure.value.strerror or ""
        assert said.startswith("cannot resolve "), ascii(host)[:40]
        assert said.isprintable(), ascii(host)[:40]
        assert len(said) < 250


@on_all_networks
async def test_connecting_to_an_invalid_port_raises_an_os_error(it: Surroundings) -> None:
    for port in (-1, 0, 65_536, 2**31 - 1):
        with pytest.raises(OSError, match=str(port)):
            await it.runtime.network.connect("localhost", port, Peer().framer, Peer(), timeout=20)


@on_all_networks
async def test_listening_on_a_host_that_cannot_be_resolved_raises_an_os_error(it: Surroundings) -> None:
    for host in (host for host in NOWHERE if host):
        with pytest.raises(OSError, match="cannot"):
            await it.runtime.network.listen(host, 0, lambda: (Peer().framer, Peer()))
