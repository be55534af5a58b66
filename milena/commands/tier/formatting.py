"""Formats numbers for `milena tier`."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """Return a number with a noun: ``1 segment``, ``2 segments``, ``no segments``."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: ``0 to 3, 7``."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found)
