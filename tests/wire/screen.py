"""A pseudo-terminal in which a program runs, and the contents of its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Callable, Mapping, Sequence

from milena.testing.local_cluster import LIMIT
from tests.wire.waiting import Deadline

TOKEN = re.compile(r"\x1b\[(\d*)([A-Za-z])|(\r?\n)|(\r)|([^\x1b\r\n]+)")


class Terminal:
    """Runs a command on a new terminal, which is its standard input, output and error."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, columns: int = 80) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], list(command), env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.text = ""
        """Everything that the program has written so far, with escape sequences."""

    def read_until(self, condition: Callable[[str], bool]) -> None:
        """Read until the screen meets the condition. Raises AssertionError after the usual limit."""
        deadline = Deadline(LIMIT)
        while not condition(self.screen):
            deadline.readable(self._fd, lambda: self.screen)
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # Linux reports the end of a terminal by this error
                data = b""
            assert data, f"the program has ended:\n{self.screen}"
            self.text += data.decode()

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def end(self) -> int:
        """Wait until the program has ended; return its exit code."""
        try:
            while data := os.read(self._fd, 65536):
                self.text += data.decode()
        except OSError:
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def screen(self) -> str:
        """Return the lines on the screen. Supports line ends, colours, cursor-up and clear-to-end, and nothing else."""
        lines, row = [""], 0
        for found in TOKEN.finditer(self.text):
            count, escape, newline, carriage, text = found.groups()
            if text:
                lines[row] += text
            elif newline:
                row += 1
                lines += [""] * (row == len(lines))
            elif escape == "A":
                row -= int(count)
                assert row >= 0, "above the first line"
            elif escape == "J":
                lines = [*lines[:row], ""]
            else:
                assert escape == "m" or carriage, f"an unknown escape: {found[0]!r}"
        return "\n".join(lines)
