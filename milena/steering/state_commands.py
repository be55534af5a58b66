"""`milena reset`: the state of a running test cluster as a whole."""

from __future__ import annotations

from milena.command_line.options import CommandLine, Option
from milena.steering.reset import reset as reset_cluster
from milena.up.detached import known
from milena.up.layout import DEFAULT_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

RESET = CommandLine(
    "reset",
    "Make a cluster of `milena up --lab` like a new one, in milliseconds: remove all topics, groups, dynamic "
    "configurations, quotas\nand faults, and start nodes that are down. Ports, processes and feature levels stay. "
    "For use between two tests.",
    [Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR)],
    examples=["milena up --lab --detach", "milena reset"],
)


def reset(arguments: Sequence[str]) -> int:
    values = RESET.parse(arguments)
    if values.help:
        print(RESET.help())
        return 0
    reset_cluster(known(values.dir))
    return 0
