"""The ports of one node in one object. A process has one; a simulation has one per node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from milena.runtime.clock import Clock
from milena.runtime.containment import Containment
from milena.runtime.disk import Disk
from milena.runtime.network import Network
from milena.runtime.randomness import Randomness
from milena.runtime.tasks import Tasks


def connect(url: str, options: Mapping[str, object]) -> tuple[object, str]:
    """As ``Runtime.connect_store``."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, **options)
    return system, str(path)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that a node can reach outside of itself."""

    clock: Clock
    random: Randomness
    network: Network
    disk: Disk
    tier_disk: Disk
    """The disk of the remote log directory (the tier's folder). It has its own threads, so that a hanging folder does
    not block the local logs; in the simulation all nodes see the same files there."""
    new_tasks: Callable[[str], Tasks]
    """Creates a task scope with a name. The node stops its scopes in order."""
    contained: Containment
    """Logs errors that fail one request, connection, partition or step and nothing else."""
    fatal: Callable[[str, BaseException | None], None]
    """Ends the node immediately after a broken invariant (process: log and exit; simulation: the node dies)."""
    connect_store: Callable[[str, Mapping[str, object]], tuple[object, str]] = connect
    """Given URL and options, the fsspec file system of an object store and the path in it. May block. Raises
    ImportError, ValueError, and what the store's library raises."""
    lab: bool = False
    """Whether the node keeps what only lab commands return."""
