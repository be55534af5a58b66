"""Why an error was raised."""

from __future__ import annotations


def cause_of(error: BaseException) -> BaseException | None:
    """Return the cause of ``error``. Compiled code does not set ``__cause__``, only ``__context__``."""
    return error.__cause__ or error.__context__
