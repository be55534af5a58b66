"""Lines for people: the one way by which names that others have chosen get to a terminal."""

from __future__ import annotations

from milena.runtime.printable import printable


def say(line: str) -> None:
    """Print one line, whatever is in it: line breaks and terminal codes are escaped."""
    print(printable(line))
