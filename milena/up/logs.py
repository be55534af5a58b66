"""`milena logs`: print the logs of a cluster's nodes, readable on a terminal, as written otherwise."""

from __future__ import annotations

import os
import select
import sys

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, nearest
from milena.runtime.printable import printable
from milena.up.layout import DEFAULT_DIR, ClusterDir
from milena.up.view import COLOURS, RESET, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LEVELS = ("debug", "info", "warning", "error", "critical")
SUPERVISOR = "up.log"
POLL_MS = 100
"""Seconds between reads of a followed log."""
COLOUR_OF = {"warning": COLOURS["starting"], "error": COLOURS["down"], "critical": COLOURS["down"]}
LOGS = CommandLine(
    "logs",
    "Print the logs of a cluster's nodes. On a terminal each event is one readable line; elsewhere, "
    "and with --json, the"
    "\nlines are as the nodes wrote them.",
    [
        Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR),
        Option("--follow", "continue with new lines as they are written", short="-f"),
        Option("--lines", "only the last N lines of each node", "N", convert=int),
        Option("--level", f"the lowest level to print: {', '.join(LEVELS)}", "LEVEL", default="debug"),
        Option("--json", "print the lines as written, also on a terminal"),
    ],
    [Positional("NODE", "a node's name or id; all without it", optional=True)],
    ["milena logs broker-1 --lines 20", "milena logs --follow --level warning"],
)


def main(arguments: Sequence[str]) -> int:
    """Print the logs, and return the exit code. Raises UserError."""
    values = LOGS.parse(arguments)
    if values.help:
        print(LOGS.help())
        return 0
    if values.lines is not None and values.lines < 0:
        raise UsageError(f"--lines {values.lines}: not a number of at least 0")
    if values.level not in LEVELS:
        raise UsageError(f"--level {values.level}: it is {', '.join(LEVELS)}{nearest(values.level, LEVELS)}")
    cluster = ClusterDir(values.dir)
    if not cluster.exists():
        raise UserError(f"{cluster.path} holds no cluster (--dir names another directory)")
    terminal = sys.stdout.isatty() and not values.json
    names = logs_of(cluster, values.node)
    show = Shown(LEVELS.index(values.level), for_people=terminal, several=len(names) > 1)
    files = [LogFile(os.path.join(cluster.logs, name)) for name in names]
    for file in files:
        show.all(file.path, file.new_lines(), values.lines)
    while values.follow and reader_is_there():
        for file in files:
            show.all(file.path, file.new_lines())
    return 0


def logs_of(cluster: ClusterDir, node: str | None) -> list[str]:
    """Return the log files of one node, or of all. Raises UserError if there is none."""
    names = sorted(name for name in os.listdir(cluster.logs) if name.endswith(".log"))
    if node is None:
        return names
    wanted = {f"{node}.log", f"broker-{node}.log", f"controller-{node}.log"}
    if not (found := [name for name in names if name in wanted]):
        raise UserError(f"{cluster.logs} has no log of a node {node}")
    return found


def reader_is_there() -> bool:
    """Wait a moment. Return whether a process still reads our output, unlike after `milena logs -f | head`."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return not poll.poll(POLL_MS)


class LogFile:
    """A log file that grows, and may be replaced or truncated."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._inode = 0
        self._position = 0
        self._unfinished = b""

    def new_lines(self) -> list[str]:
        """Return the whole lines written since the last call."""
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._position:
                    self._inode, self._position, self._unfinished = status.st_ino, 0, b""
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


class Shown:
    """Prints lines from a level on. A heading names the file when it changes, unless each line has a prefix."""

    def __init__(self, level: int, *, for_people: bool, several: bool) -> None:
        self._level = level
        self._for_people = for_people
        self._several = several
        self._last = ""

    def all(self, path: str, lines: list[str], last: int | None = None) -> None:
        """Print the lines of a file, or the last ``last`` of those with a sufficient level."""
        chosen = lines if self._level == 0 else [line for line in lines if self._fits(path, line)]
        if last is not None:
            chosen = chosen[len(chosen) - min(last, len(chosen)) :]
        if not chosen:
            return
        name = os.path.basename(path)
        if self._several and not self._for_people and name != self._last:
            print(f"{chr(10) if self._last else ''}==> {path} <==")
            self._last = name
        prefix = f"{name.removesuffix('.log'):<15} " if self._several else ""
        for line in chosen:
            print(prefix + readable(line) if self._for_people else line)
        sys.stdout.flush()

    def _fits(self, path: str, line: str) -> bool:
        event = event_of(line)
        if event is not None:
            level = str(event.get("level", "info"))
            return level not in LEVELS or LEVELS.index(level) >= self._level
        if line.startswith(WARNING):
            return self._level <= LEVELS.index("warning")
        # A line that is no event was printed by an ending node, or reports the supervisor's progress.
        return os.path.basename(path) != SUPERVISOR or line.startswith("milena: ") or self._level <= 1


def event_of(line: str) -> dict[str, object] | None:
    """Return the event of a line; None if it is no event."""
    import json

    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def readable(line: str) -> str:
    """Return ``13:20:09.077 info     observer: leader of the metadata log  leader=100``; other lines unchanged."""
    event = event_of(line)
    if event is None:
        return printable(line)
    time = str(event.pop("timestamp", "")).partition("T")[2][:12]
    level = str(event.pop("level", ""))
    component, text = event.pop("component", ""), event.pop("event", "")
    trace = str(event.pop("exception", ""))
    fields = " ".join(f"{name}={value}" for name, value in event.items())
    said = printable(f"{time} {level:<8} {component}: {text}{'  ' + fields if fields else ''}")
    colour = COLOUR_OF.get(level)
    lines = [f"{colour}{said}{RESET}" if colour else said, *(f"    {printable(one)}" for one in trace.splitlines())]
    return "\n".join(lines)
