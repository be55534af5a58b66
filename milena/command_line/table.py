"""Output: lines for people, the one way by which names that others have chosen get to a terminal, and JSON."""

from __future__ import annotations

from milena.runtime.printable import printable


def say(line: str) -> None:
    """Print one line, whatever is in it: line breaks and terminal codes are escaped."""
    print(printable(line))


def show_json(value: object) -> None:
    """Print one JSON document. All but ASCII is escaped, and with it what a terminal would obey."""
    import json  # it costs 5 ms, which a command without --json need not wait for

    print(json.dumps(value, indent=2))
