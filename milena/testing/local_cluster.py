"""A cluster of real processes for tests and scripts: starts `milena up`, knows its nodes, kills and restarts them.

Imports only Milena's command side, so that it can be used in any project's test process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple

from milena.command_line.errors import UserError
from milena.steering.nodes import SteeredNode
from milena.steering.reset import reset
from milena.steering.snapshots import restore, snapshot
from milena.testing.lab_node import LabNode
from milena.up import detached, nodes_file
from milena.up.layout import ClusterDir
from milena.up.processes import PARENT_FD, runs

MILENA = (sys.executable, "-P", "-m", "milena")
LIMIT = 60.0
"""The time limit of each step in seconds."""
STEP = 0.01


class Node(NamedTuple):
    """A node as in nodes.json. ``pid`` is None while it is down."""

    id: int
    roles: tuple[str, ...]
    pid: int | None
    listeners: Mapping[str, str]
    log_dirs: tuple[str, ...]


class LocalCluster:
    """A running cluster. Its directory is kept when it stops; ``LocalCluster.start`` there uses the same data."""

    def __init__(
        self,
        directory: str,
        process: subprocess.Popen[str],
        alive: int,
        bootstrap: str,
        environment: Mapping[str, str],
        *,
        is_detached: bool = False,
    ) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        """``host:port,...`` of all brokers."""
        self._up = process
        self._alive = alive
        self._environment = environment
        self._is_detached = is_detached
        self._layout = ClusterDir(directory)
        self._restarted: list[subprocess.Popen[str]] = []
        self._cleaning: list[Thread] = []

    @classmethod
    def start(
        cls,
        directory: str | os.PathLike[str],
        *,
        brokers: int | None = 1,
        port: int = 0,
        overrides: Mapping[str, str] | None = None,
        topics: Sequence[str] = (),
        options: Sequence[str] = (),
        lab: bool = False,
        environment: Mapping[str, str] | None = None,
        detach: bool = False,
    ) -> LocalCluster:
        """Start a cluster and wait until it is ready. Port 0: free ports. ``topics`` are ``name:partitions:replicas``,
        ``brokers`` None: as at the last start there, or 3.
        ``environment`` is added to this process's environment for all processes. ``detach``: the cluster outlives this
        process, as that of `milena up --detach`; `milena down` and ``stop`` end it.

        Raises UserError with the command's error if it does not start.
        """
        command = [*MILENA, "up", "--dir", os.fspath(directory), "--port", str(port)]
        command += [] if brokers is None else ["--brokers", str(brokers)]
        command += [word for key, value in (overrides or {}).items() for word in ("--override", f"{key}={value}")]
        command += ["--lab"] if lab else []
        command += ["--detach"] if detach else []
        command += [word for topic in topics for word in ("--topic", topic)]
        os.makedirs(directory, exist_ok=True)
        log = os.path.join(os.fspath(directory), "up.stderr")
        # A cluster that is not detached ends with this process, even if that is killed: the pipe reaches end of file.
        inherited = {**os.environ, **(environment or {})}
        reading, alive = os.pipe()
        with open(log, "w") as errors:
            process = subprocess.Popen(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                pass_fds=[reading],
                env=inherited if detach else {**inherited, PARENT_FD: str(reading)},
            )
        os.close(reading)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready bootstrap="):
            process.wait()
            process.stdout.close()
            os.close(alive)
            with open(log) as errors:
                raise UserError(f"milena up: {errors.read().strip()}")
        bootstrap = line.strip().removeprefix("ready bootstrap=")
        return cls(os.fspath(directory), process, alive, bootstrap, inherited, is_detached=detach)

    @property
    def pid(self) -> int:
        """The supervisor's process. Of a detached cluster: of the ended command that has started it."""
        return self._up.pid

    @property
    def nodes(self) -> dict[int, Node]:
        """The current state of the nodes, by id."""
        return {
            entry["id"]: Node(
                entry["id"], tuple(entry["roles"]), entry["pid"], entry["listeners"], tuple(entry["log.dirs"])
            )
            for entry in nodes_file.read(self._layout.nodes)
        }

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if "broker" in node.roles]

    @property
    def controller(self) -> Node:
        return next(node for node in self.nodes.values() if "controller" in node.roles)

    def log(self, node_id: int) -> str:
        """Return a node's log so far."""
        with open(self._layout.log(self._name(node_id))) as file:
            return file.read()

    def kill(self, node_id: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a node and wait until its process has ended."""
        pid = self._node(node_id).pid
        if pid is None:
            raise UserError(f"node {node_id} is not running")
        os.kill(pid, number)
        self._wait(lambda: self.nodes[node_id].pid != pid, f"node {node_id} to end")

    def restart(self, node_id: int, command: Sequence[str] | None = None) -> None:
        """Start a node that is down, and wait until it serves. ``command`` replaces `milena node`; the properties file
        is added as its last argument. Raises UserError if it is running, or does not start."""
        if (pid := self._node(node_id).pid) is not None and runs(pid):
            raise UserError(f"node {node_id} is running (pid {pid}): kill or stop it first")
        properties = self._layout.properties(self._name(node_id))
        with open(self._layout.log(self._name(node_id)), "a") as log:
            node = subprocess.Popen(
                [*(command or (*MILENA, "node")), properties],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
        self._restarted.append(node)
        assert node.stdout is not None
        if not node.stdout.readline().startswith("ready "):
            raise UserError(f"node {node_id} did not start: {self.log(node_id)[-2000:]}")

    def start_node(self, node_id: int, *, wait: bool = True) -> None:
        """Let the supervisor start a node that is down. ``wait``: return when it serves (with ``lab=True`` only)."""
        SteeredNode(self._layout, node_id).start(wait=wait)

    def stop_node(self, node_id: int) -> None:
        """Stop a node cleanly and wait until its process has ended."""
        SteeredNode(self._layout, node_id).stop()

    def pause(self, node_id: int) -> None:
        """Pause a node by SIGSTOP: it does nothing until ``resume``; its connections stay open."""
        SteeredNode(self._layout, node_id).pause()

    def resume(self, node_id: int) -> None:
        SteeredNode(self._layout, node_id).resume()

    def wipe(self, node_id: int) -> None:
        """Delete the content of the log directories of a node that is down."""
        SteeredNode(self._layout, node_id).wipe()

    def lab_commands(self, node_id: int) -> LabNode:
        """The lab commands of a node (with ``lab=True``)."""
        return LabNode(self._layout.socket(self._name(node_id)))

    def wait_idle(self, seconds: float = 30.0) -> None:
        """Wait until the brokers that run have applied the metadata, and have finished their work on the tier, logs,
        followers and ISRs (with ``lab=True``). Raises UserError with what is left after ``seconds``."""
        deadline = time.monotonic() + seconds
        while reasons := self._unfinished():
            if time.monotonic() > deadline:
                raise UserError(f"the cluster is not idle after {seconds:g} seconds: {'; '.join(reasons)}")
            time.sleep(STEP)  # the brokers work

    def _unfinished(self) -> list[str]:
        newest = self.lab_commands(self.controller.id).call("image")["offset"]
        found: list[str] = []
        for broker in self.brokers:
            if broker.pid is None:
                continue
            answer = self.lab_commands(broker.id).call("busy")
            found += [f"broker {broker.id}: {reason}" for reason in answer["reasons"]]
            if answer["metadata_offset"] < newest:
                found.append(f"broker {broker.id}: the newest metadata is not applied")
        return found

    def power_off(self, node_id: int) -> None:
        """End a node, leaving its files as a power loss would (with ``lab=True``)."""
        SteeredNode(self._layout, node_id).power_off()

    def reset(self) -> None:
        """Remove all topics, groups, dynamic configurations and faults, and start the nodes that are down (with
        ``lab=True``). Clients then see a new cluster; ports, and processes that run, are kept."""
        reset(self._layout)

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the whole cluster, as it is at one moment, into a new folder."""
        snapshot(self._layout, os.fspath(path))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Return to the state of a snapshot, on the same ports. Clients lose their connections."""
        self._cleaning.append(restore(self._layout, os.fspath(path)))

    @classmethod
    def fork(
        cls,
        path: str | os.PathLike[str],
        directory: str | os.PathLike[str],
        *,
        port: int = 0,
        **options: Any,  # noqa: ANN401 - the arguments of start, passed on
    ) -> LocalCluster:
        """Start another cluster from a snapshot, in another directory and on other ports; further options as for
        ``start``. The cluster id is that of the snapshot's cluster."""
        further = ("--from", os.fspath(path), *options.pop("options", ()))
        return cls.start(directory, brokers=None, port=port, options=further, **options)

    def stop(self) -> None:
        """Stop all nodes cleanly. Idempotent."""
        if self._is_detached:
            detached.stop(self._layout)
        elif self._up.poll() is None:
            self._up.terminate()
        self._reap()

    def kill_supervisor(self) -> None:
        """Kill `milena up` itself with SIGKILL; return when its nodes have ended too."""
        pids = [node.pid for node in self.nodes.values() if node.pid is not None]
        self._up.kill()
        self._reap()
        self._wait(lambda: not any(map(runs, pids)), "the nodes to end after their supervisor")

    def _reap(self) -> None:
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1
        for cleaning in self._cleaning:
            cleaning.join()
        for process in (self._up, *self._restarted):
            process.wait(LIMIT)
            if process.stdout is not None:
                process.stdout.close()

    def _name(self, node_id: int) -> str:
        return f"{self._node(node_id).roles[0]}-{node_id}"

    def _node(self, node_id: int) -> Node:
        """Return a node. Raises UserError, which names the existing nodes, for an unknown id."""
        nodes = self.nodes
        if node_id not in nodes:
            raise UserError(f"there is no node {node_id}: there are {', '.join(map(str, sorted(nodes)))}")
        return nodes[node_id]

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > deadline:
                raise UserError(f"waited {LIMIT:.0f} seconds for {what}")
            for process in self._restarted:
                process.poll()
            time.sleep(STEP)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
