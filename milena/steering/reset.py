"""Reset of a running cluster between two tests: afterwards a client sees it as new, on the same ports and, as far as
possible, in the same processes.

Topics (internal ones, too), groups, dynamic configurations, quotas, credentials and faults are gone, and the segments
of deleted topics in the tier. Feature levels, producer ids, metrics and the static configuration stay. Clients that
still run may create topics again at once: close them first.
"""

from __future__ import annotations

import time

from milena.command_line.errors import UserError
from milena.steering.caller import NodeCommands, NotListening, begin_all, results
from milena.steering.nodes import LIMIT, STEP, SteeredNode
from milena.up import locks, nodes_file
from milena.up.nodes_file import name_of
from milena.up.processes import is_paused, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from milena.up.layout import ClusterDir


def reset(cluster: ClusterDir) -> None:
    """Reset the cluster of a directory, which `milena up` runs. Nodes that are down are started, paused ones resumed.

    Raises UserError, also if the nodes do not accept lab commands.
    """
    if not locks.is_held(cluster.lock):
        raise UserError(f"no cluster runs in {cluster.path}")
    if not cluster.is_lab():
        raise UserError(f"{cluster.path} can be reset only if it was started with --lab")
    with locks.waiting(cluster.state_lock):
        _reset(cluster)


def _reset(cluster: ClusterDir) -> None:
    entries = nodes_file.read(cluster.nodes)
    commands = {entry["id"]: NodeCommands(cluster.socket(name_of(entry))) for entry in entries}
    broken = _mend_all(cluster, commands)
    for node in broken:
        node.kill()
    start_together(broken)
    brokers = [entry["id"] for entry in entries if "broker" in entry["roles"]]
    controller = next(commands[entry["id"]] for entry in entries if "controller" in entry["roles"])
    wait_unfenced(controller, brokers)
    _remove_all(controller, [commands[number] for number in brokers])


def _remove_all(controller: NodeCommands, brokers: Sequence[NodeCommands]) -> None:
    removed = controller.call("reset")
    settled = results(begin_all(brokers, "settle", offset=removed["offset"]))
    erasing = [one["erasing"] for one in settled]
    in_tier = [topic for topics in erasing if topics is not None for topic in topics]
    if any(topics is not None for topics in erasing):
        brokers[0].call("erase_tier", topics=[*removed["topics"], *in_tier])


def _mend_all(cluster: ClusterDir, commands: dict[int, NodeCommands]) -> list[SteeredNode]:
    """Let all nodes run and end their faults. Return the nodes that need a restart for that."""
    deadline = time.monotonic() + LIMIT
    while True:
        _wake(cluster)
        try:
            mended = results(begin_all(commands.values(), "mend"))
        except NotListening:  # a node was killed just now: the supervisor will notice it
            if time.monotonic() > deadline:
                raise
            time.sleep(STEP)
        else:
            found = zip(commands, mended, strict=True)
            return [SteeredNode(cluster, number) for number, one in found if one["needs_restart"]]


def _wake(cluster: ClusterDir) -> None:
    """Start the nodes that are down, resume those that are paused, and wait for those that start."""
    down = []
    for entry in nodes_file.read(cluster.nodes):
        node = SteeredNode(cluster, entry["id"])
        if entry["pid"] is None:
            down.append(node)
        elif is_paused(entry["pid"]):
            node.resume()
    start_together(down)
    for entry in nodes_file.read(cluster.nodes):
        if entry["pid"] is not None and not entry["ready"] and runs(entry["pid"]):
            SteeredNode(cluster, entry["id"]).wait_ready()


def start_together(nodes: Sequence[SteeredNode]) -> None:
    """Start the nodes together, and wait until all serve."""
    for node in nodes:
        node.start(wait=False)
    for node in nodes:
        node.wait_ready()


def wait_unfenced(controller: NodeCommands, brokers: Sequence[int]) -> None:
    """Wait until all brokers are unfenced: a broker that was paused, or cut off, needs a heartbeat."""
    deadline = time.monotonic() + LIMIT
    while True:
        registered = controller.call("brokers")
        fenced = [number for number in brokers if registered.get(str(number), {"fenced": True})["fenced"]]
        if not fenced:
            return
        if time.monotonic() > deadline:
            raise UserError(f"waited {LIMIT:.0f} seconds for broker {fenced[0]} to be unfenced")
        time.sleep(STEP)  # another process fulfils the condition
