"""`milena reset`, `snapshot` and `restore`: the state of a test cluster as a whole."""

from __future__ import annotations

from milena.command_line.options import CommandLine, Option, Positional
from milena.steering import snapshots
from milena.steering.reset import reset as reset_cluster
from milena.up.detached import known
from milena.up.layout import DEFAULT_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DIR = Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR)
SNAPSHOT = CommandLine(
    "snapshot",
    "Write the state of a whole cluster into a new folder: topics, offsets, epochs, groups, configurations, tier. All "
    "nodes are held\nwhile files are copied; what they have only in memory is left out. `milena restore` returns to "
    "it, and `milena up --from` makes\nanother cluster of it. Other programs must not change the files.",
    [DIR],
    [Positional("SNAPSHOT", "a new folder")],
    ["milena snapshot prepared", "milena restore prepared", "milena up --from prepared --dir other --port 0"],
)
RESTORE = CommandLine(
    "restore",
    "Return a running cluster to a snapshot, on the same ports. Clients lose their connections.",
    [DIR],
    [Positional("SNAPSHOT", "a folder that `milena snapshot` has written")],
    ["milena restore prepared"],
)
RESET = CommandLine(
    "reset",
    "Make a cluster of `milena up --lab` like a new one, in milliseconds: remove all topics, groups, dynamic "
    "configurations, quotas\nand faults, and start nodes that are down. Ports, processes and feature levels stay. "
    "For use between two tests.",
    [DIR],
    examples=["milena up --lab --detach", "milena reset"],
)


def reset(arguments: Sequence[str]) -> int:
    values = RESET.parse(arguments)
    if values.help:
        print(RESET.help())
        return 0
    reset_cluster(known(values.dir))
    return 0


def snapshot(arguments: Sequence[str]) -> int:
    values = SNAPSHOT.parse(arguments)
    if values.help:
        print(SNAPSHOT.help())
        return 0
    snapshots.snapshot(known(values.dir), values.snapshot)
    return 0


def restore(arguments: Sequence[str]) -> int:
    values = RESTORE.parse(arguments)
    if values.help:
        print(RESTORE.help())
        return 0
    snapshots.restore(known(values.dir), values.snapshot)
    return 0
