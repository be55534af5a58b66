"""Progress of a job: a function that the caller passes, and that the job calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int, str], None]
"""Called with the kind of work, the amount that is done, the total amount, and the unit of both: ``("checked", 3, 7,
"bytes")``."""


def silent(what: str, done: int, total: int, unit: str) -> None:
    """Report nothing."""
