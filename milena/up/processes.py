"""The processes of the nodes: starting, observing and ending them."""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from milena.up.plan import NodePlan

PARENT_FD = "MILENA_PARENT_FD"  # runtime.process reads it; importing it here would import asyncio


class NodeProcess:
    """One process of a node: a child, or one started by a user."""

    def __init__(self, pid: int, log_start: int, *, child: bool) -> None:
        self.pid = pid
        self.log_start = log_start
        """The position in its log at which this process began to write."""
        self.child = child
        self.watch = -1 if child else _watch(pid)

    def exit_reason(self) -> str | None:
        """Return why the process has ended, or None while it runs."""
        if not self.child:
            return None if _runs(self.pid, self.watch) else "ended"
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def start(node: NodePlan, alive: int, environment: dict[str, str], options: list[str]) -> NodeProcess:
    """Start a node. ``alive``: the descriptor that reaches end of file when the supervisor ends."""
    return spawn(["node", node.properties, *options], node.log, {**environment, PARENT_FD: str(alive)}, alive)


def spawn(command: list[str], log_path: str, environment: dict[str, str], alive: int) -> NodeProcess:
    """Start a command of `milena` that writes to a log, in a process group of its own, so that Ctrl-C reaches only the
    supervisor. The process inherits ``alive``."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    log_start = os.fstat(log).st_size
    os.set_inheritable(alive, True)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "milena", *command],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setpgroup=0,
            setsigmask=(),
        )
    finally:
        os.set_inheritable(alive, False)
        os.close(log)
    return NodeProcess(pid, log_start, child=True)


def last_words(log: str, start: int) -> str:
    """Return the last line that a process wrote into its log, which usually says why it ended."""
    with open(log, "rb") as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - 4096, 0))
        lines = file.read().decode(errors="replace").split("\n")
    last = next((line.strip().removeprefix("milena: ") for line in reversed(lines) if line.strip()), "")
    if last.startswith("{"):  # an event of the log
        import json

        with contextlib.suppress(ValueError, KeyError):
            last = str(json.loads(last)["event"])
    return last


def _watch(pid: int) -> int:
    """Return a descriptor that becomes readable when a process that is not our child ends (Linux), else -1."""
    if hasattr(os, "pidfd_open"):
        try:
            return os.pidfd_open(pid)
        except OSError:
            pass
    return -1


def _runs(pid: int, watch: int) -> bool:
    if watch >= 0:
        import select

        if select.select([watch], [], [], 0)[0]:
            os.close(watch)
            return False
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def runs(pid: int) -> bool:
    """Return whether a process exists and is no zombie (Linux); elsewhere whether it exists."""
    state = _state(pid)
    if state is None and os.path.exists("/proc/self/stat"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return state != "Z"


def is_paused(pid: int) -> bool:
    """Return whether a process is stopped by a signal (Linux); elsewhere False."""
    return _state(pid) == "T"


def all_paused(pid: int) -> bool:
    """Return whether every thread of a process is stopped, or it has ended (Linux); elsewhere True."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return True
    return all(_state(f"{pid}/task/{thread}") in ("T", "Z", "X", None) for thread in threads)


def _state(pid: int | str) -> str | None:
    """Return the state letter of the process in /proc; None if there is no such process, or no /proc."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return None
