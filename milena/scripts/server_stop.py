"""``kafka-server-stop``: lets the nodes on this machine end, as SIGTERM does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

NODES: Final = ("node", "container", "kafka-server-start")
"""The subcommands and the script that run a node."""


def main(arguments: Sequence[str]) -> int:
    """Send SIGTERM to the nodes of this user. Return 1 if there are none."""
    found = list(nodes())
    if not found:
        print("No kafka server to stop")
        return 1
    for process in found:
        os.kill(process, signal.SIGTERM)
    return 0


def nodes() -> Iterator[int]:
    """Yield the process ids of nodes."""
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdecimal() or entry.stat().st_uid != os.geteuid():
                continue
            words = [word.decode(errors="replace") for word in (entry / "cmdline").read_bytes().split(b"\0")]
        except OSError:
            continue  # it has ended
        if runs_node(words):
            yield int(entry.name)


def runs_node(words: Sequence[str]) -> bool:
    """Return whether a command line is that of a node."""
    for index, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] in ("milena", "milena.scripts") and words[index + 1] in NODES:
            return True
    return False
