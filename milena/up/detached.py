"""Clusters in the background: `milena up --detach`, `milena down` and `milena status`."""

from __future__ import annotations

import os
import sys

from milena.command_line.errors import UserError, reason_of
from milena.command_line.options import CommandLine, Option
from milena.command_line.table import show_json
from milena.up import channel, http_files, locks, nodes_file, processes
from milena.up.layout import DEFAULT_DIR, ClusterDir
from milena.up.view import WARNING, resident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DIR = Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR)
STOP_LIMIT = 90.0
"""The time limit of `milena down` in seconds: more than the supervisor's limits for brokers and controller."""

DOWN = CommandLine("down", "Stop the cluster of a directory cleanly, in whichever way it was started.", [DIR])
STATUS = CommandLine(
    "status",
    "Show the nodes of a cluster: up, starting, paused (SIGSTOP) or down. The exit code is 1 if any is down.",
    [DIR, Option("--json", "print JSON")],
)


def start(cluster: ClusterDir, arguments: list[str]) -> int:
    """Run `milena up` in a new session, and return when the cluster is ready."""
    cluster.create()
    try:
        log = os.open(cluster.own_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"cannot write {reason_of(error)}") from None
    begin = os.fstat(log).st_size
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "milena", "up", *arguments],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setsid=True,
    )
    os.close(writing)
    os.close(log)
    with os.fdopen(reading) as output:
        line = output.readline()
    if line.startswith("ready "):
        for warning in warnings_of(cluster.own_log, begin):
            print(warning, file=sys.stderr)
        print(line, end="", flush=True)
        if "--console" in arguments:
            print(f"console: {http_files.link(cluster, http_files.address(cluster) or '')}", file=sys.stderr)
        return 0
    os.waitpid(pid, 0)
    raise UserError(processes.last_words(cluster.own_log, begin) or "the cluster did not start")


def warnings_of(log: str, begin: int) -> list[str]:
    """Return the warnings in a supervisor's log from a position on."""
    with open(log, "rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    return [line for line in lines if line.startswith(WARNING)]


def known(path: str) -> ClusterDir:
    """Return the cluster of a directory. Raises UserError if there is none."""
    cluster = ClusterDir(path)
    if not cluster.exists():
        raise UserError(f"{cluster.path} holds no cluster (--dir names another directory)")
    return cluster


def down(arguments: Sequence[str]) -> int:
    values = DOWN.parse(arguments)
    if values.help:
        print(DOWN.help())
        return 0
    cluster = known(values.dir)
    if not stop(cluster):
        print(f"no cluster runs in {cluster.path}")
    return 0


def stop(cluster: ClusterDir) -> bool:
    """Stop a cluster, and return when it has ended; False if none runs. Raises UserError if it does not end in time."""
    if not locks.is_held(cluster.lock) or not channel.notify_supervisor(cluster, 0, channel.STOP):
        return False
    if locks.wait_released([cluster.lock], STOP_LIMIT):
        raise UserError(f"the cluster in {cluster.path} did not stop within {STOP_LIMIT:.0f} seconds")
    return True


def status(arguments: Sequence[str]) -> int:
    values = STATUS.parse(arguments)
    if values.help:
        print(STATUS.help())
        return 0
    cluster = known(values.dir)
    entries = nodes_file.read(cluster.nodes)
    supervised = locks.is_held(cluster.lock)
    states = [state_of(entry) if supervised else "down" for entry in entries]
    code = 0 if supervised and "down" not in states else 1
    if values.json:
        show_json([status_of(entry, state) for entry, state in zip(entries, states, strict=True)])
        return code
    print(f"{'node':<6}{'role':<12}{'state':<9}{'pid':>7}{'memory':>10}  listeners")
    for entry, state in zip(entries, states, strict=True):
        runs = state != "down"
        listeners = " ".join(f"{name}://{address}" for name, address in entry["listeners"].items())
        listeners += f" http://{entry['metrics']}/metrics" if "metrics" in entry else ""
        pid = entry["pid"] if runs else "-"
        memory = resident(entry["pid"]) if runs else ""
        print(f"{entry['id']:<6}{','.join(entry['roles']):<12}{state:<9}{pid:>7}{memory:>10}  {listeners}")
    return code


def status_of(entry: nodes_file.Entry, state: str) -> dict[str, object]:
    """Return a node's entry of nodes.json with its state. ``pid`` is null while it is down."""
    return {**entry, "pid": entry["pid"] if state != "down" else None, "state": state}


def state_of(entry: nodes_file.Entry) -> str:
    """Return ``up`` (serving), ``starting``, ``paused`` (stopped by a signal) or ``down``."""
    pid = entry["pid"]
    if pid is None or not os.path.exists(f"/proc/{pid}"):
        return "down"
    if processes.is_paused(pid):
        return "paused"
    return "up" if entry.get("ready", True) else "starting"
