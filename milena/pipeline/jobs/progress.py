"""Progress of a job: a function that the caller passes, and that the job calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int, str], None]
"""Called with the kind of work, how much is done, the total, and the unit: ``("checked", 3, 7, "bytes")``."""


def silent(what: str, done: int, whole: int, unit: str) -> None:
    """Report nothing."""
