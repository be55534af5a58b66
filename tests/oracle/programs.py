"""Java clients as separate processes that print lines."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


class Member:
    """A client process that prints lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def line(self, pattern: str) -> str:
        """Return the next line that begins with a prefix. Lines before it are kept for later calls."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if re.match(pattern, line):
                return self.lines[-1]
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def records(self, count: int) -> list[list[str]]:
        """Return the fields of the next ``count`` records."""
        return [self.line("record").split("\t") for _ in range(count)]


@contextmanager
def running(command: list[str]) -> Iterator[Member]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Member(process)
        process.communicate("end\n")
    finally:
        process.kill()
        process.communicate()
