"""Clients in Java as processes of their own, which print lines."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


class Member:
    """A client that prints lines, in its own process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def line(self, pattern: str) -> str:
        """The next line that begins so; those before it are kept."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if re.match(pattern, line):
                return self.lines[-1]
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def records(self, count: int) -> list[list[str]]:
        """The fields of that many records, from now on."""
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
