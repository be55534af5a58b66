"""What a world must do for a scenario: machines, links, and a way to each node."""

from __future__ import annotations

from typing import Any, Final, Protocol

from runtime.context import Runtime

CONTROLLER: Final = "controller"
"""A node's name; the others are the brokers' letters."""


class Driver(Protocol):
    """A cluster that a scenario is played on. Nodes go by their names in the scenario."""

    @property
    def runtime(self) -> Runtime:
        """The clock and network of the scenario itself."""
        ...

    def address(self, node: str) -> tuple[str, int]:
        """Where its listener is. Known once the node has started."""
        ...

    async def start(self, node: str) -> None:
        """Returns when it serves."""
        ...

    async def stop(self, node: str) -> None:
        """In order."""
        ...

    async def kill(self, node: str) -> None:
        """What it has written stays."""
        ...

    async def power_off(self, node: str) -> None:
        """What it has not synced is lost."""
        ...

    async def wipe(self, node: str) -> None:
        """All data is gone; the disk keeps its name (``directory.id``), as one that came back without what was not
        flushed does. A new name would be a change of the partition by itself (KIP-858). The node is down."""
        ...

    def replace(self, node: str, peer: str | None) -> None:
        """From its next start on a node is this test peer, None: one of ours. It has its disk as before."""
        ...

    async def cut(self, one: str, other: str) -> None: ...

    async def heal(self, one: str, other: str) -> None: ...

    async def verb(self, node: str, verb: str, /, **arguments: Any) -> Any:
        """Ask a running node. Raises VerbError, or what else its answer is."""
        ...
