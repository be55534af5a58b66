"""Text from outside for a terminal, a table or a log: bounded, on one line, without control characters."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 256
"""Maximum number of characters of a client's string in a log; Kafka's longest names have 249."""


def printable(text: str) -> str:
    """``text`` with non-printable characters escaped as in a Python literal (line breaks, terminal codes, marks that
    change the direction of text, halves of surrogate pairs)."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def shortened(text: str, longest: int = LONGEST) -> str:
    """The beginning of ``text``, and the number of characters left out."""
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text) - longest} more)"
