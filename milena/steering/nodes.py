"""The processes of a cluster's nodes: signals, starts, and wiping of log directories."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

from milena.command_line.errors import UserError, reason_of
from milena.steering.caller import NodeCommands
from milena.up import channel, locks, nodes_file, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from milena.up.layout import ClusterDir
    from milena.up.nodes_file import Entry

LIMIT = 60.0
"""The time limit of each step in seconds."""
PATIENCE = 10.0
"""Seconds to observe a started node that is not in lab mode: it may wait for a controller that is down too."""
STEP = 0.01


class SteeredNode:
    """One node of the cluster of a directory."""

    def __init__(self, cluster: ClusterDir, node_id: int) -> None:
        self._cluster = cluster
        self.id = node_id

    @property
    def entry(self) -> Entry:
        """Return the node's entry in nodes.json. Raises UserError if the cluster has no such node."""
        for entry in nodes_file.read(self._cluster.nodes):
            if entry["id"] == self.id:
                return entry
        raise UserError(f"{self._cluster.path} has no node {self.id}")

    @property
    def name(self) -> str:
        return nodes_file.name_of(self.entry)

    @property
    def pid(self) -> int | None:
        """Return the process id; None while the node is down."""
        return self.entry["pid"]

    @property
    def lab_commands(self) -> NodeCommands:
        return NodeCommands(self._cluster.socket(self.name))

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process. Raises UserError if it is down."""
        self._end(lambda: self.signal(signal.SIGKILL))

    def end(self) -> None:
        """Like ``kill``, but also of a node that is down."""
        with contextlib.suppress(ProcessLookupError):
            if (pid := self.pid) is not None:
                os.kill(pid, signal.SIGKILL)
        self._wait(lambda: self.pid is None, "to end")

    def stop(self) -> None:
        """Shut the node down cleanly. Raises UserError if it is down."""
        self._end(lambda: self.signal(signal.SIGTERM))

    def power_off(self) -> None:
        """Simulate a power loss: unsynced bytes are lost. Raises UserError if it is down or was started without
        --lab."""
        self._end(lambda: self.lab_commands.end("power_off"))

    def pause(self) -> None:
        """Pause the process by SIGSTOP; its connections stay open. Raises UserError if it is down."""
        pid = self.pid
        self.signal(signal.SIGSTOP)
        if pid is not None and sys.platform == "linux":
            self._wait(lambda: processes.is_paused(pid) or not processes.runs(pid), "to pause")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wipe(self) -> list[str]:
        """Empty its log directories, as if the disk had been replaced. Return those that do not exist. Raises UserError
        while it runs, or if that fails."""
        if self.pid is not None:
            raise UserError(f"{self.name} is running: stop it before wiping its disk")
        missing = []
        for folder in self.entry["log.dirs"]:
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                missing.append(folder)
            except OSError as error:
                raise UserError(f"{self.name} cannot be wiped: {reason_of(error)}") from None
        return missing

    def start(self, *, wait: bool = True) -> bool:
        """Let the supervisor start the node. With ``wait``, wait until it serves if it is in lab mode, otherwise only
        long enough to notice an immediate failure. Return whether it serves. Raises UserError if that fails."""
        if self.pid is not None:
            raise UserError(f"{self.name} is already running")
        log = self._cluster.log(self.name)
        log_start = _size(log)
        if not locks.is_held(self._cluster.lock) or not channel.notify_supervisor(
            self._cluster, self.id, channel.START
        ):
            raise UserError(f"no `milena up` runs in {self._cluster.path} that could start it")
        # The log is checked too: the process may have ended between two checks.
        self._wait(lambda: self.pid is not None or _size(log) > log_start, "to be started")
        if not wait:
            return False
        if self._cluster.is_lab():
            self.wait_ready(log_start)
            return True
        return self._comes(lambda: self._is_ready(log_start), PATIENCE)

    def wait_ready(self, log_start: int = 0) -> None:
        """Wait until a node that was started serves. ``log_start``: the size of its log before. Raises UserError if it
        has ended."""
        self._wait(lambda: self._is_ready(log_start), "to serve")

    def _is_ready(self, log_start: int) -> bool:
        entry = self.entry
        if entry["pid"] is None:
            said = processes.last_words(self._cluster.log(self.name), log_start) or "its log is empty"
            raise UserError(f"{self.name} has ended: {said}")
        return entry["ready"]

    def signal(self, number: int) -> None:
        """Send a signal to the process. Raises UserError if it is down."""
        pid = self.pid
        if pid is None:
            raise UserError(f"{self.name} is down")
        try:
            os.kill(pid, number)
        except PermissionError as error:  # the process of another user
            raise UserError(f"{self.name}: {error.strerror}") from None

    def _end(self, ending: Callable[[], object]) -> None:
        """Wait for the node's end, including its report to the supervisor, which must not start a second process."""
        pid = self.pid
        if pid is None:
            raise UserError(f"{self.name} is down")
        ending()
        self._wait(lambda: self.pid != pid and not processes.runs(pid), "to end")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        if not self._comes(condition, LIMIT):
            raise UserError(f"waited {LIMIT:.0f} seconds for {self.name} {what}")

    @staticmethod
    def _comes(condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(STEP)  # another process fulfils the condition
        return True


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
