"""A network namespace for each node on this machine, so that the links between nodes can be cut.

Each node has a network namespace with one address. A bridge, in a namespace of its own, connects them and this machine,
so that clients here reach every node whichever links between nodes are cut. Needs root and Debian's iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from milena.command_line.errors import UserError
from tests.chaos import partitions

BITS: Final = 24
HOST: Final = 254
"""The last byte of this machine's address."""
LIMIT: Final = 30


def missing() -> str | None:
    """The reason why no namespaces can be created here; None if they can."""
    if shutil.which("ip") is None:
        return "ip is not installed (Debian: iproute2)"
    return partitions.missing()


class Networks:
    """The network namespaces of ``nodes``. ``close`` removes them."""

    def __init__(self, nodes: Sequence[int]) -> None:
        """Create the namespaces. Raises UserError."""
        self._nodes = list(nodes)
        self._name = f"mc{os.getpid()}"
        self._subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 256}"
        try:
            self._make()
        except UserError:
            self.close()
            raise

    def address(self, node: int) -> str:
        return f"{self._subnet}.{self._nodes.index(node) + 1}"

    def command(self, node: int) -> list[str]:
        """The words before a command that run it in the network namespace of a node, without another process."""
        return ["nsenter", f"--net=/run/netns/{self._of(node)}", "--"]

    def close(self) -> None:
        """Remove the namespaces: processes in them become unreachable. May be called more than once."""
        for name in (self._hub, *map(self._of, self._nodes)):
            if os.path.exists(f"/run/netns/{name}"):
                _ip("netns", "delete", name)

    @property
    def _hub(self) -> str:
        return f"{self._name}-hub"

    def _of(self, node: int) -> str:
        return f"{self._name}-{node}"

    def _make(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for node in self._nodes:
            name = self._of(node)
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "add", "here", "type", "veth", "peer", "name", f"to{node}", "netns", self._hub)
            self._join(f"to{node}")
            self._serve(["-n", name], "here", self.address(node))
        # The end at this machine is removed with its peer.
        _ip("link", "add", self._name, "type", "veth", "peer", "name", "host", "netns", self._hub)
        self._join("host")
        self._serve([], self._name, f"{self._subnet}.{HOST}")

    def _join(self, link: str) -> None:
        _ip("-n", self._hub, "link", "set", link, "master", "bridge")
        _ip("-n", self._hub, "link", "set", link, "up")

    def _serve(self, where: list[str], link: str, address: str) -> None:
        _ip(*where, "address", "add", f"{address}/{BITS}", "dev", link)
        _ip(*where, "link", "set", link, "up")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise UserError(f"ip {' '.join(words)}: {done.stderr.strip()}")
