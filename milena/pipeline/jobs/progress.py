"""How a job tells what it has done: by a function that whoever starts it hands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int, str], None]
"""Called with what is done, how much of it, of how much, and the unit: ``("checked", 3, 7, "bytes")``."""


def silent(what: str, done: int, whole: int, unit: str) -> None:
    """Tells nobody."""
