"""The supervisor's output: on standard error a live table on a terminal, plain lines otherwise; on standard output one
line when the cluster is ready."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from milena.up.plan import NodePlan

    class Shown(Protocol):
        """A node and its process (``up.supervisor``)."""

        @property
        def plan(self) -> NodePlan: ...
        @property
        def state(self) -> str: ...
        @property
        def pid(self) -> int | None: ...


COLOURS = {"starting": "\x1b[33m", "ready": "\x1b[32m", "down": "\x1b[31m"}
RESET = "\x1b[0m"
WARNING = "warning: "
"""The prefix of lines that `milena up --detach` prints too."""


class View:
    """Plain lines: each change of a node's state, once."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, int | None]] = {}

    def show(self, nodes: Sequence[Shown]) -> None:
        for node in nodes:
            now = (node.state, node.pid)
            if self._states.get(node.plan.name, ("down", None)) != now:
                self._states[node.plan.name] = now
                if node.state != "down":
                    self.line(f"{node.plan.name} {node.state} at {node.plan.address} (pid {node.pid})")

    def line(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print a warning, which `milena up --detach` prints too."""
        self.line(f"{WARNING}{text}")

    def ready(self, text: str) -> None:
        """Print the line for programs on standard output."""
        print(text, flush=True)

    def end(self, nodes: Sequence[Shown]) -> None:
        self.line("stopped")


class TableView(View):
    """A table that is redrawn in place, below the printed lines."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._table: list[str] = []
        self._drawn = 0
        """The number of lines of the table on the screen."""
        self._started = time.monotonic()

    def show(self, nodes: Sequence[Shown]) -> None:
        width = _columns()
        head = f"{'node':<16}{'state':<10}{'address':<26}{'pid':>8}{'memory':>10}"
        table = [self._title[:width], head[:width], *(self._row(node, width) for node in nodes)]
        if table != self._table:
            self._erase()
            self._table = table
            self._draw()

    def _row(self, node: Shown, width: int) -> str:
        state, pid = f"{node.state:<10}", str(node.pid or "-")
        row = f"{node.plan.name:<16}{state}{node.plan.address:<26}{pid:>8}{resident(node.pid):>10}"
        # cut before it is coloured: a wrapped line could not be erased
        return row[:width].replace(state, f"{COLOURS[node.state]}{state}{RESET}", 1)

    def _draw(self) -> None:
        sys.stderr.write("".join(f"{line}\n" for line in self._table))
        sys.stderr.flush()
        self._drawn = len(self._table)

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}A\x1b[J")
            sys.stderr.flush()
            self._drawn = 0

    def line(self, text: str) -> None:
        self._erase()
        super().line(text)
        self._draw()

    def ready(self, text: str) -> None:
        self._erase()
        super().ready(text)
        self.line(f"ready after {time.monotonic() - self._started:.2f} s; Ctrl-C stops")

    def end(self, nodes: Sequence[Shown]) -> None:
        self._erase()
        super().line("stopped")


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def resident(pid: int | None) -> str:
    """Return the resident memory of a process for display, or an empty string if the system does not report it."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return f"{int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20:.0f} MiB"
    except (OSError, ValueError, IndexError):
        return ""
