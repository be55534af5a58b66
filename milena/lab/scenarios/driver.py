"""What a world must do for a scenario: machines, links, and a way to each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from milena.lab.scenarios.script import Script
from milena.runtime.context import Runtime
from milena.tiered.store.tier_config import LOCAL

CONTROLLER: Final = "controller"
"""A node's name; the others are the brokers' letters."""
RARELY: Final = "3600000"
"""Milliseconds. What a broker does about its tier is done when the scenario says so."""
INTERVAL: Final = "remote.log.manager.task.interval.ms"
INITIAL_DELAY: Final = "internal.remote.log.manager.task.initial.delay.ms"


def tier_settings(script: Script, folder: str) -> dict[str, str]:
    """Configuration of all nodes for a tier in a local folder, by Kafka's names; nothing if there is none.

    A round that a new leader did of its own accord would be late on a slow machine: it would copy what the scenario
    closes afterwards, and a leader that is killed meanwhile leaves a copy that is not finished.
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

    async def erase(self, node: str, names: Sequence[str]) -> None:
        """Files by their paths in its log directories. Missing is no error. The node is down."""
        ...

    def replace(self, node: str, peer: str | None) -> None:
        """From its next start on a node is this test peer, None: one of ours. It has its disk as before."""
        ...

    async def tier(self) -> Mapping[str, bytes]:
        """Everything that lies in the tier, by paths."""
        ...

    async def close_tier(self) -> None:
        """Nobody finds anything in the tier until ``open_tier``."""
        ...

    async def break_tier(self, operation: str, error: str) -> None:
        """What is done to the tier's files (``write``; all with "") fails with an error as ``errno`` calls it, until
        ``open_tier``. In the simulation alone."""
        ...

    async def open_tier(self) -> None: ...

    async def cut(self, one: str, other: str) -> None: ...

    async def heal(self, one: str, other: str) -> None: ...

    async def verb(self, node: str, verb: str, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON of any command
        """Ask a running node. Raises VerbError, or what else its answer is."""
        ...
