"""Snapshots of a running cluster: a consistent cut of all nodes, and the return to one.

A snapshot holds every process of the cluster (SIGSTOP) before it copies files, and releases them afterwards. So it
contains what a ``kill -9`` of all nodes at the same moment would leave. With lab commands, the brokers flush their
logs and write their checkpoints shortly before. What is only in memory is lost: requests in progress, and members'
sessions, which begin again.

After a restore each broker continues with its incarnation: its epoch, its leaderships and its place in every ISR are
those of the snapshot. Nodes that accept lab commands are restarted within their processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from threading import Thread

from milena.command_line.errors import UserError, reason_of
from milena.steering.caller import Call, NodeCommands, begin_all, results
from milena.steering.nodes import LIMIT, SteeredNode
from milena.steering.reset import start_together
from milena.up import locks, nodes_file, settings, snapshots
from milena.up.layout import ClusterDir
from milena.up.nodes_file import name_of
from milena.up.plan import nodes_of
from milena.up.processes import all_paused, is_paused, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from milena.up.nodes_file import Entry
    from milena.up.snapshots import Manifest

INCOMING = ".restoring"
OUTGOING = ".replaced-"
"""In the names of log directories and parts of the tier while a snapshot takes their place."""


def snapshot(cluster: ClusterDir, path: str) -> None:
    """Write a snapshot of a cluster into a new folder, which stays empty after an error. The cluster may run or not.
    Raises UserError."""
    path = snapshots.absolute(path)
    if path == cluster.path or path.startswith(cluster.path + os.sep):
        raise UserError(f"{path} is in the cluster's own directory: name a folder outside of it")
    entries = nodes_file.read(cluster.nodes) if locks.is_held(cluster.lock) else []
    try:
        with (
            snapshots.begun(path),
            locks.waiting(cluster.state_lock) if entries else contextlib.nullcontext(),
        ):
            incarnations = _flushed(cluster, entries)
            with held([entry["pid"] for entry in entries if entry["pid"] is not None]):
                snapshots.save(cluster, path, incarnations)
    except OSError as error:
        raise UserError(f"the snapshot cannot be written: {reason_of(error)}") from None


def _flushed(cluster: ClusterDir, entries: Sequence[Entry]) -> dict[str, str]:
    """Let the brokers flush, if they accept lab commands. Return the incarnations of those that serve, by name."""
    serving = [
        entry
        for entry in entries
        if "broker" in entry["roles"] and entry["ready"] and entry["pid"] is not None and not is_paused(entry["pid"])
    ]
    names = [name_of(entry) for entry in serving]
    if cluster.is_lab():
        results(begin_all([NodeCommands(cluster.socket(name)) for name in names], "flush_all"))
    incarnations = {}
    for name in names:
        with open(cluster.incarnation(name)) as file:
            incarnations[name] = file.read()
    return incarnations


@contextlib.contextmanager
def held(pids: Sequence[int]) -> Iterator[None]:
    """Hold processes with all their threads; those that were paused before stay so. They continue also if this process
    is killed: another one sends the signals when its pipe reaches end of file."""
    running = [pid for pid in pids if runs(pid) and not is_paused(pid)]
    reading, writing = os.pipe()
    try:
        release = _start_release(running, reading)
    except OSError:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + LIMIT
        while not all(all_paused(pid) for pid in pids):
            if time.monotonic() > deadline:
                raise UserError(f"waited {LIMIT:.0f} seconds for the nodes to pause")
            time.sleep(0.001)  # a thread may be in a system call
        yield
    finally:
        os.close(writing)
        os.waitpid(release, 0)


def _start_release(pids: Sequence[int], pipe: int) -> int:
    """Start a process, in a group of its own, that continues others at the end of ``pipe``. Return its id. Raises
    OSError."""
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", f"read _; kill -CONT {' '.join(map(str, pids))}"],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, pipe, 0), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)],
        setpgroup=0,
    )


def restore(cluster: ClusterDir, path: str) -> Thread:
    """Put a running cluster back into the state of a snapshot of it, or of a cluster with the same nodes. All nodes run
    afterwards. Return the running thread that removes the replaced files. Raises UserError."""
    path = snapshots.absolute(path)
    manifest = snapshots.read(path)
    if not locks.is_held(cluster.lock):
        raise UserError(f"no cluster runs in {cluster.path}")
    _check_fits(cluster, manifest, path)
    swaps = _Swaps(cluster, path, manifest)
    try:
        with locks.waiting(cluster.state_lock):
            _replace_all(cluster, manifest, swaps)
    except OSError as error:
        raise UserError(f"the snapshot cannot be restored: {reason_of(error)}") from None
    cleaning = Thread(target=swaps.clean, name="removal of replaced files")
    cleaning.start()
    return cleaning


def _replace_all(cluster: ClusterDir, manifest: Manifest, swaps: _Swaps) -> None:
    swaps.copy()
    halted, ended = _halt(cluster)
    try:
        for node in ended:
            node.end()
        swaps.swap()
        for part in manifest["nodes"]:
            snapshots.resume(cluster, part)
        _move(cluster)
    finally:  # also after an error the nodes must run
        starting = begin_all([node.lab_commands for node in halted], "reopen")
        start_together([node for node in ended if node.pid is None])
        results(starting)


def _move(cluster: ClusterDir) -> None:
    entries = nodes_file.read(cluster.nodes)
    controller = next(entry for entry in entries if "controller" in entry["roles"])
    addresses = {entry["id"]: entry["listeners"]["PLAINTEXT"] for entry in entries if "broker" in entry["roles"]}
    snapshots.move(cluster, name_of(controller), addresses)


def _halt(cluster: ClusterDir) -> tuple[list[SteeredNode], list[SteeredNode]]:
    """Let all nodes close their files. Return those that have halted, and those whose process must end."""
    halting: list[tuple[SteeredNode, Call]] = []
    others: list[SteeredNode] = []
    for entry in nodes_file.read(cluster.nodes):
        node = SteeredNode(cluster, entry["id"])
        if not cluster.is_lab() or not entry["ready"] or entry["pid"] is None:
            others.append(node)
            continue
        if is_paused(entry["pid"]):
            node.resume()
        try:
            halting.append((node, node.lab_commands.begin("halt")))
        except UserError:
            others.append(node)
    halted: list[SteeredNode] = []
    for node, call in halting:
        try:
            call.result()
        except UserError:  # it has ended, or fails to halt: the others must not stay halted
            others.append(node)
        else:
            halted.append(node)
    return halted, others


def _check_fits(cluster: ClusterDir, manifest: Manifest, path: str) -> None:
    options = settings.load(cluster)
    own = {plan.name: len(plan.log_dirs) for plan in nodes_of(cluster, options)}
    theirs = {node["name"]: node["log_dirs"] for node in manifest["nodes"]}
    if own != theirs:
        raise UserError(f"{path} is a snapshot of {_shown(theirs)}, and this cluster has {_shown(own)}")
    if manifest["has_tier"] != (snapshots.tier_folder(cluster, options) is not None):
        raise UserError(
            f"{path} is a snapshot with{'' if manifest['has_tier'] else 'out'} a remote tier, unlike this cluster"
        )


def _shown(nodes: dict[str, int]) -> str:
    return ", ".join(name if count == 1 else f"{name} ({count} log directories)" for name, count in nodes.items())


class _Swaps:
    """Replaces log directories and the parts of the tier by copies from a snapshot."""

    def __init__(self, cluster: ClusterDir, path: str, manifest: Manifest) -> None:
        self._id = os.urandom(4).hex()
        self._places: list[tuple[str, str]] = []
        """Pairs of a path in the snapshot and the path that it replaces."""
        for node in manifest["nodes"]:
            both = (snapshots.log_dirs(root, node["name"], node["log_dirs"]) for root in (path, cluster.path))
            self._places += zip(*both, strict=True)
        tier = snapshots.tier_folder(cluster, settings.load(cluster))
        if tier is not None:
            os.makedirs(tier, exist_ok=True)
            remote = ClusterDir(path).remote
            self._places += [(os.path.join(remote, part), os.path.join(tier, part)) for part in snapshots.TIER_PARTS]
        self._tier = tier

    def copy(self) -> None:
        """Copy the snapshot beside the present files. Raises OSError."""
        copier = snapshots.Copier(of_snapshot=True)
        for source, target in self._places:
            incoming = target + INCOMING
            if os.path.lexists(incoming):  # of a restore that was interrupted
                snapshots.remove(incoming)
            immutable = self._tier is not None and os.path.dirname(target) == self._tier
            if os.path.isdir(source):
                copier.tree(source, incoming, immutable=immutable)
            elif os.path.exists(source):
                copier.file(source, incoming, immutable=immutable)

    def swap(self) -> None:
        """Put the copies in place. The nodes must not run. Raises OSError."""
        for _, target in self._places:
            if os.path.lexists(target):
                os.rename(target, f"{target}{OUTGOING}{self._id}")
            if os.path.lexists(target + INCOMING):
                os.rename(target + INCOMING, target)

    def clean(self) -> None:
        """Remove what this and earlier restores have replaced."""
        for _, target in self._places:
            folder, name = os.path.split(target)
            for other in os.listdir(folder):
                if other.startswith(name + OUTGOING):
                    snapshots.remove(os.path.join(folder, other))
