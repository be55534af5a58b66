"""What the supervisor shows: on standard error a live table on a terminal and plain lines otherwise; on standard
output one line, when the cluster is ready."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from milena.up.supervisor import SupervisedNode

COLOURS = {"starting": "\x1b[33m", "ready": "\x1b[32m", "down": "\x1b[31m"}
RESET = "\x1b[0m"


class View:
    """Plain lines: each change of a node's state, once."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, int | None]] = {}

    def show(self, nodes: list[SupervisedNode]) -> None:
        for node in nodes:
            now = (node.state, node.pid)
            if self._states.get(node.plan.name, ("down", None)) != now:
                self._states[node.plan.name] = now
                if node.state != "down":
                    self.tell(f"{node.plan.name} {node.state} at {node.plan.address} (pid {node.pid})")

    def tell(self, text: str) -> None:
        """One line for people."""
        print(text, file=sys.stderr, flush=True)

    def ready(self, line: str) -> None:
        """The one line for programs."""
        print(line, flush=True)

    def end(self, nodes: list[SupervisedNode]) -> None:
        self.tell("stopped")


class TableView(View):
    """A table that is drawn again in its place."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._lines = 0
        self._started = time.monotonic()
        self._last: tuple[object, ...] = ()

    def show(self, nodes: list[SupervisedNode]) -> None:
        rows = [self._row(node) for node in nodes]
        now = tuple(rows)
        if now == self._last:
            return
        self._last = now
        self._erase()
        head = f"{'node':<16}{'state':<10}{'address':<26}{'pid':>8}{'memory':>10}"
        text = "\n".join([self._title, head, *rows])
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
        self._lines = len(rows) + 2

    def _row(self, node: SupervisedNode) -> str:
        state = f"{COLOURS[node.state]}{node.state:<10}{RESET}"
        pid = str(node.pid) if node.pid else "-"
        return f"{node.plan.name:<16}{state}{node.plan.address:<26}{pid:>8}{resident(node.pid):>10}"

    def _erase(self) -> None:
        if self._lines:
            sys.stderr.write(f"\x1b[{self._lines}A\x1b[J")
            self._lines = 0

    def tell(self, text: str) -> None:
        self._erase()
        self._last = ()
        super().tell(text)

    def ready(self, line: str) -> None:
        self._erase()
        self._last = ()
        sys.stderr.flush()
        super().ready(line)
        super().tell(f"ready after {time.monotonic() - self._started:.2f} s; Ctrl-C stops")


def resident(pid: int | None) -> str:
    """Resident memory of a process for people, or nothing where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return f"{int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20:.0f} MiB"
    except (OSError, ValueError, IndexError):
        return ""
