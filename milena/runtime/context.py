"""The ports of one node, bundled. A process has one; a simulation has one for each node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milena.runtime.clock import Clock
from milena.runtime.containment import Containment
from milena.runtime.disk import Disk
from milena.runtime.network import Network
from milena.runtime.randomness import Randomness
from milena.runtime.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a node may know of the world outside of it."""

    clock: Clock
    random: Randomness
    network: Network
    disk: Disk
    tier_disk: Disk
    """Where a tier's folder lies. Its work has threads of its own, so that a folder that hangs holds up no log; in the
    simulation all nodes see the same files there."""
    new_tasks: Callable[[str], Tasks]
    """Makes a task scope with a name. The node stops its scopes in order."""
    contained: Containment
    """Where errors go that fail one request, connection, partition or step and nothing else."""
    fatal: Callable[[str, BaseException | None], None]
    """Ends the node at once: a broken invariant. (process: log and exit; simulation: the node dies)"""
