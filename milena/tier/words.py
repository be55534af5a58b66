"""How the commands of `milena tier` say things."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 segment``, ``2 segments``, ``no segments``."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
