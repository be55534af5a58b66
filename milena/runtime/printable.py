"""Text of others on a terminal, in a table or in a log: of bounded length, on one line, without control characters."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 256
"""Characters of a client's string in a log: Kafka's longest names have 249."""


def printable(text: str) -> str:
    """``text`` with what is no printable character escaped as in a Python literal (line breaks, terminal codes, marks
    that turn the direction of writing, halves of surrogate pairs)."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """The beginning of ``text``, and how much more there was."""
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text) - longest} more)"
