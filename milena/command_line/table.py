"""Output: lines for people, escaped because names come from other users, and JSON."""

from __future__ import annotations

from milena.runtime.printable import printable


def say(line: str) -> None:
    """Print one line; line breaks and terminal codes in it are escaped."""
    print(printable(line))


def show_json(value: object) -> None:
    """Print one JSON document, in ASCII: everything that a terminal could interpret is escaped."""
    import json  # it costs 5 ms, which a command without --json need not wait for

    print(json.dumps(value, indent=2))
