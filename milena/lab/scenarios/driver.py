"""The interface of a world in which a scenario runs: machines, links, and access to each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from milena.lab.scenarios.script import Script
from milena.runtime.context import Runtime
from milena.tiered.store.tier_config import LOCAL

CONTROLLER: Final = "controller"
"""The name of the controller; the other nodes have the letters of the brokers."""
RARELY: Final = "3600000"
"""Milliseconds. A broker's tasks on the tier run when the scenario requests them."""
INTERVAL: Final = "remote.log.manager.task.interval.ms"
INITIAL_DELAY: Final = "internal.remote.log.manager.task.initial.delay.ms"


def tier_settings(script: Script, folder: str) -> dict[str, str]:
    """Return the configuration of all nodes for a tier in a local folder, by Kafka's keys; empty without a tier.

    The tasks that a new leader runs at once would be late on a slow machine: they would copy segments that the scenario
    closes later, and a leader that is killed in the meantime leaves an unfinished copy.
    """
    if not script.tier:
        return {}
    by_hand = {} if INTERVAL in script.nodes else {INTERVAL: RARELY, INITIAL_DELAY: RARELY}
    metadata = "rlmm.config.remote.log.metadata.topic"
    return by_hand | {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": LOCAL,
        "rsm.config.dir": folder,
        f"{metadata}.num.partitions": "1",
        f"{metadata}.replication.factor": str(len(script.brokers)),
        f"{metadata}.min.isr": "1",
        "log.retention.check.interval.ms": RARELY,
    }


class Driver(Protocol):
    """A cluster on which a scenario runs. Nodes have their names in the scenario."""

    @property
    def runtime(self) -> Runtime:
        """The clock and network of the scenario itself."""
        ...

    def address(self, node: str) -> tuple[str, int]:
        """Return the address of a node's listener, which is known once the node has started."""
        ...

    async def start(self, node: str) -> None:
        """Start a node, and return when it serves."""
        ...

    async def stop(self, node: str) -> None:
        """Shut a node down cleanly."""
        ...

    async def kill(self, node: str) -> None:
        """Kill a node with SIGKILL: written data is kept."""
        ...

    async def power_off(self, node: str) -> None:
        """End a node as in a power loss: unsynced data is lost."""
        ...

    async def wipe(self, node: str) -> None:
        """Delete all data of a node; its disk keeps its id (``directory.id``), like a disk that comes back without
        unflushed data. A new id would itself change the partition (KIP-858). The node is down."""
        ...

    async def erase(self, node: str, names: Sequence[str]) -> None:
        """Delete files of a node, by their paths in the log directories; missing ones are ignored. The node is down."""
        ...

    def replace(self, node: str, peer: str | None) -> None:
        """From its next start on, run the node as this test peer (None: as Milena's), with its present disk."""
        ...

    async def tier(self) -> Mapping[str, bytes]:
        """Return all files in the tier, by path."""
        ...

    async def close_tier(self) -> None:
        """Hide the content of the tier until ``open_tier``."""
        ...

    async def break_tier(self, operation: str, error: str) -> None:
        """Let operations on the tier's files (``write``; "" for all) fail with this ``errno`` until ``open_tier``. Only
        in the simulation."""
        ...

    async def open_tier(self) -> None: ...

    async def cut(self, one: str, other: str) -> None: ...

    async def heal(self, one: str, other: str) -> None: ...

    async def command(self, node: str, command: str, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON of any command
        """Send a command to a running node. Raises LabCommandError, and what the command raises."""
        ...
